"""How long to wait before asking the model again, and when to stop asking.

Reasoning on its way to people: a few pieces a second while it comes, then each block once as a whole.

Listening to one reply: pieces become events and add up to a message; failures are retried in plain sight.

Only the asking is repeated. What calls have begun early is taken back when a reply fails, so nothing is done twice.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from odin.core.errors import EmptyReply, EmptyTruncation, ProviderError, RateLimited, StreamCut
from odin.core.event import (
    ActivityChanged,
    AnyEvent,
    CallStreamed,
    DiscardReason,
    RateLimitUpdated,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
)
from odin.core.message import ReplyMessage, ToolCall, Usage
from odin.core.provider import (
    CallChunk,
    Chunk,
    Provider,
    RateLimitChunk,
    Request,
    RollbackChunk,
    StopChunk,
    TextChunk,
    ThinkingChunk,
    WaitChunk,
)
from odin.core.reply import Reply, ReplyBuilder, parse_arguments
from odin.core.time_slice import TimeSlice
from odin.engine.recorder import Recorder


class RetryPolicy(msgspec.Struct, frozen=True):
    """Doubling delays with jitter. The server's own Retry-After wins when it asks for more.

    A wait longer than `max_s` is not sat out in silence: the error is reported instead, with the time it names.
    """

    attempts: int = 6
    empty_attempts: int = 2
    base_s: float = 0.5
    max_s: float = 60.0

    def max_attempts_of(self, error: ProviderError) -> int:
        """How many times a call that fails like this is made at most."""
        return min(self.attempts, self.empty_attempts) if isinstance(error, EmptyReply) else self.attempts

    def compute_delay(self, error: ProviderError, attempt: int) -> float | None:
        """Seconds to wait after failed attempt number `attempt` (from 1), or None to give up."""
        if not error.retryable or attempt >= self.max_attempts_of(error):
            return None
        asked = error.retry_after or 0.0
        if asked > self.max_s:
            return None
        import random

        backoff = min(self.max_s, self.base_s * 2 ** (attempt - 1))
        return min(self.max_s, max(asked, backoff) * random.uniform(1.0, 1.25))


FLUSH_EVERY_S = 0.15
"""Deltas that come closer together than this are joined: nobody reads faster, and some models send one per token."""


class ReasoningStream:
    """Follows the reasoning of one reply. A timer runs only while something waits to be shown."""

    def __init__(self, emit: Callable[[AnyEvent], None]) -> None:
        self._emit = emit
        self._started_at: float | None = None
        self._block: list[str] = []
        self._waiting: list[str] = []
        self._final = ""
        self._timer: asyncio.TimerHandle | None = None

    def add_chunk(self, piece: ThinkingChunk) -> None:
        if piece.text or piece.final:
            self._begin_block()
            self._final = piece.final or self._final
        if piece.text:
            self._block.append(piece.text)
            self._waiting.append(piece.text)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self._flush)
        if piece.signature:
            self.end()

    def end(self) -> None:
        """The block is over, if one is open: what the provider gave as its whole text wins."""
        if self._started_at is None:
            return
        self._flush()
        text = self._final or "".join(self._block)
        seconds = round(time.monotonic() - self._started_at, 3)
        self.drop()
        self._emit(ThinkingEnded(text, seconds))

    def drop(self) -> None:
        """Forget an unfinished block: the reply starts again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._started_at, self._final = None, ""
        self._block, self._waiting = [], []

    def _begin_block(self) -> None:
        if self._started_at is None:
            self._started_at = time.monotonic()
            self._emit(ThinkingStarted())

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._emit(ThinkingStreamed("".join(waiting)))


PROGRESS_EVERY_S = 0.3
"""How often is told how much of a reply has arrived."""

_ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


AccountUsage = Callable[[Usage], ProviderError | None]
"""Told what one try took. Gives the reason why there may be no other."""


