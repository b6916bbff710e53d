"""How many tokens a request will take: a guess that errs high, corrected by what the model reported last.

Tokenizers differ and none is at hand, so text is measured by its length. Prose and code have three to five characters
to a token; base64 and minified code have fewer, and a character outside ASCII may be a token and a half by itself.
What was measured once is not measured again: messages never change, so each is looked up by its identity.
"""

import msgspec

from odin.core.message import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolMessage, UserMessage
from odin.core.provider import ToolSpec

IMAGE = 1_600
"""What an image takes at most, whatever its bytes: APIs make larger ones smaller before they look at them."""

_MESSAGE = 10
_PART = 12
_DENSE = 12
"""Text whose words are longer than this on average is no prose and no readable code."""

_SHORT = 200
_WORTH_A_DOUBT = 2_000
_LEANEST = 8
"""No tokenizer makes fewer tokens than one for this many characters of a whole conversation."""


def tokens_of(text: str) -> int:
    """The tokens of a text, rather too many than too few."""
    count = len(text)
    dense = count > _SHORT and (text.count(" ") + text.count("\n")) * _DENSE < count
    plain = count * 5 // 8 if dense else count // 3
    if text.isascii():
        return plain + 1
    wide = len(text.encode("utf-8", "surrogatepass")) - count
    return plain + wide * 3 // 5 + 1


def message_tokens(message: Message) -> int:
    if isinstance(message, UserMessage):
        notes = sum(_PART + tokens_of(note) for note in message.notes)
        return _MESSAGE + tokens_of(message.text) + notes + IMAGE * len(message.images)
    if isinstance(message, AssistantMessage):
        return _MESSAGE + sum(_PART + _part_tokens(part) for part in message.parts)
    results = sum(_PART + tokens_of(result.text) + IMAGE * len(result.images) for result in message.results)
    return _MESSAGE + results + sum(_PART + tokens_of(note) for note in message.notes)


def _part_tokens(part: Text | Thinking | ToolCall) -> int:
    if isinstance(part, ToolCall):
        return tokens_of(part.name) + tokens_of(json_text(part.args))
    return tokens_of(part.text) + (tokens_of(part.signature) if isinstance(part, Thinking) else 0)


def json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        return repr(value)


def images_of(message: Message) -> tuple[Image, ...]:
    """The images of one message, in the order in which the model sees them."""
    if isinstance(message, UserMessage):
        return message.images
    return tuple(image for one in message.results for image in one.images) if isinstance(message, ToolMessage) else ()


class Measure:
    """The size of one agent's requests. It remembers what each message takes, for as long as it is sent."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, int, int]] = {}
        self._fixed: tuple[tuple[str, ...], tuple[ToolSpec, ...], int] = ((), (), 0)
        self._sent = 0
        self._real = 0

    def messages(self, messages: tuple[Message, ...], shown: int = 0) -> int:
        """The tokens of these messages, of whose images `shown` are sent at most.

        Messages that are new are measured, the others are looked up.
        """
        found: dict[int, tuple[Message, int, int]] = {}
        total = images = 0
        for message in messages:
            known = self._known.get(id(message))
            if known is None or known[0] is not message:
                known = (message, message_tokens(message), len(images_of(message)))
            found[id(message)] = known
            total += known[1]
            images += known[2]
        self._known = found
        return total - IMAGE * max(0, images - shown)

    def of(self, message: Message) -> int:
        known = self._known.get(id(message))
        return known[1] if known is not None and known[0] is message else message_tokens(message)

    def fixed(self, system: tuple[str, ...], tools: tuple[ToolSpec, ...]) -> int:
        """The tokens of the system blocks and tools, which seldom change."""
        if self._fixed[0] is not system or self._fixed[1] is not tools:
            size = sum(_PART + tokens_of(block) for block in system) + sum(
                _PART + tokens_of(tool.name) + tokens_of(tool.description) + tokens_of(json_text(tool.schema))
                for tool in tools
            )
            self._fixed = (system, tools, size)
        return self._fixed[2]

    @property
    def calibrated(self) -> bool:
        return self._real > 0

    @property
    def base(self) -> int:
        """What the system blocks and tools of the last request take."""
        return self._fixed[2]

    def estimate(self, raw: int) -> int:
        """What a request measured as `raw` will really take: what was added since the last reply, on top of its count.

        A request that became smaller is scaled by how wrong the measure was, and never below what is likely.
        """
        if not self._real or not self._sent:
            return raw
        if raw >= self._sent:
            return self._real + (raw - self._sent)
        return min(raw, int(raw * min(1.0, self._real / self._sent * 1.1)))

    def reported(self, raw: int, real: int) -> None:
        """The request measured as `raw` took `real` tokens."""
        if raw and real:
            self._sent, self._real = raw, real

    def start_over(self) -> None:
        """Another model counts in another way."""
        self._sent = self._real = 0

    def truncated(self, raw: int, real: int) -> bool:
        """Whether a server that counted `real` tokens cannot have read all of a request measured as `raw`.

        It is far too few for the text, or hardly more than last time although much was added. Asked before `reported`.
        """
        if real <= 0 or raw < _WORTH_A_DOUBT:
            return False
        grown = raw - self._sent if self._sent else 0
        if grown >= _WORTH_A_DOUBT and real < self._real + grown // 20:
            return True
        return real < raw * 3 // _LEANEST * 4 // 5
