"""Calls that a model wrote into its reasoning, where no API looks for them.

Some reasoning models forget to leave their thoughts before they call a tool: the reply then has reasoning, no call and
mostly no text, and would count as empty.
"""

import os
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from typing import cast

from odin.core.errors import UnreadableCall
from odin.core.provider import (
    CallPiece,
    Piece,
    Provider,
    Request,
    RollbackPiece,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    ToolSpec,
)
from odin.providers.payload import arguments_json

_MARKED = r"<(?:{})>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>"


class ThoughtCalls:
    """A provider around a provider that finds such calls.

    `always` looks for them in every reply that ends without a call; otherwise only in one that says nothing.
    """

    def __init__(self, provider: Provider, *, always: bool = False) -> None:
        self.name = provider.name
        self._provider = provider
        self._always = always

    async def close(self) -> None:
        await self._provider.close()

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        heard = _Heard()
        stream = self._provider.stream(request)
        closing = aclosing(cast("AsyncGenerator[Piece]", stream)) if hasattr(stream, "aclose") else nullcontext(stream)
        async with closing as pieces:
            async for piece in pieces:
                if isinstance(piece, StopPiece) and self._looks(heard, piece, request):
                    for last in _last(heard, piece, request.tools):
                        yield last
                else:
                    heard.add(piece)
                    yield piece

    def _looks(self, heard: "_Heard", stop: StopPiece, request: Request) -> bool:
        silent = not heard.text and not heard.called
        return bool(request.tools and heard.thoughts and stop.reason == "end_turn") and (
            silent or (self._always and not heard.called)
        )


class _Heard:
    """A reply so far: its reasoning, and whether there is anything else."""

    def __init__(self) -> None:
        self.thoughts: list[str] = []
        self._block = 0
        self.text = False
        self.called = False

    def add(self, piece: Piece) -> None:
        if isinstance(piece, ThinkingPiece):
            self._think(piece)
        elif isinstance(piece, TextPiece):
            self.text = self.text or bool(piece.text.strip())
        elif isinstance(piece, CallPiece):
            self.called = True
        elif isinstance(piece, RollbackPiece):
            self.thoughts, self._block, self.text, self.called = [], 0, False, False

    def _think(self, piece: ThinkingPiece) -> None:
        if piece.text:
            self.thoughts.append(piece.text)
        if piece.final:
            self.thoughts[self._block :] = [piece.final]
        if piece.signature or piece.final:
            self._block = len(self.thoughts)


def _last(heard: _Heard, stop: StopPiece, tools: tuple[ToolSpec, ...]) -> list[Piece]:
    """The calls and the stop. Raises UnreadableCall when there is a call, nothing else, and it cannot be read."""
    from odin.providers.textcalls import TAGS, find_calls

    thought = "".join(heard.thoughts)
    found = find_calls(thought, tools)
    if found.calls:
        calls = [
            CallPiece(index, f"thought_{os.urandom(6).hex()}", name, arguments_json(args), done=True)
            for index, (name, args) in enumerate(found.calls)
        ]
        return [*calls, StopPiece("tool_use", stop.model)]
    if not heard.text and re.search(_MARKED.format("|".join(TAGS)), thought):
        raise UnreadableCall("The model wrote a tool call into its reasoning that cannot be read.", "Ask it again.")
    return [stop]
