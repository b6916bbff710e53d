"""Tools for models that cannot call them: the planner's JSON contract as a provider around a provider.

The model is told about the tools in plain text and answers with one JSON object (`explanation`, `taskCompleted`,
`executeTool`) that the server is asked to enforce. History goes out as plain messages in the same shape, so request
n+1 still starts with request n. `AdaptiveTools` decides by what a model does whether it is asked this way.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, cast

from msgspec.structs import replace

from odin.core.errors import BadRequest, ProviderError
from odin.core.provider import (
    CallPiece,
    Piece,
    Provider,
    Request,
    StopPiece,
    StyleChoice,
    TextPiece,
    ToolSpec,
    ToolStyle,
    WaitPiece,
)
from odin.providers.callsieve import CallSieve
from odin.providers.contract_reply import ReplyReader, finish, of_prose, wrote_calls
from odin.providers.contract_request import (
    Strictness,
    contract_schema,
    editable_lines,
    flatten,
    instructions,
    repeated,
)

_STRICTNESS: tuple[Strictness, ...] = ("exact", "loose", "none")


def _open(provider: Provider, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
    """A provider's stream that is closed together with ours, so that an interrupt reaches the connection."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return aclosing(cast("AsyncGenerator[Piece]", stream))
    return nullcontext(stream)


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

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        """A server that refuses the schema is asked again with a simpler one, and at last with none."""
        if not request.tools:
            async with _open(self._provider, replace(request, messages=flatten(request.messages))) as pieces:
                async for piece in pieces:
                    yield piece
            return
        for level in range(self._strictness, len(_STRICTNESS)):
            said = False
            try:
                async with aclosing(self._ask(request, _STRICTNESS[level])) as pieces:
                    async for piece in pieces:
                        if not said and not isinstance(piece, WaitPiece):
                            said = True
                            self._strictness = level
                        yield piece
            except BadRequest:
                if said or level == len(_STRICTNESS) - 1:
                    raise
            else:
                return

    async def _ask(self, request: Request, strictness: Strictness) -> AsyncGenerator[Piece]:
        reader = ReplyReader(request.tools, self._cwd)
        async with _open(self._provider, self._plain(request, strictness)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextPiece):
                    text = reader.feed(piece.text)
                    if text:
                        yield TextPiece(text)
                elif isinstance(piece, StopPiece):
                    for last in finish(reader.finish(piece.reason == "max_tokens"), piece, request.model):
                        yield last
                else:
                    yield piece

    def _plain(self, request: Request, strictness: Strictness) -> Request:
        temperature = self._temperature if request.temperature is None else request.temperature
        stale, lines = repeated(request.messages), editable_lines(request.messages)
        enforced = tuple(tool for tool in request.tools if tool.name not in stale) or request.tools
        return replace(
            request,
            messages=flatten(request.messages),
            system=(*request.system, instructions(request.tools)),
            tools=(),
            temperature=temperature,
            schema=None if strictness == "none" else contract_schema(enforced, strictness, lines),
        )


_NO_TOOLS = re.compile(
    r"(not|n't) support\w* .*\b(tool|function)|\b(tool|function)\w*( \w+)? (is|are) not (support|enabled|available)"
    r"|requires? --jinja|--enable-auto-tool-choice|support tool use",
    re.IGNORECASE,
)


class AdaptiveTools:
    """Asks a model in the way it understands.

    `native` and `json` are fixed. With `auto` a model is asked by the API's own tools until the server says that it has
    none, or the model writes a call as text; that call is recognised, and from then on the contract is used.
    """

    def __init__(
        self,
        provider: Provider,
        style: StyleChoice = "auto",
        *,
        cwd: str = "",
        on_style: Callable[[str, ToolStyle], None] = lambda model, style: None,
        temperature: float | None = 0.0,
    ) -> None:
        self.name = provider.name
        self._provider = provider
        self._style: StyleChoice = style
        self._on_style = on_style
        self._cwd = cwd
        self._contract = JsonContract(provider, cwd=cwd, temperature=temperature)
        self._by_contract: set[str] = set()

    async def close(self) -> None:
        await self._provider.close()

    def style_for(self, request: Request) -> ToolStyle:
        """How this request will be asked, by what is known of the model and what it did earlier in the conversation."""
        if self._style != "auto":
            return self._style
        return "json" if request.model in self._by_contract or wrote_calls(request) else "native"

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        if self.style_for(request) == "native":
            watched = self._style == "auto" and bool(request.tools)
            said = False
            try:
                async with aclosing(self._watch(request)) if watched else _open(self._provider, request) as pieces:
                    async for piece in pieces:
                        said = said or not isinstance(piece, WaitPiece)
                        yield piece
            except ProviderError as error:
                if said or not watched or not _NO_TOOLS.search(str(error)):
                    raise
                self._switch(request.model)
            else:
                return
        async with aclosing(self._contract.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    def _switch(self, model: str) -> None:
        if model not in self._by_contract:
            self._by_contract.add(model)
            self._on_style(model, "json")

    async def _watch(self, request: Request) -> AsyncGenerator[Piece]:
        """Pass a native reply through, taking out the calls that are written in its text."""
        sieve = CallSieve(request.tools)
        native = False
        async with _open(self._provider, request) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextPiece) and not native:
                    text = sieve.feed(piece.text)
                    if text:
                        yield TextPiece(text)
                elif isinstance(piece, CallPiece) and not native:
                    native = True
                    if sieve.rest():
                        yield TextPiece(sieve.rest())
                    yield piece
                elif isinstance(piece, StopPiece) and not native:
                    outcome = of_prose(sieve.rest(), request.tools, self._cwd)
                    if outcome.calls:
                        self._switch(request.model)
                    for last in finish(outcome, piece, request.model):
                        yield last
                else:
                    yield piece


# --- few and short tools for small windows ---

SMALL_WINDOW = 16_384
MIDDLE_WINDOW = 32_768

_FEW: dict[str, tuple[str, ...]] = {
    "LS": ("path",),
    "Read": ("file_path", "offset", "limit"),
    "Grep": ("pattern", "path"),
    "ExecuteCommand": ("command",),
    "WriteFile": ("file_path", "content"),
    "EditTool": ("file_path", "old_string", "new_string", "replace_all"),
}
"""The tools a small model works with, and those of their parameters that it needs."""


def for_window(tools: tuple[ToolSpec, ...], brief: tuple[ToolSpec, ...], context: int) -> tuple[ToolSpec, ...]:
    """The tools to offer to a model with this many tokens of context, 0 when that is unknown.

    A small window gets the six tools of everyday work with few parameters, a middling one all tools in one sentence
    each. `brief` are the same tools as `tools`, described shortly.
    """
    if not 0 < context <= MIDDLE_WINDOW:
        return tools
    if context > SMALL_WINDOW:
        return brief
    few = tuple(_narrow(tool, _FEW[tool.name]) for tool in brief if tool.name in _FEW)
    return few or brief


def _narrow(tool: ToolSpec, parameters: tuple[str, ...]) -> ToolSpec:
    properties: dict[str, Any] = tool.schema.get("properties", {})
    required: list[str] = tool.schema.get("required", [])
    kept = {name: child for name, child in properties.items() if name in parameters or name in required}
    return replace(tool, schema={**tool.schema, "properties": kept})
