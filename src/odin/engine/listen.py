"""Listening to one reply: pieces become events and add up to a message; failures are retried in plain sight.

Only the asking is repeated. What calls have begun early is taken back when a reply fails, so nothing is done twice.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from odin.core.breath import Breath
from odin.core.errors import EmptyReply, EmptyTruncation, ProviderError, RateLimited, StreamCut
from odin.core.event import (
    ActivityChanged,
    AnyEvent,
    CallStreamed,
    DiscardReason,
    RateLimitUpdated,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    RolledBack,
    TextStreamed,
)
from odin.core.message import AssistantMessage, ToolCall, Usage
from odin.core.provider import (
    CallPiece,
    LimitsPiece,
    Piece,
    Provider,
    Request,
    RollbackPiece,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    WaitPiece,
)
from odin.core.reply import Reply, ReplyBuilder, parse_object
from odin.engine.recorder import Recorder
from odin.engine.retry import RetryPolicy
from odin.engine.thoughts import Thoughts

PROGRESS_EVERY_S = 0.3
"""How often is told how much of a reply has arrived."""

_ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


Account = Callable[[Usage], ProviderError | None]
"""Told what one try took. Gives the reason why there may be no other."""


class GaveUp(Exception):
    """No more retries: `error` is the last failure."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


class Early(Protocol):
    """Who begins calls while their reply is still being written."""

    def appears(self, call_id: str) -> None: ...

    def complete(self, call_id: str, name: str, args: dict[str, Any] | None) -> None: ...

    async def take_back(self, reason: DiscardReason) -> None: ...


