"""How a model is asked for tool calls: in the API's own way or by a contract in plain text, by what it shows it can do.

The contract and what reads calls out of prose are loaded when a model needs them.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, cast

from odin.core.errors import ProviderError
from odin.core.message import AssistantMessage
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

if TYPE_CHECKING:
    from odin.providers.callsieve import CallSieve
    from odin.providers.contract import JsonContract


def opened(provider: Provider, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
    """A provider's stream that is closed together with ours, so that an interrupt reaches the connection."""
    stream = provider.stream(request)
    if hasattr(stream, "aclose"):
        return aclosing(cast("AsyncGenerator[Piece]", stream))
    return nullcontext(stream)


_NO_TOOLS = (
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
        self._temperature = temperature
        self._by_contract: set[str] = set()

    @cached_property
    def _contract(self) -> "JsonContract":
        from odin.providers.contract import JsonContract

        return JsonContract(self._provider, cwd=self._cwd, temperature=self._temperature)

    async def close(self) -> None:
        await self._provider.close()

    def style_for(self, request: Request) -> ToolStyle:
        """How this request will be asked, by what is known of the model and what it did earlier in the conversation."""
        if self._style != "auto":
            return self._style
        return "json" if request.model in self._by_contract or _wrote_calls(request) else "native"

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        if self.style_for(request) == "native":
            watched = self._style == "auto" and bool(request.tools)
            said = False
            try:
                async with aclosing(self._watch(request)) if watched else opened(self._provider, request) as pieces:
                    async for piece in pieces:
                        said = said or not isinstance(piece, WaitPiece)
                        yield piece
            except ProviderError as error:
                if said or not watched or not re.search(_NO_TOOLS, str(error), re.IGNORECASE):
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
        sieve: CallSieve | None = None
        native = False
        async with opened(self._provider, request) as pieces:
            async for piece in pieces:
                sieve = sieve or _sieve(request.tools)
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
                    from odin.providers.contract_reply import finish, of_prose

                    outcome = of_prose(sieve.rest(), request.tools, self._cwd)
                    if outcome.calls:
                        self._switch(request.model)
                    for last in finish(outcome, piece, request.model):
                        yield last
                else:
                    yield piece


def _sieve(tools: tuple[ToolSpec, ...]) -> "CallSieve":
    """Made when the reply begins: by then the request is on its way."""
    from odin.providers.callsieve import CallSieve

    return CallSieve(tools)


def _wrote_calls(request: Request) -> bool:
    if not any(isinstance(message, AssistantMessage) for message in request.messages):
        return False
    from odin.providers.contract_reply import wrote_calls

    return wrote_calls(request)
