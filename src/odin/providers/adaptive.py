"""How a model is asked for tool calls: in the API's own way or by a contract in plain text, by what it shows it can do.

The contract and what reads calls out of prose are loaded when a model needs them.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, cast

from odin.core.errors import ProviderError
from odin.core.message import ReplyMessage
from odin.core.provider import (
    CallChunk,
    Chunk,
    Provider,
    Request,
    StopChunk,
    TextChunk,
    ToolSpec,
    ToolStyle,
    ToolStyleSetting,
    WaitChunk,
)

if TYPE_CHECKING:
    from odin.providers.callsieve import TextCallFilter
    from odin.providers.contract import JsonContract


def open_stream(provider: Provider, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
    """A provider's stream that is closed together with ours, so that an interrupt reaches the connection."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return aclosing(cast("AsyncGenerator[Chunk]", stream))
    return nullcontext(stream)


_NO_TOOLS_PATTERN = (
    r"(not|n't) support\w* .*\b(tool|function)|\b(tool|function)\w*( \w+)? (is|are) not (support|enabled|available)"
    r"|requires? --jinja|--enable-auto-tool-choice|support tool use"
)


class AdaptiveTools:
    """Asks a model in the way it understands.

    `native` and `json` are fixed. With `auto` a model is asked by the API's own tools until the server says that it has
    none, or the model writes a call as text; that call is recognised, and from then on the contract is used.
    """

    def __init__(
        self,
        provider: Provider,
        style: ToolStyleSetting = "auto",
        *,
        cwd: str = "",
        on_style: Callable[[str, ToolStyle], None] = lambda model, style: None,
        temperature: float | None = 0.0,
    ) -> None:
        self.name = provider.name
        self._provider = provider
        self._style: ToolStyleSetting = style
        self._on_style = on_style
        self._cwd = cwd
        self._temperature = temperature
        self._contract_models: set[str] = set()

    @cached_property
    def _contract(self) -> "JsonContract":
        from odin.providers.contract import JsonContract

        return JsonContract(self._provider, cwd=self._cwd, temperature=self._temperature)

    async def close(self) -> None:
        await self._provider.close()

    def style_of(self, request: Request) -> ToolStyle:
        """How this request will be asked, by what is known of the model and what it did earlier in the conversation."""
        if self._style != "auto":
            return self._style
        return "json" if request.model in self._contract_models or _has_written_calls(request) else "native"

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        if self.style_of(request) == "native":
            watched = self._style == "auto" and bool(request.tools)
            said = False
            try:
                async with (
                    aclosing(self._stream_native(request))
                    if watched
                    else open_stream(self._provider, request) as pieces
                ):
                    async for piece in pieces:
                        said = said or not isinstance(piece, WaitChunk)
                        yield piece
            except ProviderError as error:
                if said or not watched or not re.search(_NO_TOOLS_PATTERN, str(error), re.IGNORECASE):
                    raise
                self._switch_to_contract(request.model)
            else:
                return
        async with aclosing(self._contract.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    def _switch_to_contract(self, model: str) -> None:
        if model not in self._contract_models:
            self._contract_models.add(model)
            self._on_style(model, "json")

    async def _stream_native(self, request: Request) -> AsyncGenerator[Chunk]:
        """Pass a native reply through, taking out the calls that are written in its text."""
        sieve: TextCallFilter | None = None
        native = False
        async with open_stream(self._provider, request) as pieces:
            async for piece in pieces:
                sieve = sieve or _make_call_filter(request.tools)
                if isinstance(piece, TextChunk) and not native:
                    text = sieve.feed(piece.text)
                    if text:
                        yield TextChunk(text)
                elif isinstance(piece, CallChunk) and not native:
                    native = True
                    if sieve.get_held_text():
                        yield TextChunk(sieve.get_held_text())
                    yield piece
                elif isinstance(piece, StopChunk) and not native:
                    from odin.providers.contract_reply import finish_reply, parse_prose_reply

                    outcome = parse_prose_reply(sieve.get_held_text(), request.tools, self._cwd)
                    if outcome.calls:
                        self._switch_to_contract(request.model)
                    for last in finish_reply(outcome, piece, request.model):
                        yield last
                else:
                    yield piece


def _make_call_filter(tools: tuple[ToolSpec, ...]) -> "TextCallFilter":
    """Made when the reply begins: by then the request is on its way."""
    from odin.providers.callsieve import TextCallFilter

    return TextCallFilter(tools)


def _has_written_calls(request: Request) -> bool:
    if not any(isinstance(message, ReplyMessage) for message in request.messages):
        return False
    from odin.providers.contract_reply import has_written_calls

    return has_written_calls(request)