class Listener:
    def __init__(self, recorder: Recorder, retry: RetryPolicy, agent: str, early: Early) -> None:
        self.seconds = 0.0
        self._early = early
        self._recorder = recorder
        self._retry = retry
        self._agent = agent
        self._builder = ReplyBuilder()
        self._thoughts = Thoughts(self._emit)
        self._book: Account = lambda usage: None
        self._refusal: ProviderError | None = None
        self._asked = 0
        self._kept: AssistantMessage | None = None
        self._progress = _Progress()
        self._ids: dict[int, str] = {}
        self._taken: set[str] = set()

    async def ask(self, provider: Provider, request: Request, account: Account, tokens: int = 0) -> Reply:
        """The reply, however many tries it takes. `account` hears what each of them took and may forbid another.

        `tokens` is about how many the request takes.
        """
        if self._builder.started:
            self._emit(RolledBack("asked anew"))
        self._asked += 1
        self._emit(RequestStarted(self._asked, request.model, tokens))
        self._book = account
        attempt = 0
        while True:
            attempt += 1
            self._builder = ReplyBuilder(provider.name, request.model)
            self._progress = _Progress()
            self._ids = {}
            self._taken = _ids_of(request)
            try:
                return await self._once(provider, request)
            except ProviderError as error:
                await self._early.take_back("rollback")
                delay = self._retry.delay(error, attempt)
                if delay is None or self._refusal is not None:
                    self._thoughts.end()
                    raise GaveUp(error if delay is None else self._refusal or error) from error
                await self._wait(error, attempt, delay)
            except asyncio.CancelledError:
                self._thoughts.end()
                raise

    def partial(self) -> AssistantMessage | None:
        """The text of a reply that did not finish, if there is any: of the last try that brought some."""
        message = _with_text(self._builder) or self._kept
        self._builder, self._kept = ReplyBuilder(), None
        return message

    def _account(self) -> None:
        """Say what this try has taken, as far as the provider told."""
        self._refusal = self._book(self._builder.usage)

    async def _once(self, provider: Provider, request: Request) -> Reply:
        begun = time.monotonic()
        breath = Breath()
        try:
            async for piece in provider.stream(request):
                if isinstance(piece, RollbackPiece):
                    await self._early.take_back("rollback")
                self._hear(piece, provider.name)
                await breath.take()
            if self._builder.stop is None:
                raise StreamCut("The reply ended before it was complete.", "Try again.")
        finally:
            self.seconds += time.monotonic() - begun
            self._account()
        reply = self._builder.finish()
        if reply.empty:
            if reply.message.stop == "max_tokens":
                raise EmptyTruncation("The length limit was reached before anything was said.", "Raise max_tokens.")
            raise EmptyReply("The model answered with nothing.")
        self._emit(self._progress.event())
        self._builder, self._kept = ReplyBuilder(), None
        return reply

    async def _wait(self, error: ProviderError, attempt: int, delay: float) -> None:
        """Wait in plain sight. The text on screen is taken back, and kept in case no other try brings any."""
        self._thoughts.drop()
        if self._builder.started:
            self._kept = _with_text(self._builder) or self._kept
            self._emit(RolledBack(error.kind))
        total = self._retry.limit(error)
        self._emit(RetryScheduled(attempt, total, round(delay, 2), str(error), error.kind))
        if isinstance(error, RateLimited) and error.retry_after:
            self._emit(ActivityChanged("cooling", f"cooldown {math.ceil(delay)}s"))
        else:
            self._emit(ActivityChanged("retrying", f"retry {attempt}/{total}"))
        await asyncio.sleep(delay)

    def _hear(self, piece: Piece, provider: str) -> None:
        if isinstance(piece, WaitPiece):
            self._emit(ActivityChanged(piece.activity))  # pyright: ignore[reportArgumentType]
            return
        if isinstance(piece, LimitsPiece):
            self._emit(RateLimitUpdated(provider, **msgspec.structs.asdict(piece)))
            return
        if isinstance(piece, RollbackPiece):
            self._roll_back(piece)
            return
        if isinstance(piece, CallPiece):
            piece = self._named(piece)
        fresh = not self._builder.started
        self._builder.add(piece)
        if fresh and self._builder.started:
            self._emit(ActivityChanged("streaming"))
        if isinstance(piece, TextPiece | CallPiece | StopPiece):
            self._thoughts.end()
        if isinstance(piece, TextPiece):
            self._emit(TextStreamed(piece.text))
        elif isinstance(piece, ThinkingPiece):
            self._thoughts.hear(piece)
        elif isinstance(piece, CallPiece):
            self._hear_call(piece)
        if self._progress.count(piece):
            self._emit(self._progress.event())

    def _roll_back(self, piece: RollbackPiece) -> None:
        """The provider begins the reply again. What the beginning has cost stays counted."""
        self._account()
        self._thoughts.drop()
        self._builder.add(piece)
        self._ids = {}
        self._emit(RolledBack(piece.reason))

    def _hear_call(self, piece: CallPiece) -> None:
        raw = self._builder.arguments(piece.index)
        name = self._builder.call_name(piece.index)
        if piece.done:
            args = parse_object(raw)
            self._emit(CallStreamed(piece.id, name, piece.json, 0, True, args or {}))
            self._early.complete(piece.id, name, args)
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
            self._early.appears(chosen)
        return msgspec.structs.replace(piece, id=self._ids[piece.index])

    def _emit(self, event: AnyEvent) -> None:
        self._recorder.emit(event, self._agent)


class _Progress:
    """How much of a reply has arrived, and whether it is time to tell."""

    def __init__(self) -> None:
        self._pieces = 0
        self._chars = 0
        self._told = time.monotonic()

    def count(self, piece: Piece) -> bool:
        self._pieces += 1
        if isinstance(piece, TextPiece | ThinkingPiece):
            self._chars += len(piece.text)
        elif isinstance(piece, CallPiece):
            self._chars += len(piece.json)
        now = time.monotonic()
        due = now - self._told >= PROGRESS_EVERY_S
        if due:
            self._told = now
        return due

    def event(self) -> RequestProgressed:
        return RequestProgressed(self._pieces, self._chars)


def _with_text(builder: ReplyBuilder) -> AssistantMessage | None:
    message = builder.finish(interrupted=True).message
    return message if message.text.strip() else None


def _ids_of(request: Request) -> set[str]:
    return {
        part.id
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for part in message.parts
        if isinstance(part, ToolCall)
    }
