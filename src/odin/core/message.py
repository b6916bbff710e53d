"""Messages between user, model and tools, independent of any provider.

Every wire format translates from these types, so a conversation can continue with another provider at any point.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "unfinished"]
"""`unfinished`: the model said that the task is not done, but called no tool."""


class Text(Struct, frozen=True, tag="text"):
    text: str


class Thinking(Struct, frozen=True, tag="thinking"):
    """Reasoning shown by the model. `signature` is opaque provider data needed to send it back."""

    text: str
    signature: str = ""


class ToolCall(Struct, frozen=True, tag="call", omit_defaults=True):
    """A request to run a tool. `signature` is opaque provider data that must be sent back with the call."""

    id: str
    name: str
    args: dict[str, Any]
    signature: str = ""


class Image(Struct, frozen=True, omit_defaults=True):
    """An image stored in a file, to keep the log small. `media_type` is image/png, jpeg, gif or webp.

    `name` is the display name, if it differs from the file name.
    """

    path: str
    media_type: str
    width: int = 0
    height: int = 0
    name: str = ""


def detect_image_kind(head: bytes) -> str:
    """Return the image format of data that starts with these bytes (12 suffice), or "" if models do not accept it."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    return "webp" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else ""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """The result of a call. No model sees `is_denied` and `error_kind`, the class of the error: `text` says it."""

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    is_denied: bool = False
    error_kind: str = ""


CACHED_FILES_NOTE = "Cached files: "
ENVIRONMENT_NOTE = "Working directory: "
"""How the notes about the cached files and about the environment start."""


PromptOrigin = Literal["user", "odin", "checks"]
"""Who wrote the text of a prompt: Odin adds notes, also about the project's checks that failed after a change."""


class PromptMessage(Struct, frozen=True, tag="user", omit_defaults=True):
    """A prompt. `notes` is text Odin adds for the model: mode, environment, changes since the last request.

    `images` are the images attached by the user. No model sees `origin`.
    """

    text: str
    notes: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    origin: PromptOrigin = "user"


class ReplyMessage(Struct, frozen=True, tag="assistant"):
    """A complete reply. Its thinking is sent back only to the same `provider`, to models that can read it."""

    parts: tuple[Text | Thinking | ToolCall, ...]
    provider: str = ""
    model: str = ""
    stop: StopReason = "end_turn"
    interrupted: bool = False

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def thinking(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Thinking))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class ToolMessage(Struct, frozen=True, tag="tool"):
    """The results of one reply's tool calls, in call order, and Odin's notes for the model."""

    results: tuple[ToolResult, ...]
    notes: tuple[str, ...] = ()


Message = PromptMessage | ReplyMessage | ToolMessage


class Usage(Struct, frozen=True):
    """Tokens of one or more model requests. The five kinds do not overlap; their sum is the size of the context."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write + self.reasoning

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )


class BilledUsage(Usage, frozen=True):
    """The tokens of one request of which the provider says what it has cost."""

    billed_usd: float = 0.0


MAX_IMAGES = 5
MAX_IMAGE_BYTES = 5_000_000


class Attachment(Struct, frozen=True, omit_defaults=True):
    """A file, or some lines of it, that comes with a prompt.

    The session reads `path` from line `first` to `last`; 0 leaves that end open. With `data` the content itself is
    attached, for example from a clipboard, and `path` is only its name. In events such content has been saved to a file
    of the session, and `name` is the display name.
    """

    path: str
    first: int = 0
    last: int = 0
    data: bytes = b""
    media_type: str = ""
    name: str = ""


T = TypeVar("T")


class HistoryFold(Generic[T]):
    """Folds a growing history into a value. Messages are immutable, so each is visited only once.

    `make` returns the value of an empty history; `add` returns the value after one more message.
    """

    def __init__(self, make: Callable[[], T], add: Callable[[T, Message], T]) -> None:
        self._make = make
        self._add = add
        self._messages: Sequence[Message] = ()
        self._value = make()

    def update(self, messages: Sequence[Message]) -> T:
        """Return the value of this history, from scratch only if it does not extend the previous one."""
        known = len(self._messages)
        if not is_extension_of(messages, self._messages):
            known, self._value = 0, self._make()
        self._messages = ()
        for message in messages[known:]:
            self._value = self._add(self._value, message)
        self._messages = messages
        return self._value


def is_extension_of(messages: Sequence[Message], earlier: Sequence[Message]) -> bool:
    """True if a history starts with the very messages of an earlier one."""
    return len(earlier) <= len(messages) and all(map(is_, earlier, messages))


def find_failed_calls(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the tool calls whose results are errors."""
    results = (result for message in messages if isinstance(message, ToolMessage) for result in message.results)
    return {result.call_id for result in results if result.is_error}
