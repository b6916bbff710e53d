"""Estimates the tokens of a request, and learns the context windows of models.

No tokenizer is available for every model, so text is measured by its length, rather too high than too low, and the
estimate is calibrated by what the model last reported. Prose and code have three to five characters per token, base64
and minified code fewer, and a non-ASCII character may take one and a half tokens. Messages are immutable, so each is
measured once.
"""

import msgspec

from odin.core.message import (
    HistoryFold,
    Image,
    Message,
    PromptMessage,
    ReplyMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
)
from odin.core.provider import ModelInfo, ToolSpec

IMAGE_TOKENS = 1_600
"""Upper bound for one image: APIs scale larger ones down."""

_MESSAGE_TOKENS = 10
_PART_TOKENS = 12
_DENSE_WORD_CHARS = 12
"""Text with a longer average word is neither prose nor readable code."""

_SHORT_CHARS = 200
_MIN_DOUBTED_TOKENS = 2_000
_MAX_CHARS_PER_TOKEN = 8
"""Over a whole conversation, no tokenizer gets more characters into a token."""


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text, rather too high than too low."""
    count = len(text)
    dense = count > _SHORT_CHARS and (text.count(" ") + text.count("\n")) * _DENSE_WORD_CHARS < count
    plain = count * 5 // 8 if dense else count // 3
    if text.isascii():
        return plain + 1
    wide = len(text.encode("utf-8", "surrogatepass")) - count
    return plain + wide * 3 // 5 + 1


def count_message_tokens(message: Message) -> int:
    if isinstance(message, PromptMessage):
        notes = sum(_PART_TOKENS + tokens_of(note) for note in message.notes)
        return _MESSAGE_TOKENS + tokens_of(message.text) + notes + IMAGE_TOKENS * len(message.images)
    if isinstance(message, ReplyMessage):
        return _MESSAGE_TOKENS + sum(_PART_TOKENS + _count_part_tokens(part) for part in message.parts)
    results = sum(
        _PART_TOKENS + tokens_of(result.text) + IMAGE_TOKENS * len(result.images) for result in message.results
    )
    return _MESSAGE_TOKENS + results + sum(_PART_TOKENS + tokens_of(note) for note in message.notes)


def _count_part_tokens(part: Text | Thinking | ToolCall) -> int:
    if isinstance(part, ToolCall):
        return tokens_of(part.name) + tokens_of(encode_json_text(part.args))
    return tokens_of(part.text) + (tokens_of(part.signature) if isinstance(part, Thinking) else 0)


def encode_json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        return repr(value)


def images_of(message: Message) -> tuple[Image, ...]:
    if isinstance(message, PromptMessage):
        return message.images
    return tuple(image for one in message.results for image in one.images) if isinstance(message, ToolMessage) else ()


def _add_size(size: tuple[int, int], message: Message) -> tuple[int, int]:
    return size[0] + count_message_tokens(message), size[1] + len(images_of(message))


class TokenEstimator:
    """Estimates the size of one agent's requests. Each message is measured once."""

    def __init__(self) -> None:
        self._sizes = HistoryFold[tuple[int, int]](lambda: (0, 0), _add_size)
        self._fixed_part: tuple[tuple[str, ...], tuple[ToolSpec, ...], int] = ((), (), 0)
        self._sent = 0
        self._reported = 0

    def measure_messages(self, messages: tuple[Message, ...], max_images: int = 0) -> int:
        """The raw tokens of these messages, with at most `max_images` images. Only new messages are measured."""
        tokens, images = self._sizes.update(messages)
        return tokens - IMAGE_TOKENS * max(0, images - max_images)

    def measure_fixed(self, system: tuple[str, ...], tools: tuple[ToolSpec, ...]) -> int:
        """The raw tokens of system blocks and tools, which rarely change."""
        if self._fixed_part[0] is not system or self._fixed_part[1] is not tools:
            size = sum(_PART_TOKENS + tokens_of(block) for block in system) + sum(
                _PART_TOKENS
                + tokens_of(tool.name)
                + tokens_of(tool.description)
                + tokens_of(encode_json_text(tool.schema))
                for tool in tools
            )
            self._fixed_part = (system, tools, size)
        return self._fixed_part[2]

    @property
    def is_calibrated(self) -> bool:
        return self._reported > 0

    @property
    def fixed_tokens(self) -> int:
        """The raw tokens of the system blocks and tools of the last request."""
        return self._fixed_part[2]

    def estimate(self, raw: int) -> int:
        """Estimate the real tokens of a request from its raw size.

        A request that grew counts as the last reported size plus the raw size of the addition. One that shrank is
        scaled by the last ratio of reported to raw size, plus a margin of 10 %.
        """
        if not self._reported or not self._sent:
            return raw
        if raw >= self._sent:
            return self._reported + (raw - self._sent)
        return min(raw, int(raw * min(1.0, self._reported / self._sent * 1.1)))

    def calibrate(self, raw: int, real: int) -> None:
        """Learn that a request of raw size `raw` took `real` tokens."""
        if raw and real:
            self._sent, self._reported = raw, real

    def reset(self) -> None:
        """Forget the calibration, because another model counts differently."""
        self._sent = self._reported = 0

    def is_truncated(self, raw: int, real: int) -> bool:
        """True if a server that counted `real` tokens must have truncated a request of raw size `raw`.

        The count is far too low for the text, or hardly higher than last time although much was added. Must be called
        before `calibrate`.
        """
        if real <= 0 or raw < _MIN_DOUBTED_TOKENS:
            return False
        grown = raw - self._sent if self._sent else 0
        if grown >= _MIN_DOUBTED_TOKENS and real < self._reported + grown // 20:
            return True
        return real < raw * 3 // _MAX_CHARS_PER_TOKEN * 4 // 5


class ContextWindows:
    """The context windows of a session's models: as known, or smaller if the server refused more. 0: unknown."""

    def __init__(self) -> None:
        self._learned: dict[tuple[str, str], int] = {}

    def window_of(self, info: ModelInfo) -> int:
        learned = self._learned.get((info.provider, info.id), 0)
        return min(info.context, learned) if info.context and learned else info.context or learned

    def learn(self, info: ModelInfo, limit: int) -> bool:
        """Record that the server refuses longer requests. False if the known window is not larger."""
        known = self.window_of(info)
        if limit <= 0 or (known and known <= limit):
            return False
        self._learned[(info.provider, info.id)] = limit
        return True
