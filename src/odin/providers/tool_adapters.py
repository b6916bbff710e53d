"""Chooses how a model is asked for tool calls: natively, or with the JSON contract, depending on what it can do.

Also finds calls that a model wrote into its reasoning: some reasoning models call a tool without leaving their
thinking, and the reply would count as empty. The contract and the text parser are imported on demand.
"""

import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from odin.core.errors import ProviderError, UnreadableCall
from odin.core.message import HistoryFold, Message, ReplyMessage
from odin.core.provider import (
    CallChunk,
    Chunk,
    ModelInfo,
    Provider,
    Request,
    RollbackChunk,
    StopChunk,
    TextChunk,
    ThinkingChunk,
    ToolSpec,
    ToolStyle,
    ToolStyleSetting,
    WaitChunk,
    open_stream,
)
from odin.providers.payload import encode_arguments, get_written_id_prefix

if TYPE_CHECKING:
    from odin.providers.json_contract import JsonContract
    from odin.providers.text_calls import TextCallFilter


_NO_TOOLS_PATTERN = (
    r"(not|n't) support\w* .*\b(tool|function)|\b(tool|function)\w*( \w+)? (is|are) not (support|enabled|available)"
    r"|requires? --jinja|--enable-auto-tool-choice|support tool use"
)


class AdaptiveTools:
    """Requests tool calls in the style a model understands.

    `native` and `json` are fixed. With `auto` native tools are used until the server says it has none, or the model
    writes a call as text; that call is run, and from then on the JSON contract is used.
    """

    def __init__(
        self,
        provider: Provider,
        style: ToolStyleSetting = "auto",
        *,
        on_style: Callable[[str, ToolStyle], None] = lambda model, style: None,
        temperature: float | None = 0.0,
        is_small: bool = False,
    ) -> None:
        self.name = provider.name
        self._provider = provider
        self._style: ToolStyleSetting = style
        self._on_style = on_style
        self._temperature = temperature
        self._is_small = is_small
        self._contract_models: set[str] = set()
        self._id_prefixes = HistoryFold[set[str]](set, _add_id_prefixes)

    @cached_property
    def _contract(self) -> "JsonContract":
        from odin.providers.json_contract import JsonContract

        return JsonContract(self._provider, temperature=self._temperature, numbered=not self._is_small)

    async def close(self) -> None:
        await self._provider.close()

    def choose_style(self, request: Request) -> ToolStyle:
        """Return the style for this request, from the model's properties and its earlier replies."""
        if self._style != "auto":
            return self._style
        return "json" if request.model in self._contract_models or self._has_written_calls(request) else "native"

    def _has_written_calls(self, request: Request) -> bool:
        """True if this model wrote a tool call as text earlier in the conversation."""
        return get_written_id_prefix(request.model) in self._id_prefixes.update(request.messages)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        if self.choose_style(request) == "native":
            watched = self._style == "auto" and bool(request.tools)
            rendered = False
            try:
                async with (
                    aclosing(self._stream_native(request))
                    if watched
                    else open_stream(self._provider, request) as chunks
                ):
                    async for chunk in chunks:
                        rendered = rendered or not isinstance(chunk, WaitChunk)
                        yield chunk
            except ProviderError as error:
                if rendered or not watched or not re.search(_NO_TOOLS_PATTERN, str(error), re.IGNORECASE):
                    raise
                self._switch_to_contract(request.model)
            else:
                return
        async with aclosing(self._contract.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _switch_to_contract(self, model: str) -> None:
        if model not in self._contract_models:
            self._contract_models.add(model)
            self._on_style(model, "json")

    async def _stream_native(self, request: Request) -> AsyncGenerator[Chunk]:
        """Pass a native reply through, extracting calls written in its text."""
        sieve: TextCallFilter | None = None
        native = False
        async with open_stream(self._provider, request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, WaitChunk):
                    yield chunk
                    continue
                sieve = sieve or _make_call_filter(request.tools)
                if isinstance(chunk, TextChunk) and not native:
                    text = sieve.feed(chunk.text)
                    if text:
                        yield TextChunk(text)
                elif isinstance(chunk, CallChunk) and not native:
                    native = True
                    if sieve.get_held_text():
                        yield TextChunk(sieve.get_held_text())
                    yield chunk
                elif isinstance(chunk, StopChunk) and not native:
                    from odin.providers.json_contract import finish_reply, parse_prose_reply

                    outcome = parse_prose_reply(sieve.get_held_text(), request.tools)
                    if outcome.calls:
                        self._switch_to_contract(request.model)
                    for last in finish_reply(outcome, chunk, request.model):
                        yield last
                else:
                    yield chunk


def _add_id_prefixes(prefixes: set[str], message: Message) -> set[str]:
    if isinstance(message, ReplyMessage):
        prefixes.update(f"{call.id.rpartition('_')[0]}_" for call in message.calls)
    return prefixes


def _make_call_filter(tools: tuple[ToolSpec, ...]) -> "TextCallFilter":
    """Created when the reply starts: by then the request has been sent."""
    from odin.providers.text_calls import TextCallFilter

    return TextCallFilter(tools)


_CALL_MARKERS = r"<(?:{})>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>"


class ReasoningCalls:
    """A provider around a provider that finds tool calls in the reasoning.

    `always` searches every reply that ends without a call; otherwise only replies without text.
    """

    def __init__(self, provider: Provider, *, always: bool = False) -> None:
        self.name = provider.name
        self._provider = provider
        self._always = always

    async def close(self) -> None:
        await self._provider.close()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        reply = _ReplySoFar()
        stream = self._provider.stream(request)
        closing = aclosing(cast("AsyncGenerator[Chunk]", stream)) if hasattr(stream, "aclose") else nullcontext(stream)
        async with closing as chunks:
            async for chunk in chunks:
                if isinstance(chunk, StopChunk) and self._should_search(reply, chunk, request):
                    for last in _finish_reply(reply, chunk, request.tools):
                        yield last
                else:
                    reply.add(chunk)
                    yield chunk

    def _should_search(self, reply: "_ReplySoFar", stop: StopChunk, request: Request) -> bool:
        silent = not reply.has_text and not reply.has_call
        return bool(request.tools and reply.thoughts and stop.reason == "end_turn") and (
            silent or (self._always and not reply.has_call)
        )


class _ReplySoFar:
    """The reasoning of a reply so far, and whether it has anything else."""

    def __init__(self) -> None:
        self.thoughts: list[str] = []
        self._block_start = 0
        self.has_text = False
        self.has_call = False

    def add(self, chunk: Chunk) -> None:
        if isinstance(chunk, ThinkingChunk):
            if chunk.text:
                self.thoughts.append(chunk.text)
            if chunk.final:
                self.thoughts[self._block_start :] = [chunk.final]
            if chunk.signature or chunk.final:
                self._block_start = len(self.thoughts)
        elif isinstance(chunk, TextChunk):
            self.has_text = self.has_text or bool(chunk.text.strip())
        elif isinstance(chunk, CallChunk):
            self.has_call = True
        elif isinstance(chunk, RollbackChunk):
            self.thoughts, self._block_start, self.has_text, self.has_call = [], 0, False, False


def _finish_reply(reply: _ReplySoFar, stop: StopChunk, tools: tuple[ToolSpec, ...]) -> list[Chunk]:
    """Return the calls and the stop chunk. Raise UnreadableCall if the only content is a call that cannot be parsed."""
    from odin.providers.text_calls import CALL_TAGS, find_calls

    thought = "".join(reply.thoughts)
    found = find_calls(thought, tools)
    if found.calls:
        calls = [
            CallChunk(index, f"thought_{os.urandom(6).hex()}", name, encode_arguments(args), done=True)
            for index, (name, args) in enumerate(found.calls)
        ]
        return [*calls, StopChunk("tool_use", stop.model)]
    if not reply.has_text and re.search(_CALL_MARKERS.format("|".join(CALL_TAGS)), thought):
        raise UnreadableCall("The model wrote a tool call into its reasoning that cannot be read.", "Ask it again.")
    return [stop]


# --- tools for small windows ---

SMALL_WINDOW = 16_384
MIDDLE_WINDOW = 32_768

_SMALL_TOOLSET: dict[str, tuple[str, ...]] = {
    "LS": ("path",),
    "Read": ("file_path", "offset", "limit"),
    "Grep": ("pattern", "path"),
    "ExecuteCommand": ("command",),
    "WriteFile": ("file_path", "content"),
    "EditTool": ("file_path", "old_string", "new_string", "replace_all"),
}
"""The tools offered to a small model, with the parameters it needs."""


_PLANNER_TOOLSET: dict[str, tuple[str, ...]] = {
    **_SMALL_TOOLSET,
    "Grep": ("pattern", "output_mode", "literal_text", "head_limit"),
    "MultiEditTool": ("file_path", "edits"),
    "Delete": ("paths", "reason"),
}
"""The tools that the planner of the `files` strategy calls. The model does not see them."""


def fit_tools(tools: tuple[ToolSpec, ...], brief: tuple[ToolSpec, ...], info: ModelInfo) -> tuple[ToolSpec, ...]:
    """Return the tools for a model.

    A small model, or one with a small context window, gets six everyday tools with few parameters; a medium window gets
    all tools described in one sentence. `brief` are the same tools as `tools` with short descriptions.
    """
    if info.strategy == "files":
        return tuple(_narrow_tool(tool, _PLANNER_TOOLSET[tool.name]) for tool in brief if tool.name in _PLANNER_TOOLSET)
    if not info.is_small and not 0 < info.context <= MIDDLE_WINDOW:
        return tools
    if not info.is_small and info.context > SMALL_WINDOW:
        return brief
    few = tuple(_narrow_tool(tool, _SMALL_TOOLSET[tool.name]) for tool in brief if tool.name in _SMALL_TOOLSET)
    return few or brief


def _narrow_tool(tool: ToolSpec, parameters: tuple[str, ...]) -> ToolSpec:
    properties: dict[str, Any] = tool.schema.get("properties", {})
    required: list[str] = tool.schema.get("required", [])
    kept = {name: child for name, child in properties.items() if name in parameters or name in required}
    return replace(tool, schema={**tool.schema, "properties": kept})
