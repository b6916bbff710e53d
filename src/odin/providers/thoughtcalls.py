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
    CallChunk,
    Chunk,
    Provider,
    Request,
    RollbackChunk,
    StopChunk,
    TextChunk,
    ThinkingChunk,
    ToolSpec,
)
from odin.providers.payload import encode_arguments

_CALL_MARKERS = r"<(?:{})>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>"


class ReasoningCalls:
    """A provider around a provider that finds such calls.

    `always` looks for them in every reply that ends without a call; otherwise only in one that says nothing.
    """

    def __init__(self, provider: Provider, *, always: bool = False) -> None:
        self.name = provider.name
        self._provider = provider
        self._always = always

    async def close(self) -> None:
        await self._provider.close()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        heard = _ReplySoFar()
        stream = self._provider.stream(request)
        closing = aclosing(cast("AsyncGenerator[Chunk]", stream)) if hasattr(stream, "aclose") else nullcontext(stream)
        async with closing as pieces:
            async for piece in pieces:
                if isinstance(piece, StopChunk) and self._should_search(heard, piece, request):
                    for last in _finish_reply(heard, piece, request.tools):
                        yield last
                else:
                    heard.add(piece)
                    yield piece

    def _should_search(self, heard: "_ReplySoFar", stop: StopChunk, request: Request) -> bool:
        silent = not heard.has_text and not heard.has_call
        return bool(request.tools and heard.thoughts and stop.reason == "end_turn") and (
            silent or (self._always and not heard.has_call)
        )


class _ReplySoFar:
    """A reply so far: its reasoning, and whether there is anything else."""

    def __init__(self) -> None:
        self.thoughts: list[str] = []
        self._block_start = 0
        self.has_text = False
        self.has_call = False

    def add(self, piece: Chunk) -> None:
        if isinstance(piece, ThinkingChunk):
            self._add_thinking(piece)
        elif isinstance(piece, TextChunk):
            self.has_text = self.has_text or bool(piece.text.strip())
        elif isinstance(piece, CallChunk):
            self.has_call = True
        elif isinstance(piece, RollbackChunk):
            self.thoughts, self._block_start, self.has_text, self.has_call = [], 0, False, False

    def _add_thinking(self, piece: ThinkingChunk) -> None:
        if piece.text:
            self.thoughts.append(piece.text)
        if piece.final:
            self.thoughts[self._block_start :] = [piece.final]
        if piece.signature or piece.final:
            self._block_start = len(self.thoughts)


def _finish_reply(heard: _ReplySoFar, stop: StopChunk, tools: tuple[ToolSpec, ...]) -> list[Chunk]:
    """The calls and the stop. Raises UnreadableCall when there is a call, nothing else, and it cannot be read."""
    from odin.providers.textcalls import CALL_TAGS, find_calls

    thought = "".join(heard.thoughts)
    found = find_calls(thought, tools)
    if found.calls:
        calls = [
            CallChunk(index, f"thought_{os.urandom(6).hex()}", name, encode_arguments(args), done=True)
            for index, (name, args) in enumerate(found.calls)
        ]
        return [*calls, StopChunk("tool_use", stop.model)]
    if not heard.has_text and re.search(_CALL_MARKERS.format("|".join(CALL_TAGS)), thought):
        raise UnreadableCall("The model wrote a tool call into its reasoning that cannot be read.", "Ask it again.")
    return [stop]
