"""Model requests: streams one reply, with visible retries, and runs small jobs on the small model.

Chunks become events and add up to a message. Speculative calls are rolled back when a reply fails, so a retry does
nothing twice. Reasoning is published a few times a second while it streams, then once per block as a whole.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from odin.core.background_prompts import TITLE_PROMPT, BackgroundPrompt
from odin.core.call_events import (
    ActivityChanged,
    CallStreamed,
    RateLimitUpdated,
    ReplyDrafted,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
    UsageRecorded,
)
from odin.core.errors import (
    EmptyReply,
    EmptyTruncation,
    OdinError,
    ProviderError,
    RateLimited,
    ReplyBlocked,
    StreamCut,
    StreamStalled,
)
from odin.core.event import AnyEvent, TitleSet, TurnEnded
from odin.core.event_values import DiscardReason
from odin.core.message import PromptMessage, ReplyMessage, Usage
from odin.core.provider import (
    CallChunk,
    Chunk,
    ModelInfo,
    Provider,
    RateLimitChunk,
    Reply,
    ReplyBuilder,
    Request,
    RollbackChunk,
    SentPrompt,
    StopChunk,
    TextChunk,
    ThinkingChunk,
    TimeSlice,
    WaitChunk,
    open_stream,
    parse_arguments,
)
from odin.engine.limits import CostBudget
from odin.engine.recorder import Recorder


class RetryPolicy(msgspec.Struct, frozen=True):
    """Exponential backoff with jitter; a longer Retry-After of the server wins.

    If the server asks for more than `max_s`, the error is reported instead, with the time it names.
    """

    attempts: int = 6
    empty_attempts: int = 2
    base_s: float = 0.5
    max_s: float = 60.0
    grows: bool = True

    def get_max_attempts(self, error: ProviderError) -> int:
        """Maximum number of attempts for this kind of error; 0 for no limit."""
        if isinstance(error, EmptyReply):
            return min(self.attempts or self.empty_attempts, self.empty_attempts)
        return self.attempts

    def compute_backoff(self, attempt: int) -> float:
        """Return the usual seconds to wait after attempt number `attempt` (from 1)."""
        return min(self.max_s, self.base_s * 2 ** (min(attempt, 30) - 1) if self.grows else self.base_s)

    def compute_delay(self, error: ProviderError, attempt: int) -> float | None:
        """Return the seconds to wait after attempt number `attempt` (from 1) failed, or None to give up."""
        most = self.get_max_attempts(error)
        if not error.retryable or (most and attempt >= most):
            return None
        asked = error.retry_after or 0.0
        if asked > self.max_s:
            return None
        import random

        return min(self.max_s, max(asked, self.compute_backoff(attempt)) * random.uniform(1.0, 1.25))


class NextModel(msgspec.Struct, frozen=True):
    """Which model answers next was decided. It is asked after `wait_s`, in this `round` of `rounds`."""

    wait_s: float = 0.0
    round: int = 0
    rounds: int = 0


class ModelFailover(Protocol):
    """Chooses the model of each request of one agent."""

    def begin_request(self) -> None:
        """A request follows: the selected model may return."""
        ...

    def limit_retries(self, usual: RetryPolicy) -> RetryPolicy: ...

    def record_reply(self) -> None:
        """The model has answered."""
        ...

    async def fail_over(self, failed: str, error: ProviderError) -> NextModel | None:
        """Switch to another model than `failed`. None if no model is left."""
        ...


FLUSH_EVERY_S = 0.15
"""Reasoning is published at most this often: some models send one chunk per token."""


class ReasoningStream:
    """Publishes the reasoning of one reply. A timer runs only while chunks wait to be published."""

    def __init__(self, emit: Callable[[AnyEvent], None]) -> None:
        self._emit = emit
        self._started_at: float | None = None
        self._block: list[str] = []
        self._waiting: list[str] = []
        self._final = ""
        self._timer: asyncio.TimerHandle | None = None

    def add_chunk(self, chunk: ThinkingChunk) -> None:
        if chunk.text or chunk.final:
            if self._started_at is None:
                self._started_at = time.monotonic()
                self._emit(ThinkingStarted())
            self._final = chunk.final or self._final
        if chunk.text:
            self._block.append(chunk.text)
            self._waiting.append(chunk.text)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self._flush)
        if chunk.signature:
            self.end()

    def end(self) -> None:
        """End the open block, if any. The final text of the provider replaces the streamed one."""
        if self._started_at is None:
            return
        self._flush()
        text = self._final or "".join(self._block)
        seconds = round(time.monotonic() - self._started_at, 3)
        self.drop()
        self._emit(ThinkingEnded(text, seconds))

    def drop(self) -> None:
        """Drop an unfinished block: the reply starts again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._started_at, self._final = None, ""
        self._block, self._waiting = [], []

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._emit(ThinkingStreamed("".join(waiting)))