class RetriesExhausted(Exception):
    """No more retries: `error` is the last failure."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


class CallObserver(Protocol):
    """Who begins calls while their reply is still being written."""

    def on_call_started(self, call_id: str) -> None: ...

    def on_call_complete(self, call_id: str, name: str, args: dict[str, Any] | None) -> None: ...

    async def rollback(self, reason: DiscardReason) -> None: ...


class ReplyStream:
    def __init__(self, recorder: Recorder, retry: RetryPolicy, agent: str, early: CallObserver) -> None:
        self.seconds = 0.0
        self._observer = early
        self._recorder = recorder
        self._retry = retry
        self._agent = agent
        self._builder = ReplyBuilder()
        self._reasoning = ReasoningStream(self._emit)
        self._account_usage: AccountUsage = lambda usage: None
        self._refusal: ProviderError | None = None
        self._request_count = 0
        self._partial_message: ReplyMessage | None = None
        self._progress = _ReplyProgress()
        self._ids: dict[int, str] = {}
        self._used_ids: set[str] = set()

    async def run(self, provider: Provider, request: Request, account: AccountUsage, tokens: int = 0) -> Reply:
        """The reply, however many tries it takes. `account` hears what each of them took and may forbid another.

        `tokens` is about how many the request takes.
        """
        if self._builder.has_started:
            self._emit(ReplyRolledBack("asked anew"))
        self._request_count += 1
        self._emit(RequestStarted(self._request_count, request.model, tokens))
        self._account_usage = account
        attempt = 0
        while True:
            attempt += 1
            self._builder = ReplyBuilder(provider.name, request.model)
            self._progress = _ReplyProgress()
            self._ids = {}
            self._used_ids = _call_ids_of(request)
            try:
                return await self._try_once(provider, request)
            except ProviderError as error:
                await self._observer.rollback("rollback")
                delay = self._retry.compute_delay(error, attempt)
                if delay is None or self._refusal is not None:
                    self._reasoning.end()
                    raise RetriesExhausted(error if delay is None else self._refusal or error) from error
                await self._wait_to_retry(error, attempt, delay)
            except asyncio.CancelledError:
                self._reasoning.end()
                raise

    def take_partial(self) -> ReplyMessage | None:
        """The text of a reply that did not finish, if there is any: of the last try that brought some."""
        message = _partial_message_of(self._builder) or self._partial_message
        self._builder, self._partial_message = ReplyBuilder(), None
        return message

    def _report_usage(self) -> None:
        """Say what this try has taken, as far as the provider told."""
        self._refusal = self._account_usage(self._builder.usage)

    async def _try_once(self, provider: Provider, request: Request) -> Reply:
        begun = time.monotonic()
        breath = TimeSlice()
        try:
            async for piece in provider.stream(request):
                if isinstance(piece, RollbackChunk):
                    await self._observer.rollback("rollback")
                self._handle_chunk(piece, provider.name)
                await breath.maybe_yield()
            if self._builder.stop is None:
                raise StreamCut("The reply ended before it was complete.", "Try again.")
        finally:
            self.seconds += time.monotonic() - begun
            self._report_usage()
        reply = self._builder.finish()
        if reply.is_empty:
            if reply.message.stop == "max_tokens":
                raise EmptyTruncation("The length limit was reached before anything was said.", "Raise max_tokens.")
            raise EmptyReply("The model answered with nothing.")
        self._emit(self._progress.to_event())
        self._builder, self._partial_message = ReplyBuilder(), None
        return reply

    async def _wait_to_retry(self, error: ProviderError, attempt: int, delay: float) -> None:
        """Wait in plain sight. The text on screen is taken back, and kept in case no other try brings any."""
        self._reasoning.drop()
        if self._builder.has_started:
            self._partial_message = _partial_message_of(self._builder) or self._partial_message
            self._emit(ReplyRolledBack(error.kind))
        total = self._retry.max_attempts_of(error)
        self._emit(RetryScheduled(attempt, total, round(delay, 2), str(error), error.kind))
        if isinstance(error, RateLimited) and error.retry_after:
            self._emit(ActivityChanged("cooling", f"cooldown {math.ceil(delay)}s"))
        else:
            self._emit(ActivityChanged("retrying", f"retry {attempt}/{total}"))
        await asyncio.sleep(delay)

    def _handle_chunk(self, piece: Chunk, provider: str) -> None:
        if isinstance(piece, WaitChunk):
            self._emit(ActivityChanged(piece.activity))  # pyright: ignore[reportArgumentType]
            return
        if isinstance(piece, RateLimitChunk):
            self._emit(RateLimitUpdated(provider, **msgspec.structs.asdict(piece)))
            return
        if isinstance(piece, RollbackChunk):
            self._handle_rollback(piece)
            return
        if isinstance(piece, CallChunk):
            piece = self._assign_id(piece)
        fresh = not self._builder.has_started
        self._builder.add(piece)
        if fresh and self._builder.has_started:
            self._emit(ActivityChanged("streaming"))
        if isinstance(piece, TextChunk | CallChunk | StopChunk):
            self._reasoning.end()
        if isinstance(piece, TextChunk):
            self._emit(TextStreamed(piece.text))
        elif isinstance(piece, ThinkingChunk):
            self._reasoning.add_chunk(piece)
        elif isinstance(piece, CallChunk):
            self._handle_call_chunk(piece)
        if self._progress.add_chunk(piece):
            self._emit(self._progress.to_event())

    def _handle_rollback(self, piece: RollbackChunk) -> None:
        """The provider begins the reply again. What the beginning has cost stays counted."""
        self._report_usage()
        self._reasoning.drop()
        self._builder.add(piece)
        self._ids = {}
        self._emit(ReplyRolledBack(piece.reason))

    def _handle_call_chunk(self, piece: CallChunk) -> None:
        raw = self._builder.arguments_of(piece.index)
        name = self._builder.name_of_call(piece.index)
        if piece.done:
            args = parse_arguments(raw)
            self._emit(CallStreamed(piece.id, name, piece.json, 0, True, args or {}))
            self._observer.on_call_complete(piece.id, name, args)
        else:
            self._emit(CallStreamed(piece.id, name, piece.json, len(raw)))

    def _assign_id(self, piece: CallChunk) -> CallChunk:
        """The piece with an id that is legal everywhere and used by no other call of this conversation."""
        if piece.index not in self._ids:
            wanted = "".join(char for char in piece.id if char in _ID_CHARS)[:40]
            number = len(self._used_ids)
            chosen = wanted or f"call_{number}"
            while chosen in self._used_ids:
                number += 1
                chosen = f"call_{number}"
            self._used_ids.add(chosen)
            self._ids[piece.index] = chosen
            self._observer.on_call_started(chosen)
        return msgspec.structs.replace(piece, id=self._ids[piece.index])

    def _emit(self, event: AnyEvent) -> None:
        self._recorder.emit(event, self._agent)


class _ReplyProgress:
    """How much of a reply has arrived, and whether it is time to tell."""

    def __init__(self) -> None:
        self._chunks = 0
        self._chars = 0
        self._reported_at = time.monotonic()

    def add_chunk(self, piece: Chunk) -> bool:
        self._chunks += 1
        if isinstance(piece, TextChunk | ThinkingChunk):
            self._chars += len(piece.text)
        elif isinstance(piece, CallChunk):
            self._chars += len(piece.json)
        now = time.monotonic()
        due = now - self._reported_at >= PROGRESS_EVERY_S
        if due:
            self._reported_at = now
        return due

    def to_event(self) -> RequestProgressed:
        return RequestProgressed(self._chunks, self._chars)


def _partial_message_of(builder: ReplyBuilder) -> ReplyMessage | None:
    message = builder.finish(interrupted=True).message
    return message if message.text.strip() else None


def _call_ids_of(request: Request) -> set[str]:
    return {
        part.id
        for message in request.messages
        if isinstance(message, ReplyMessage)
        for part in message.parts
        if isinstance(part, ToolCall)
    }
