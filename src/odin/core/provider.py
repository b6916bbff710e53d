"""The provider protocol: one request in, one stream of chunks out, and the builder that makes a reply of them.

A pool of keys, the offline planner and a recorded session are providers, too. Web pages and search engines, which Odin
reads through the same HTTP client, have their protocols here as well.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Literal, Protocol, cast, get_args

import msgspec
from msgspec import Struct

from odin.core.lazy_pattern import compile_lazily
from odin.core.message import BilledUsage, Message, ReplyMessage, StopReason, Text, Thinking, ToolCall, Usage

ToolStyle = Literal["native", "json"]
"""How a model calls tools: with the API's native tool calls, or with the JSON contract."""

ToolStyleSetting = Literal["native", "json", "auto"]
"""The known tool style of a model. `auto`: request native calls and also watch for calls written as text."""


EditFormat = Literal["replace", "patch"]
"""How a model edits files: with EditTool and its like, or with apply_patch."""

EditFormatSetting = Literal["auto", "replace", "patch"]

Strategy = Literal["tools", "files"]
"""How a model works: it calls tools, or Odin looks for it and it writes whole files (`providers/whole_files`)."""

StrategySetting = Literal["auto", "tools", "files"]

SMALL_MODEL_PARAMETERS = 4e9
"""Models below this size rarely call tools correctly, whatever their template says."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model reasons before it answers. Which ones a model accepts depends on the model."""

EFFORTS: tuple[Effort, ...] = get_args(Effort)


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """The description of one tool for the model.

    `freeform` names its only argument, a text that some APIs can pass without JSON around it; "" for other tools.
    """

    name: str
    description: str
    schema: dict[str, Any]
    freeform: str = ""


class RequestOptions(Struct, frozen=True):
    """The options of a variant of a model. What is not set comes from the configuration."""

    effort: str = ""
    thinking: int | None = None
    temperature: float | None = None
    max_tokens: int = 0
    service_tier: str = ""