DRAFT_EVERY_S = 2.0
"""How often the text that has streamed is recorded, so that a crash does not lose a long answer."""

PROGRESS_EVERY_S = 0.3
"""Interval of `RequestProgressed` events."""

CHARS_PER_TOKEN = 4
"""For the estimate of a reply whose usage the provider did not report."""


class AccountUsage(Protocol):
    def __call__(self, usage: Usage, *, estimated: bool = False) -> ProviderError | None:
        """Account for the usage of one attempt. Return an error to forbid another attempt."""
        ...


def _ignore_usage(usage: Usage, *, estimated: bool = False) -> None:
    return


class RetriesExhausted(Exception):
    """The request failed for good; `error` is the last failure."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


_HEAD_START_S = 0.02
"""The request is sent first; what observes the calls of its reply is loaded while the model works."""


class CallObserver(Protocol):
    """Observes tool calls while their reply is streamed: speculation."""

    def on_call_started(self, call_id: str) -> None: ...

    def on_call_complete(self, call_id: str, name: str, args: dict[str, Any] | None) -> None: ...

    async def rollback(self, reason: DiscardReason) -> None: ...


class ReplyStream:
    """Requests the replies of one turn. `seconds` is the time spent waiting for the provider.

    `sent` is what the last request has sent at the time `sent_at` of the `clock`; None if the provider does not say.
    """

    def __init__(
        self,
        recorder: Recorder,
        agent: str,
        get_observer: Callable[[], CallObserver],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.seconds = 0.0
        self.sent: SentPrompt | None = None
        self.sent_at = 0.0
        self._clock = clock
        self._get_observer = get_observer
        self._recorder = recorder
        self._retry = RetryPolicy()
        self._agent = agent
        self._builder = ReplyBuilder()
        self._reasoning = ReasoningStream(self._emit)
        self._account_usage: AccountUsage = _ignore_usage
        self._expected_tokens = 0
        self._is_accepted = False  # by the provider, which then counts the tokens
        self._refusal: ProviderError | None = None
        self._request_count = 0
        self._partial_message: ReplyMessage | None = None
        self._progress = _ReplyProgress()
        self._ids: dict[int, str] = {}

    async def run(
        self, provider: Provider, request: Request, retry: RetryPolicy, account: AccountUsage, tokens: int = 0
    ) -> Reply:
        """Return the reply, retrying as needed. `account` is called after each attempt and may forbid another.

        `tokens` is the estimated size of the request. Raise RetriesExhausted if it fails for good.
        """
        if self._builder.has_started:
            self._emit(ReplyRolledBack("requested again"))
        self._retry = retry
        self._request_count += 1
        self._emit(RequestStarted(self._request_count, request.model, tokens))
        self._account_usage = account
        self._expected_tokens = tokens
        attempt = 0
        while True:
            attempt += 1
            self._builder = ReplyBuilder(provider.name, request.model)
            self._progress = _ReplyProgress()
            self._is_accepted = False
            self.sent = None
            self._ids = {}
            try:
                return await self._try_once(provider, request)
            except ProviderError as error:
                await self._get_observer().rollback("rollback")
                delay = self._retry.compute_delay(error, attempt)
                if delay is None or self._refusal is not None:
                    self._reasoning.end()
                    raise RetriesExhausted(error if delay is None else self._refusal or error) from error
                # Keep the streamed text in case no later attempt has any.
                self._reasoning.drop()
                if self._builder.has_started:
                    self._partial_message = _make_partial_message(self._builder) or self._partial_message
                    self._emit(ReplyRolledBack(error.kind))
                await self._wait(error, attempt, self._retry.get_max_attempts(error), delay)
            except asyncio.CancelledError:
                self._reasoning.end()
                raise

    def take_partial(self) -> ReplyMessage | None:
        """Return the text of an unfinished reply, from the last attempt that had any, and forget it."""
        message = _make_partial_message(self._builder) or self._partial_message
        self._builder, self._partial_message = ReplyBuilder(), None
        return message

    def _report_usage(self) -> None:
        """Account for the usage of this attempt: as reported, or estimated if the provider has not reported it."""
        usage, estimated = measure_usage(self._builder, self._expected_tokens, is_accepted=self._is_accepted)
        self._refusal = self._account_usage(usage, estimated=estimated)

    async def _try_once(self, provider: Provider, request: Request) -> Reply:
        started_at = time.monotonic()
        time_slice = TimeSlice()
        try:
            async with open_stream(provider, request) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, RollbackChunk):
                        await self._get_observer().rollback("rollback")
                    self._handle_chunk(chunk, provider.name)
                    await time_slice.maybe_yield()
            if self._builder.stop is None:
                raise StreamCut("The reply ended before it was complete.", "Try again.")
        except ProviderError as error:
            self._is_accepted = _has_cost(error, self._builder, is_accepted=self._is_accepted)
            raise
        finally:
            self.seconds += time.monotonic() - started_at
            self._report_usage()
        reply = self._builder.finish()
        if reply.is_empty:
            if reply.message.stop == "max_tokens":
                raise EmptyTruncation("The reply hit its length limit before any text.", "Raise max_tokens.")
            if reply.message.stop == "refusal":
                raise ReplyBlocked("The model refused to answer.", "Rephrase the prompt, or use another model.")
            raise EmptyReply("The model returned an empty reply.")
        if reply.message.stop == "refusal" and (reply.message.calls or reply.malformed_calls):
            text = "The reply was blocked after tool calls, which did not run."
            raise ReplyBlocked(text, "Rephrase the prompt, or use another model.")
        self._emit(self._progress.to_event())
        self._builder, self._partial_message = ReplyBuilder(), None
        return reply

    async def wait_for_round(self, error: ProviderError, following: NextModel) -> None:
        """Wait before all models are asked again."""
        if following.wait_s:
            await self._wait(error, following.round, following.rounds, following.wait_s)

    async def _wait(self, error: ProviderError, attempt: int, total: int, delay: float) -> None:
        """Announce the next attempt and wait for it."""
        self._emit(scheduled := RetryScheduled(attempt, total, round(delay, 2), str(error), error.kind))
        if isinstance(error, RateLimited) and error.retry_after:
            self._emit(ActivityChanged("cooling", f"cooldown {math.ceil(delay)}s"))
        else:
            self._emit(ActivityChanged("retrying", f"retry {scheduled.number.replace(' of ', '/')}"))
        await asyncio.sleep(delay)

    def _handle_chunk(self, chunk: Chunk, provider: str) -> None:
        if isinstance(chunk, WaitChunk):
            self._is_accepted = chunk.activity == "waiting_token"
            self.sent = chunk.sent
            if chunk.activity == "waiting_headers":
                self.sent_at = self._clock()
                asyncio.get_running_loop().call_later(_HEAD_START_S, self._get_observer)
            self._emit(ActivityChanged(chunk.activity))  # pyright: ignore[reportArgumentType]
            return
        if isinstance(chunk, RateLimitChunk):
            self._emit(RateLimitUpdated(provider, **msgspec.structs.asdict(chunk)))
            return
        if isinstance(chunk, RollbackChunk):
            # The provider starts the reply again. What it has cost so far stays counted.
            self._report_usage()
            self._reasoning.drop()
            self._builder.add(chunk)
            self._progress = _ReplyProgress()
            self._ids = {}
            self._emit(ReplyRolledBack(chunk.reason))
            return
        if isinstance(chunk, CallChunk):
            if chunk.index not in self._ids:
                chosen = self._ids[chunk.index] = self._recorder.state.call_ids.choose(chunk.id)
                self._get_observer().on_call_started(chosen)
            chunk = msgspec.structs.replace(chunk, id=self._ids[chunk.index])
        fresh = not self._builder.has_started
        self._builder.add(chunk)
        if fresh and self._builder.has_started:
            self._emit(ActivityChanged("streaming"))
        if isinstance(chunk, TextChunk | CallChunk | StopChunk):
            self._reasoning.end()
        if isinstance(chunk, TextChunk):
            self._emit(TextStreamed(chunk.text))
        elif isinstance(chunk, ThinkingChunk):
            self._reasoning.add_chunk(chunk)
        elif isinstance(chunk, CallChunk):
            raw = self._builder.get_arguments(chunk.index)
            name = self._builder.get_call_name(chunk.index)
            if chunk.done:
                args = parse_arguments(raw)
                self._emit(CallStreamed(chunk.id, name, chunk.json, 0, True, args or {}))
                self._get_observer().on_call_complete(chunk.id, name, args)
            else:
                self._emit(CallStreamed(chunk.id, name, chunk.json, len(raw)))
        if self._progress.add_chunk(chunk):
            self._emit(self._progress.to_event())
            if draft := self._progress.take_draft():
                self._emit(draft)

    def _emit(self, event: AnyEvent) -> None:
        self._recorder.emit(event, self._agent)


class _ReplyProgress:
    """Counts what has arrived of a reply and tells when to report it."""

    def __init__(self) -> None:
        self._chunks = 0
        self._chars = 0
        self._drafted = 0
        self._undrafted: list[str] = []
        self._reported_at = self._drafted_at = time.monotonic()

    def add_chunk(self, chunk: Chunk) -> bool:
        self._chunks += 1
        if isinstance(chunk, TextChunk | ThinkingChunk):
            self._chars += len(chunk.text)
            if isinstance(chunk, TextChunk):
                self._undrafted.append(chunk.text)
        elif isinstance(chunk, CallChunk):
            self._chars += len(chunk.json)
        now = time.monotonic()
        due = now - self._reported_at >= PROGRESS_EVERY_S
        if due:
            self._reported_at = now
        return due

    def to_event(self) -> RequestProgressed:
        return RequestProgressed(self._chunks, self._chars)

    def take_draft(self) -> ReplyDrafted | None:
        """Return the text that has arrived since the last draft, or None if that was a moment ago."""
        if not self._undrafted or self._reported_at - self._drafted_at < DRAFT_EVERY_S:
            return None
        draft = ReplyDrafted("".join(self._undrafted), self._drafted)
        self._drafted += len(draft.text)
        self._undrafted, self._drafted_at = [], self._reported_at
        return draft


def _make_partial_message(builder: ReplyBuilder) -> ReplyMessage | None:
    message = builder.finish(interrupted=True).message
    return message if message.text.strip() else None


class _JobUsage:
    """The usage of a small job: as reported, or estimated."""

    def __init__(self, chars: int) -> None:
        self._input = chars // CHARS_PER_TOKEN
        self._spent: list[tuple[Usage, bool]] = []
        self._start()

    def _start(self) -> None:
        self._builder = ReplyBuilder()
        self._is_accepted = False

    def add_chunk(self, chunk: Chunk) -> None:
        if isinstance(chunk, RollbackChunk):
            self._end()
            self._start()
        elif isinstance(chunk, WaitChunk):
            self._is_accepted = chunk.activity == "waiting_token"
        else:
            self._builder.add(chunk)

    def mark_failed(self, error: ProviderError) -> None:
        self._is_accepted = _has_cost(error, self._builder, is_accepted=self._is_accepted)

    def list_spent(self) -> list[tuple[Usage, bool]]:
        """End the job and return the usage of each attempt, with whether it is an estimate."""
        self._end()
        return self._spent

    def _end(self) -> None:
        usage, estimated = measure_usage(self._builder, self._input, is_accepted=self._is_accepted)
        if usage.total:
            self._spent.append((usage, estimated))


def _has_cost(error: ProviderError, builder: ReplyBuilder, *, is_accepted: bool) -> bool:
    """True if a failed reply counts: something of it has arrived, or it broke off after the provider had accepted it.

    Such a reply may have cost reasoning that is not shown. A provider that reports an error first counts nothing.
    """
    return builder.has_started or (is_accepted and isinstance(error, StreamCut | StreamStalled))


def measure_usage(builder: ReplyBuilder, request_tokens: int, *, is_accepted: bool) -> tuple[Usage, bool]:
    """Return the usage of a reply, and whether it is an estimate: of a reply that was cut off, or of one whose usage
    the provider did not report. `is_accepted`: the provider has accepted the request."""
    is_reported = builder.stop is not None and builder.usage.total > 0
    if is_reported or not is_accepted:
        return builder.usage, False
    # What the provider reported, and an estimate of the rest.
    usage = builder.usage
    received = builder.count_chars() // CHARS_PER_TOKEN
    if usage.output + usage.reasoning < received:
        usage = msgspec.structs.replace(usage, output=received - usage.reasoning)
    if not usage.input + usage.cache_read + usage.cache_write:
        usage = msgspec.structs.replace(usage, input=max(1, request_tokens))
    return usage, True


ConnectModel = Callable[[], Awaitable[tuple[Provider, ModelInfo]]]


class SmallModel:
    """Runs small jobs on the model that `connect` returns.

    A job is not retried: it raises, and the caller continues without it.
    """

    def __init__(self, connect: ConnectModel, recorder: Recorder, budget: CostBudget) -> None:
        self._connect = connect
        self._recorder = recorder
        self._budget = budget

    async def ask(self, job: BackgroundPrompt, text: str, agent: str = "") -> str:
        provider, info = await self._connect()
        self._budget.check(info)
        request = Request(
            model=info.id,
            messages=(PromptMessage(text),),
            system=job.system,
            max_tokens=job.max_tokens,
            schema=job.schema,
            brief=True,
        )
        usage = _JobUsage(len(text) + sum(map(len, job.system)))
        parts: list[str] = []
        try:
            async with open_stream(provider, request) as pieces:
                async for piece in pieces:
                    usage.add_chunk(piece)
                    if isinstance(piece, TextChunk):
                        parts.append(piece.text)
                    elif isinstance(piece, RollbackChunk):
                        parts.clear()
        except ProviderError as error:
            usage.mark_failed(error)
            raise
        finally:
            for spent, estimated in usage.list_spent():
                cost = info.calculate_cost(spent)
                name = f"{info.provider}/{info.id}"
                event = UsageRecorded(name, spent, cost, info.context, job.name, info.free, estimated=estimated)
                self._recorder.emit(event, agent)
        answer = "".join(parts).strip()
        if not answer:
            raise EmptyReply(f"The small model returned nothing for the job {job.name!r}.")
        return answer


MAX_TITLE = 60
TITLE_DELAY_S = 0.2
"""Delay of the title after the first turn, so that a session with one prompt can end without waiting for it."""


async def give_title(recorder: Recorder, small_model: SmallModel) -> None:
    """Set the title of the session after its first turn. A session that ends before keeps its first line as title."""
    subscription = recorder.bus.subscribe(names=("agent_done", "agent_error", "turn_cancelled"))
    async for envelope in subscription:
        if isinstance(envelope.event, TurnEnded) and not envelope.agent and recorder.state.turns:
            break
    subscription.close()
    await asyncio.sleep(TITLE_DELAY_S)
    turns = recorder.state.turns
    if turns and not recorder.state.title:
        first = turns[0].body
        try:
            title = await small_model.ask(TITLE_PROMPT, first[:2000])
        except ProviderError:
            title = first
        if not recorder.state.title:
            with suppress(OdinError):  # the turn that needs the log reports that it cannot be written
                recorder.emit(TitleSet(" ".join(title.split())[:MAX_TITLE]))
