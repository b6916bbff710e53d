"""Listening to one reply: pieces become events and add up to a message; failures are retried in plain sight.

Only the asking is repeated. No tool has run yet when a reply fails, so nothing is ever done twice.
"""

import asyncio
import time

import msgspec

from odin.core.errors import EmptyReply, EmptyTruncation, ProviderError, StreamCut
from odin.core.event import (
    ActivityChanged,
    AnyEvent,
    CallStreamed,
    RetryScheduled,
    RolledBack,
    TextStreamed,
    ThinkingStreamed,
)
from odin.core.message import AssistantMessage, ToolCall, Usage
from odin.core.provider import CallPiece, Piece, Provider, Request, RollbackPiece, TextPiece, ThinkingPiece, WaitPiece
from odin.core.reply import Reply, ReplyBuilder, parse_object
from odin.engine.recorder import Recorder
from odin.engine.retry import RetryPolicy

_ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class GaveUp(Exception):
    """No more retries: `error` is the last failure."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


class Listener:
    def __init__(self, recorder: Recorder, retry: RetryPolicy, agent: str) -> None:
        self.seconds = 0.0
        self._recorder = recorder
        self._retry = retry
        self._agent = agent
        self._builder = ReplyBuilder()
        self._usage = Usage()
        self._ids: dict[int, str] = {}
        self._taken: set[str] = set()

    async def ask(self, provider: Provider, request: Request) -> Reply:
        attempt = 0
        while True:
            attempt += 1
            self._builder = ReplyBuilder(provider.name, request.model)
            self._ids = {}
            self._taken = _ids_of(request)
            try:
                return await self._once(provider, request)
            except ProviderError as error:
                delay = self._retry.delay(error, attempt)
                if delay is None:
                    raise GaveUp(error) from error
                await self._wait(error, attempt, delay)

    def partial(self) -> AssistantMessage | None:
        """The text of a reply that did not finish, if there is any."""
        message = self._builder.finish(interrupted=True).message
        self._builder = ReplyBuilder()
        return message if message.text.strip() else None

    def take_usage(self) -> Usage:
        usage, self._usage = self._usage, Usage()
        return usage

    async def _once(self, provider: Provider, request: Request) -> Reply:
        begun = time.monotonic()
        try:
            async for piece in provider.stream(request):
                self._hear(piece)
            if self._builder.stop is None:
                raise StreamCut("The reply ended before it was complete.", "Try again.")
        finally:
            self.seconds += time.monotonic() - begun
            self._usage += self._builder.usage
        reply = self._builder.finish()
        if reply.empty:
            if reply.message.stop == "max_tokens":
                raise EmptyTruncation("The length limit was reached before anything was said.", "Raise max_tokens.")
            raise EmptyReply("The model answered with nothing.")
        self._builder = ReplyBuilder()
        return reply

    async def _wait(self, error: ProviderError, attempt: int, delay: float) -> None:
        if self._builder.started:
            self._emit(RolledBack(error.kind))
        total = self._retry.limit(error)
        self._emit(RetryScheduled(attempt, total, round(delay, 2), str(error), error.kind))
        self._emit(ActivityChanged("retrying", f"retry {attempt}/{total}"))
        await asyncio.sleep(delay)

    def _hear(self, piece: Piece) -> None:
        if isinstance(piece, CallPiece):
            piece = self._named(piece)
        fresh = not self._builder.started
        self._builder.add(piece)
        if isinstance(piece, WaitPiece):
            self._emit(ActivityChanged(piece.activity))  # pyright: ignore[reportArgumentType]
            return
        if fresh and self._builder.started:
            self._emit(ActivityChanged("streaming"))
        if isinstance(piece, TextPiece):
            self._emit(TextStreamed(piece.text))
        elif isinstance(piece, ThinkingPiece):
            if piece.text:
                self._emit(ThinkingStreamed(piece.text))
        elif isinstance(piece, CallPiece):
            self._hear_call(piece)
        elif isinstance(piece, RollbackPiece):
            self._ids = {}
            self._emit(RolledBack(piece.reason))

    def _hear_call(self, piece: CallPiece) -> None:
        raw = self._builder.arguments(piece.index)
        name = self._builder.call_name(piece.index)
        if piece.done:
            self._emit(CallStreamed(piece.id, name, piece.json, 0, True, parse_object(raw) or {}))
        else:
            self._emit(CallStreamed(piece.id, name, piece.json, len(raw)))

    def _named(self, piece: CallPiece) -> CallPiece:
        """The piece with an id that is legal everywhere and used by no other call of this conversation."""
        if piece.index not in self._ids:
            wanted = "".join(char for char in piece.id if char in _ID_CHARS)[:40]
            number = len(self._taken)
            chosen = wanted or f"call_{number}"
            while chosen in self._taken:
                number += 1
                chosen = f"call_{number}"
            self._taken.add(chosen)
            self._ids[piece.index] = chosen
        return msgspec.structs.replace(piece, id=self._ids[piece.index])

    def _emit(self, event: AnyEvent) -> None:
        self._recorder.emit(event, self._agent)


def _ids_of(request: Request) -> set[str]:
    return {
        part.id
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for part in message.parts
        if isinstance(part, ToolCall)
    }
