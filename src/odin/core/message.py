"""What is said between the user, the model and the tools, in no provider's dialect.

Every wire adapter translates from these shapes, so a history can be continued with another provider at any point.

What a person puts beside the words of a prompt: a file, some lines of it, a picture.
"""

from typing import Any, Literal

from msgspec import Struct

StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal"]


class Text(Struct, frozen=True, tag="text"):
    text: str


class Thinking(Struct, frozen=True, tag="thinking"):
    """Reasoning the model showed. `signature` is opaque provider data without which it cannot be replayed."""

    text: str
    signature: str = ""


class ToolCall(Struct, frozen=True, tag="call"):
    id: str
    name: str
    args: dict[str, Any]


class Image(Struct, frozen=True, omit_defaults=True):
    """A picture kept in a file, so that the log stays small. `media_type` is image/png, jpeg, gif or webp.

    `name` is what people call it, where that is not the name of the file.
    """

    path: str
    media_type: str
    width: int = 0
    height: int = 0
    name: str = ""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    call_id: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


class PromptMessage(Struct, frozen=True, tag="user", omit_defaults=True):
    """A prompt. `notes` are what Odin tells the model beside it: mode, environment, what changed since.

    `images` are those that a person put beside the words.
    """

    text: str
    notes: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()


class ReplyMessage(Struct, frozen=True, tag="assistant"):
    """One finished reply. `provider` and `model` say who may be shown its thinking again."""

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
    """The results of one reply's calls, in the order of the calls, with what Odin tells the model beside them."""

    results: tuple[ToolResult, ...]
    notes: tuple[str, ...] = ()


Message = PromptMessage | ReplyMessage | ToolMessage


class Usage(Struct, frozen=True):
    """Tokens of one or more model calls. The five kinds never overlap, so their sum is what the context holds."""

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


MAX_IMAGES = 5
MAX_IMAGE_BYTES = 5_000_000


class Attachment(Struct, frozen=True, omit_defaults=True):
    """`path` is read where the session runs, from line `first` to line `last`; 0 leaves that end open.

    With `data` the bytes come along, as from a clipboard, and `path` is only what they are called. In what a session
    tells they are a file of its own by then, and `name` is what they are called.
    """

    path: str
    first: int = 0
    last: int = 0
    data: bytes = b""
    media_type: str = ""
    name: str = ""
