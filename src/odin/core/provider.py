"""The provider protocol: one request in, one stream of chunks out.

A pool of keys, the offline planner and a recorded session are providers, too.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from odin.core.message import Message, StopReason, Usage

ToolStyle = Literal["native", "json"]
"""How a model calls tools: with the API's native tool calls, or with the JSON contract."""

ToolStyleSetting = Literal["native", "json", "auto"]
"""The known tool style of a model. `auto`: request native calls and also watch for calls written as text."""


class ToolSpec(Struct, frozen=True):
    """The description of one tool for the model."""

    name: str
    description: str
    schema: dict[str, Any]


class ModelInfo(Struct, frozen=True):
    """A model's properties. Prices are USD per million tokens; 0 means unknown, unless the model is `free`."""

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
    """Whether tool calls written inside the reasoning are run. None: only if the reply has nothing else."""

    @property
    def has_price(self) -> bool:
        """True if the cost of a request can be computed."""
        return self.free or self.price_input > 0 or self.price_output > 0

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of one request in USD. Cached input is billed at its own price only."""
        return (
            usage.input * self.price_input
            + (usage.output + usage.reasoning) * self.price_output
            + usage.cache_read * self.price_cache_read
            + usage.cache_write * self.price_cache_write
        ) / 1_000_000


class Request(Struct, frozen=True):
    """Everything one model request depends on.

    `system` is a list of blocks, because some APIs require an identity block first. `schema` asks for a JSON answer of
    that shape. `thinking` is the reasoning budget in tokens, 0 for none. `images`: the model accepts images; otherwise
    it reads that there are some.
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
    """`text` is a delta. `final`, if not empty, replaces the deltas so far; `signature` closes the block."""

    text: str = ""
    signature: str = ""
    final: str = ""


class CallChunk(Struct, frozen=True, tag="call"):
    """A part of tool call number `index`: its id and name once known, then fragments of its JSON arguments.

    `done`: the arguments are complete.
    """

    index: int
    id: str = ""
    name: str = ""
    json: str = ""
    done: bool = False


class UsageChunk(Struct, frozen=True, tag="usage"):
    """The usage so far. A later chunk replaces an earlier one."""

    usage: Usage


class StopChunk(Struct, frozen=True, tag="stop"):
    """The last chunk of every complete reply. A stream that ends without it was cut off."""

    reason: StopReason
    model: str = ""


class WaitChunk(Struct, frozen=True, tag="wait"):
    """The state of the connection: connecting, waiting_headers, waiting_token."""

    activity: str


class RollbackChunk(Struct, frozen=True, tag="rollback"):
    """Discard all chunks so far: the reply starts again with another key, model or tool style."""

    reason: str


class RateLimitChunk(Struct, frozen=True, tag="limits"):
    """The remaining rate limits from the response headers; -1 if not reported."""

    requests_left: int = -1
    requests_limit: int = -1
    tokens_left: int = -1
    tokens_limit: int = -1
    reset_s: float = 0.0


Chunk = TextChunk | ThinkingChunk | CallChunk | UsageChunk | StopChunk | WaitChunk | RollbackChunk | RateLimitChunk


class Provider(Protocol):
    name: str

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Send the request. Raise a ProviderError subclass on failure; never retry."""
        ...

    async def close(self) -> None: ...


def open_stream(provider: Provider, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
    """Return a provider's stream that closes together with ours, so that an interrupt reaches the connection."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return aclosing(cast("AsyncGenerator[Chunk]", stream))
    return nullcontext(stream)
