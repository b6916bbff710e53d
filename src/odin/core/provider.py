"""How a model is asked: one request, one stream of pieces.

A provider has one required method. A pool of keys, the offline planner and a recorded session are providers too.
"""

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

from msgspec import Struct

from odin.core.message import Message, StopReason, Usage

ToolStyle = Literal["native", "json"]
"""How a model calls tools: by the API's own tool calls, or by the planner's JSON contract."""

ToolStyleSetting = Literal["native", "json", "auto"]
"""What is known of a model's style. With `auto` it is asked natively and watched for calls written as text."""


class ToolSpec(Struct, frozen=True):
    """What the model is told about one tool."""

    name: str
    description: str
    schema: dict[str, Any]


class ModelInfo(Struct, frozen=True):
    """What is known of one model. Prices are USD per million tokens; 0 means unknown, unless it is `free`."""

    id: str
    provider: str = ""
    context: int = 0
    max_output: int = 0
    price_input: float = 0.0
    price_output: float = 0.0
    price_cache_read: float = 0.0
    price_cache_write: float = 0.0
    tools: ToolStyleSetting = "auto"
    thinking: bool = False
    images: bool = False
    free: bool = False
    calls_in_thinking: bool | None = None
    """Whether calls that are written into its reasoning are run. None: only when the reply has nothing else."""

    @property
    def has_price(self) -> bool:
        """Whether it is known what a call costs."""
        return self.free or self.price_input > 0 or self.price_output > 0

    def cost_of(self, usage: Usage) -> float:
        """USD for one call. Cached input is billed at its own price only."""
        return (
            usage.input * self.price_input
            + (usage.output + usage.reasoning) * self.price_output
            + usage.cache_read * self.price_cache_read
            + usage.cache_write * self.price_cache_write
        ) / 1_000_000


class Request(Struct, frozen=True):
    """Everything one model call depends on.

    `system` is a list of blocks so that an identity block can stand first where an API wants one. `schema` asks for a
    JSON answer of that shape instead of prose. `thinking` is the reasoning budget in tokens, 0 for none. `images` says
    that the model can be shown those of the results; otherwise it reads that there are some.
    """

    model: str
    messages: tuple[Message, ...]
    system: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    temperature: float | None = None
    thinking: int = 0
    schema: dict[str, Any] | None = None
    images: bool = False


class TextChunk(Struct, frozen=True, tag="text"):
    text: str


class ThinkingChunk(Struct, frozen=True, tag="thinking"):
    """`text` is a delta. `final`, when not empty, replaces what they added up to; `signature` closes the block."""

    text: str = ""
    signature: str = ""
    final: str = ""


class CallChunk(Struct, frozen=True, tag="call"):
    """A part of tool call number `index`: its id and name when they are known, then fragments of its JSON arguments.

    `done` says that the arguments are complete.
    """

    index: int
    id: str = ""
    name: str = ""
    json: str = ""
    done: bool = False


class UsageChunk(Struct, frozen=True, tag="usage"):
    """What the call has cost so far. A later piece replaces an earlier one."""

    usage: Usage


class StopChunk(Struct, frozen=True, tag="stop"):
    """The last piece of every complete reply. A stream that ends without it was cut."""

    reason: StopReason
    model: str = ""


class WaitChunk(Struct, frozen=True, tag="wait"):
    """How far the connection is: connecting, waiting_headers, waiting_token."""

    activity: str


class RollbackChunk(Struct, frozen=True, tag="rollback"):
    """Forget all pieces so far: the reply starts again (another key, another model, another tool style)."""

    reason: str


class RateLimitChunk(Struct, frozen=True, tag="limits"):
    """What the answer's headers say is left of the provider's rate limits; -1 for what they do not tell."""

    requests_left: int = -1
    requests_limit: int = -1
    tokens_left: int = -1
    tokens_limit: int = -1
    reset_s: float = 0.0


Chunk = TextChunk | ThinkingChunk | CallChunk | UsageChunk | StopChunk | WaitChunk | RollbackChunk | RateLimitChunk


class Provider(Protocol):
    name: str

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Ask the model. Raises a named ProviderError; never retries by itself."""
        ...

    async def close(self) -> None: ...
