"""Tools for models that cannot call them: the planner's JSON contract as a provider around a provider.

The model is told about the tools in plain text and answers with one JSON object (`explanation`, `taskCompleted`,
`executeTool`) that the server is asked to enforce. History goes out as plain messages in the same shape, so request
n+1 still starts with request n. `AdaptiveTools` (adaptive) decides which models are asked this way.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from odin.core.errors import BadRequest
from odin.core.provider import Chunk, Provider, Request, StopChunk, TextChunk, ToolSpec, WaitChunk
from odin.providers.adaptive import open_stream
from odin.providers.contract_reply import ContractReplyReader, finish_reply
from odin.providers.contract_request import (
    Strictness,
    build_contract_schema,
    build_instructions,
    find_repeated_tools,
    flatten_messages,
    list_editable_lines,
)

_STRICTNESS_LEVELS: tuple[Strictness, ...] = ("exact", "loose", "none")


class JsonContract:
    """Asks a model for the planner's JSON object and gives out what it means as ordinary pieces."""

    def __init__(self, provider: Provider, *, cwd: str = "", temperature: float | None = 0.0) -> None:
        self.name = provider.name
        self._provider = provider
        self._cwd = cwd
        self._temperature = temperature
        self._strictness = 0

    async def close(self) -> None:
        await self._provider.close()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        """A server that refuses the schema is asked again with a simpler one, and at last with none."""
        if not request.tools:
            async with open_stream(
                self._provider, replace(request, messages=flatten_messages(request.messages))
            ) as pieces:
                async for piece in pieces:
                    yield piece
            return
        for level in range(self._strictness, len(_STRICTNESS_LEVELS)):
            said = False
            try:
                async with aclosing(self._stream_once(request, _STRICTNESS_LEVELS[level])) as pieces:
                    async for piece in pieces:
                        if not said and not isinstance(piece, WaitChunk):
                            said = True
                            self._strictness = level
                        yield piece
            except BadRequest:
                if said or level == len(_STRICTNESS_LEVELS) - 1:
                    raise
            else:
                return

    async def _stream_once(self, request: Request, strictness: Strictness) -> AsyncGenerator[Chunk]:
        reader = ContractReplyReader(request.tools, self._cwd)
        async with open_stream(self._provider, self._build_request(request, strictness)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextChunk):
                    text = reader.feed(piece.text)
                    if text:
                        yield TextChunk(text)
                elif isinstance(piece, StopChunk):
                    for last in finish_reply(reader.finish(piece.reason == "max_tokens"), piece, request.model):
                        yield last
                else:
                    yield piece

    def _build_request(self, request: Request, strictness: Strictness) -> Request:
        temperature = self._temperature if request.temperature is None else request.temperature
        stale, lines = find_repeated_tools(request.messages), list_editable_lines(request.messages)
        enforced = tuple(tool for tool in request.tools if tool.name not in stale) or request.tools
        return replace(
            request,
            messages=flatten_messages(request.messages),
            system=(*request.system, build_instructions(request.tools)),
            tools=(),
            temperature=temperature,
            schema=None if strictness == "none" else build_contract_schema(enforced, strictness, lines),
        )


# --- few and short tools for small windows ---

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
"""The tools a small model works with, and those of their parameters that it needs."""


def fit_tools_to_window(tools: tuple[ToolSpec, ...], brief: tuple[ToolSpec, ...], context: int) -> tuple[ToolSpec, ...]:
    """The tools to offer to a model with this many tokens of context, 0 when that is unknown.

    A small window gets the six tools of everyday work with few parameters, a middling one all tools in one sentence
    each. `brief` are the same tools as `tools`, described shortly.
    """
    if not 0 < context <= MIDDLE_WINDOW:
        return tools
    if context > SMALL_WINDOW:
        return brief
    few = tuple(_narrow_tool(tool, _SMALL_TOOLSET[tool.name]) for tool in brief if tool.name in _SMALL_TOOLSET)
    return few or brief


def _narrow_tool(tool: ToolSpec, parameters: tuple[str, ...]) -> ToolSpec:
    properties: dict[str, Any] = tool.schema.get("properties", {})
    required: list[str] = tool.schema.get("required", [])
    kept = {name: child for name, child in properties.items() if name in parameters or name in required}
    return replace(tool, schema={**tool.schema, "properties": kept})