class PriceStep(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The prices of requests whose prompt is longer than `above` tokens, in USD per million tokens."""

    above: int
    price_input: float
    price_output: float
    price_cache_read: float = 0.0
    price_cache_write: float = 0.0


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
    edit_format: EditFormat = "replace"
    variant: str = ""
    options: RequestOptions = RequestOptions()
    takes_effort: bool = True
    """False if the model is known not to reason."""
    strategy: Strategy = "tools"
    parameters: float = 0.0
    """The number of parameters; 0 if unknown."""
    takes_instructions: bool = True
    """False if it carries out prompts of the user only: no reminders, no summaries."""
    price_steps: tuple[PriceStep, ...] = ()
    """Other prices of long prompts, the shortest first."""

    @property
    def is_small(self) -> bool:
        """True if the model gets few tools and short texts, however large its context window is."""
        return self.strategy == "files" or 0 < self.parameters < SMALL_MODEL_PARAMETERS

    @property
    def ref(self) -> str:
        """The full name: `provider/model@variant`."""
        name = f"{self.provider}/{self.id}" if self.provider else self.id
        return f"{name}@{self.variant}" if self.variant else name

    @property
    def has_price(self) -> bool:
        """True if the cost of a request can be computed."""
        return self.free or self.price_input > 0 or self.price_output > 0

    def calculate_cost(self, usage: Usage) -> float:
        """Return the cost of one request in USD: what the provider says, else by the prices.

        Cached input is billed at its own price only; what is written to a cache without a price for that, as other
        input.
        """
        if isinstance(usage, BilledUsage):
            return usage.billed_usd
        prompt = usage.input + usage.cache_read + usage.cache_write
        prices = next((step for step in reversed(self.price_steps) if prompt > step.above), self)
        return (
            usage.input * prices.price_input
            + (usage.output + usage.reasoning) * prices.price_output
            + usage.cache_read * prices.price_cache_read
            + usage.cache_write * (prices.price_cache_write or prices.price_input)
        ) / 1_000_000


class Request(Struct, frozen=True):
    """Everything one model request depends on.

    `system` is a list of blocks, because some APIs require an identity block first. `schema` asks for a JSON answer of
    that shape; `strict`: the API has to enforce it. `thinking` is the reasoning budget in tokens, 0 for none; `effort`
    names it for APIs that take a name. `images`: the model accepts images; otherwise text replaces them. `agent` is the
    agent of the `session` that asks; neither is sent, but for a hash of both by which a server may find its cache.
    `max_output` is the most that the model can write, reasoning included; 0 if unknown. `brief`: the answer needs no
    reasoning, so the model is told to reason as little as it can; what that needs comes on top of `max_tokens`.
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
    agent: str = ""
    effort: str = ""
    service_tier: str = ""
    max_output: int = 0
    brief: bool = False
    strict: bool = False
    session: str = ""


class TextChunk(Struct, frozen=True, tag="text"):
    text: str


class ThinkingChunk(Struct, frozen=True, tag="thinking"):
    """`text` is a delta. `final`, if not empty, replaces the deltas so far; `signature` closes the block."""

    text: str = ""
    signature: str = ""
    final: str = ""


class CallChunk(Struct, frozen=True, tag="call"):
    """A part of tool call number `index`: its id and name once known, then fragments of its JSON arguments.

    `done`: the arguments are complete. `signature` is opaque provider data that belongs to the call.
    """

    index: int
    id: str = ""
    name: str = ""
    json: str = ""
    done: bool = False
    signature: str = ""


class UsageChunk(Struct, frozen=True, tag="usage"):
    """The usage so far. A later chunk replaces an earlier one."""

    usage: Usage


class StopChunk(Struct, frozen=True, tag="stop"):
    """The last chunk of every complete reply. A stream that ends without it was cut off.

    `note` is a sentence for the user if the reply ended early.
    """

    reason: StopReason
    model: str = ""
    note: str = ""


class SentPrompt(Struct, frozen=True):
    """Hashes of what a request sends, in the order in which the caches of prompts compare it.

    `settings` are the options that are part of the prompt. `messages` has one for each message: of it and all before.
    """

    tools: int
    system: int
    settings: int
    messages: tuple[int, ...]


class WaitChunk(Struct, frozen=True, tag="wait"):
    """The state of the connection: connecting, retrying_key, waiting_headers, waiting_token.

    `sent` comes with the last of them, from providers that say it.
    """

    activity: str
    sent: SentPrompt | None = None


class RollbackChunk(Struct, frozen=True, tag="rollback"):
    """Discard all chunks so far: the reply starts again with another key, model or tool style."""

    reason: str


class RateLimitChunk(Struct, frozen=True, tag="limits"):
    """The remaining rate limits from the response headers; -1 if not reported. `key` is the end of the key they are
    about."""

    requests_left: int = -1
    requests_limit: int = -1
    tokens_left: int = -1
    tokens_limit: int = -1
    reset_s: float = 0.0
    key: str = ""

    @property
    def known_for_s(self) -> float:
        """The seconds until they say nothing any more; a minute if the server does not say when they are reset."""
        return self.reset_s or 60.0


Chunk = TextChunk | ThinkingChunk | CallChunk | UsageChunk | StopChunk | WaitChunk | RollbackChunk | RateLimitChunk


class ThinkingLosses(Struct):
    """Thinking that a model was not shown again.

    `left_out` are the replies of the last request that went without theirs, because something before them had changed.
    `dropped` are the blocks that the API left out, and `refused` is the last request that it refused because of them.
    """

    left_out: int = 0
    dropped: int = 0
    refused: str = ""


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


class MalformedCall(msgspec.Struct, frozen=True):
    """A tool call whose arguments are not a JSON object. It never runs."""

    name: str
    json: str


class Reply(msgspec.Struct, frozen=True):
    """A complete reply. `note` is a sentence for the user if it ended early."""

    message: ReplyMessage
    usage: Usage
    malformed_calls: tuple[MalformedCall, ...] = ()
    note: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.message.text.strip() and not self.message.calls and not self.malformed_calls


class _PartialCall:
    __slots__ = ("fragments", "id", "name", "signature")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.signature = ""
        self.fragments: list[str] = []


class ReplyBuilder:
    """Collects chunks. Blocks keep the order of their first chunk."""

    def __init__(self, provider: str = "", model: str = "") -> None:
        self._provider = provider
        self._model = model
        self.reset()

    def reset(self) -> None:
        self._order: list[tuple[str, int]] = []
        self._texts: dict[int, list[str]] = {}
        self._thinking_blocks: dict[int, tuple[list[str], str]] = {}
        self._calls: dict[int, _PartialCall] = {}
        self.usage = Usage()
        self.stop: StopReason | None = None
        self._note = ""

    @property
    def has_started(self) -> bool:
        return bool(self._order)

    def add(self, chunk: Chunk) -> None:
        if isinstance(chunk, TextChunk):
            self._add_text(chunk.text)
        elif isinstance(chunk, CallChunk):
            self._add_call(chunk)
        elif isinstance(chunk, ThinkingChunk):
            self._add_thinking(chunk)
        elif isinstance(chunk, UsageChunk):
            self.usage = chunk.usage
        elif isinstance(chunk, StopChunk):
            self.stop, self._note = chunk.reason, chunk.note
            self._model = chunk.model or self._model
        elif isinstance(chunk, RollbackChunk):
            self.reset()

    def count_chars(self) -> int:
        """Return the length of everything that has arrived: text, reasoning and arguments."""
        texts = [*self._texts.values(), *(fragments for fragments, _ in self._thinking_blocks.values())]
        calls = [[call.name, *call.fragments] for call in self._calls.values()]
        return sum(len(fragment) for fragments in (*texts, *calls) for fragment in fragments)

    def get_arguments(self, index: int) -> str:
        return "".join(self._calls[index].fragments)

    def get_call_name(self, index: int) -> str:
        return self._calls[index].name

    def finish(self, *, interrupted: bool = False) -> Reply:
        """Return the complete reply. After an interrupt keep only the text: a half-received call never runs."""
        parts: list[Text | Thinking | ToolCall] = []
        bad: list[MalformedCall] = []
        for kind, index in self._order:
            if kind == "text":
                text = "".join(self._texts[index])
                if text:
                    parts.append(Text(text))
            elif kind == "thinking":
                fragments, signature = self._thinking_blocks[index]
                parts.append(Thinking("".join(fragments), signature))
            elif kind == "call" and not interrupted:
                self._finish_call(self._calls[index], parts, bad)
        stop = self.stop or "end_turn"
        message = ReplyMessage(tuple(parts), self._provider, self._model, stop, interrupted)
        return Reply(message, self.usage, tuple(bad), self._note)

    def _finish_call(
        self, call: _PartialCall, parts: list[Text | Thinking | ToolCall], bad: list[MalformedCall]
    ) -> None:
        raw = "".join(call.fragments)
        args = parse_arguments(raw)
        if args is None or not call.name or (self.stop == "max_tokens" and not raw.strip()):
            bad.append(MalformedCall(call.name, raw))
        else:
            parts.append(ToolCall(call.id, call.name, args, call.signature))

    def _add_text(self, text: str) -> None:
        if not text:
            return
        if not self._order or self._order[-1][0] != "text":
            self._order.append(("text", len(self._texts)))
            self._texts[len(self._texts)] = []
        self._texts[self._order[-1][1]].append(text)

    def _add_thinking(self, chunk: ThinkingChunk) -> None:
        if not self._order or self._order[-1][0] != "thinking":
            if not (chunk.text or chunk.final or chunk.signature):
                return
            self._order.append(("thinking", len(self._thinking_blocks)))
            self._thinking_blocks[len(self._thinking_blocks)] = ([], "")
        index = self._order[-1][1]
        fragments, signature = self._thinking_blocks[index]
        if chunk.text:
            fragments.append(chunk.text)
        if chunk.final:
            fragments[:] = [chunk.final]
        self._thinking_blocks[index] = (fragments, chunk.signature or signature)
        if chunk.signature:
            self._order.append(("closed", index))

    def _add_call(self, chunk: CallChunk) -> None:
        call = self._calls.get(chunk.index)
        if call is None:
            call = self._calls[chunk.index] = _PartialCall()
            self._order.append(("call", chunk.index))
        call.id = call.id or chunk.id
        call.name = call.name or chunk.name
        call.signature = call.signature or chunk.signature
        if chunk.json:
            call.fragments.append(chunk.json)


_SURROGATE = compile_lazily("[\ud800-\udfff]")


_ESCAPE = compile_lazily(r"(?s)\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})?")


def _repair_escape(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > 1 else "\\\\"


_MAX_DEPTH = 100
"""Maximum nesting of JSON arguments. Deeper values can be decoded here but not written to the log."""


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return the arguments as a dict, or None if they are not a JSON object.

    An empty string means no arguments. Lone surrogates become U+FFFD and NaN becomes null. A backslash that begins no
    escape stands for itself: models write LaTeX, patterns and paths of Windows so, and it has no other meaning.
    """
    if not raw.strip():
        return {}
    if _is_too_deep(raw):
        return None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        import json

        try:
            value = _replace_surrogates(json.loads(_ESCAPE.sub(_repair_escape, raw), parse_constant=lambda name: None))
        except ValueError:
            return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_too_deep(raw: str) -> bool:
    if raw.count("[") + raw.count("{") <= _MAX_DEPTH:
        return False
    depth, quoted = 0, False
    for found in re.finditer(r'(?s)\\.|["\[\]{}]', raw):
        mark = found[0]
        if mark == '"':
            quoted = not quoted
        elif not quoted and len(mark) == 1:
            depth += 1 if mark in "[{" else -1
            if depth > _MAX_DEPTH:
                return True
    return False


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            _replace_surrogates(key): _replace_surrogates(item) for key, item in cast("dict[str, Any]", value).items()
        }
    return value


class Compactor(Protocol):
    """Decides when the older part of a conversation is summarized, and writes the summary.

    Programs that embed Odin may bring their own. The session decides which messages stay, keeps the archive, and makes
    sure every tool call keeps its result.
    """

    def should_compact(self, tokens: int, window: int) -> bool:
        """True if it is time. `tokens` is the size of the next request; `window` is 0 if unknown."""
        ...

    async def compact(self, messages: tuple[Message, ...], earlier: str) -> str:
        """Return a summary of `messages` and of the `earlier` summary. It becomes part of the system prompt."""
        ...


class NoCompactor:
    """Never summarizes: the conversation grows until the model rejects it."""

    def should_compact(self, tokens: int, window: int) -> bool:
        return False

    async def compact(self, messages: tuple[Message, ...], earlier: str) -> str:
        return ""


SLICE_S = 0.004


class TimeSlice:
    """An async iterator that never blocks starves the event loop; yield after 4 ms of work."""

    def __init__(self, after: float = SLICE_S) -> None:
        self._after = after
        self._deadline = time.monotonic() + after

    async def maybe_yield(self) -> None:
        """Call after each item; lets other tasks run if this one has used up its time slice."""
        if time.monotonic() >= self._deadline:
            await asyncio.sleep(0)
            self._deadline = time.monotonic() + self._after


# --- the web ---


class FetchResponse(Struct, frozen=True):
    """A web server's response. `location` is a redirect to another host, which was not followed."""

    url: str
    status: int
    content_type: str
    body: bytes
    complete: bool = True
    location: str = ""


Fetch = Callable[..., Awaitable[FetchResponse]]
"""fetch(url, *, headers, limit): GET, following redirects within the host. Raises ProviderError."""


class SearchHit(Struct, frozen=True):
    title: str
    url: str
    snippet: str = ""


class SearchEngine(Protocol):
    """A web search engine."""

    def make_search_url(self, query: str) -> str:
        """Return the URL of the search, without secrets."""
        ...

    async def search(self, query: str, count: int) -> tuple[SearchHit, ...]:
        """Return the best pages, at most `count`. Raises ProviderError."""
        ...
