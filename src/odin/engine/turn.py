"""One turn: send a request, run the tool calls of the reply, and repeat until the model answers or a limit is reached.

However a turn ends, exactly one `TurnEnded` is recorded and the history stays valid for every provider.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from odin.context.system_prompt import describe_cached_files
from odin.core.call_events import ActivityChanged, Replied, ReplyDiscarded, StatusUpdated, ToolEnded, UsageRecorded
from odin.core.errors import (
    AgentShutdown,
    BudgetSpent,
    ContextOverflow,
    EmptyReply,
    EmptyTruncation,
    MalformedCalls,
    OdinError,
    OutputMismatch,
    ProviderError,
    UnreadableCall,
)
from odin.core.event import AnyEvent, ModeChanged, NoteAdded, TurnEnded, TurnStarted, Warned
from odin.core.event_values import CachedFile, ExitReason, Mode, Verification
from odin.core.message import ReplyMessage, ToolCall, Usage
from odin.core.provider import MalformedCall, ModelInfo, Provider, Reply, Request, ToolSpec
from odin.core.structured_output import (
    MAX_CORRECTIONS,
    STRUCTURED_OUTPUT,
    find_flaws,
    make_output_tool,
    parse_answer,
)
from odin.engine.cache_miss import find_cache_miss, make_mark
from odin.engine.call import CallScope, TurnCalls
from odin.engine.hooks import TurnHooks
from odin.engine.limits import CostBudget
from odin.engine.prompts import NO_CONTENT, AttachedContent, Steering
from odin.engine.recorder import Recorder
from odin.engine.stream import ModelFailover, ReplyStream, RetriesExhausted, RetryPolicy
from odin.policy.modes import get_mode_spec

if TYPE_CHECKING:
    from odin.engine.pipeline import CallPipeline
    from odin.engine.speculation import Speculator


class TurnLimits(msgspec.Struct, frozen=True):
    """Limits of one turn. `max_turns` counts requests, 0: no limit. `default_response` replaces an empty answer.

    `background_response` does so in a turn of the main agent that mail, a hook or a schedule has started.
    """

    max_turns: int = 100
    max_tokens: int = 8192
    temperature: float | None = None
    thinking: int = 0
    default_response: str = ""
    background_response: str = ""


class RequestTemplate(msgspec.Struct, frozen=True):
    """What all requests in one mode have in common: the model, its system prompt and its tools."""

    provider: Provider
    info: ModelInfo
    system: tuple[str, ...]
    tools: tuple[ToolSpec, ...]


class Compaction(Protocol):
    """Keeps one agent's conversation within the context window. Called only while no tool call is open.

    The methods are those of an agent without compaction.
    """

    async def prepare_request(self, template: RequestTemplate, scope: CallScope) -> None:
        """Make the next request fit. Raise CompactionFailed if that is impossible."""

    async def handle_overflow(self, template: RequestTemplate, scope: CallScope, error: ContextOverflow) -> bool:
        """The model rejected a request as too long. True if the conversation is shorter now and can be sent again."""
        return False

    @property
    def expected_tokens(self) -> int:
        """Estimated tokens of the next request; 0 if unknown."""
        return 0

    def record_usage(self, template: RequestTemplate, usage: Usage) -> None:
        """Take the measured usage of the last request."""

    def get_reply_room(self, template: RequestTemplate) -> int:
        """Maximum tokens of a reply; 0 if unknown."""
        return 0

    async def handle_cut_off(self, template: RequestTemplate, scope: CallScope) -> bool:
        """Replies keep hitting their length limit. True if there is more room for one now."""
        return False


class NoCompaction(Compaction):
    """No compaction: the conversation grows until the model rejects it."""


class TurnReview(msgspec.Struct, frozen=True):
    """`note` asks the model to continue, unless it is "". `stops_turn`: the user interrupted the review."""

    note: str = ""
    stops_turn: bool = False


class TurnVerifier(Protocol):
    """Verifies the file changes of one turn when the model has answered."""

    @property
    def verification(self) -> Verification | None:
        """The state so far; None if there is nothing to verify, or no check is known."""
        ...

    async def review(self, *, can_continue: bool) -> TurnReview:
        """Remind the model of the checks, or run them, depending on the settings.

        If the turn cannot continue, because its last request was the last one allowed, there is no note.
        """
        ...


async def _find_nothing(paths: Sequence[str]) -> Sequence[str]:
    return ()


class TurnDeps(msgspec.Struct, frozen=True):
    """The collaborators of a turn."""

    recorder: Recorder
    get_pipeline: Callable[[], "CallPipeline"]
    """Called when the request has been sent: its modules take long to load."""
    limits: TurnLimits
    retry: RetryPolicy
    template: Callable[[Mode], RequestTemplate]
    """The template for the next request in this mode. It may change between requests."""
    take_fresh_files: Callable[[], list[CachedFile]]
    """Return the files that entered the cache since the last call."""
    hooks: TurnHooks
    budget: CostBudget
    compaction: Compaction
    failover: ModelFailover
    clock: Callable[[], float] = time.monotonic
    """Measures the duration of the turn. It stands while the user answers a question or a permission request."""
    time_of_day: Callable[[], float] = time.time
    """Tells how long a request could be in the provider's cache."""
    take_late_warning: Callable[[], str] = lambda: ""
    """Return a warning about what processes in the background did since the last one, or ""."""
    make_verifier: Callable[[str, CallScope, TurnCalls], TurnVerifier | None] = lambda turn, scope, calls: None
    """Called at most once in a turn, with its id, when it has changed files."""
    find_instructions: Callable[[Sequence[str]], Awaitable[Sequence[str]]] = _find_nothing
    """Return notes with the instructions for these files that the model does not have."""


MAX_RECOVERIES = 2
MAX_MALFORMED_REPLIES = 3
ONE_STEP_NOTE = (
    "Your last reply was cut off by the length limit and was discarded. Take one small step now: "
    "one tool call with short arguments."
)
CUT_OFF_NOTE = "Your last reply was cut off by the length limit. There is more room now: go on where it stopped."
UNFINISHED_NOTE = (
    "Your last reply said that the task is not completed, but called no tool. Call a tool now, or, if there is nothing "
    "left to do, give the answer with taskCompleted true."
)
OUTPUT_NOTE = (
    "The final answer does not match the JSON schema that the user's program requires: {}. Call StructuredOutput with "
    "the whole answer, corrected."
)
OUTPUT_MISSING = "The model gave no answer that matches the JSON schema"
OUTPUT_HINT = "Use a simpler schema or another model, or resume with --continue."
LOOP_DETECTED = "The model kept repeating the same calls, so the turn was stopped."


class AgentTurn:
    """The running turn. `is_interrupted` distinguishes a cancellation by the user from the end of the session."""

    def __init__(
        self,
        deps: TurnDeps,
        started: TurnStarted,
        scope: CallScope,
        *,
        steering: Steering,
        take_unsent: Callable[[], NoteAdded | None],
        by_user: bool,
        attach: Callable[[], Awaitable[AttachedContent]] | None,
        on_ended: Callable[[TurnEnded], bool],
    ) -> None:
        """`take_unsent` returns context that arrived outside the turn, for the next request.

        `steering` injects prompts into the running turn. `by_user` is False for a turn the agent started by itself.
        `attach` reads the attachments of the prompt. `on_ended` is called as the turn ends and returns True if the
        agent continues by itself.
        """
        self.is_interrupted = False
        self.has_started = False
        self.has_ended = False
        self._deps = deps
        self._started = started
        self._calls = TurnCalls(deps.recorder.state.file_history, scope.agent)
        self._scope = scope = msgspec.structs.replace(scope, on_result=self._calls.add)
        self._verifier: TurnVerifier | None = None
        self._take_unsent = take_unsent
        self._steering = steering
        self._is_by_user = by_user
        self._attach = attach
        self._on_ended = on_ended
        self._hook_continues = 0
        self._stream = ReplyStream(deps.recorder, scope.agent, lambda: self._speculator, deps.time_of_day)
        self._started_at = deps.clock()
        self._steps = 0
        self._usage = Usage()
        self._cost = 0.0
        self._text = ""
        self._recoveries = 0
        self._malformed = 0
        self._has_compacted = False
        self._output: dict[str, Any] | None = None
        self._output_flaws = ""
        self._corrections = 0

    @cached_property
    def _speculator(self) -> "Speculator":
        return self._deps.get_pipeline().speculator.observe_reply(self._scope)

    @property
    def mode(self) -> Mode:
        """The mode of the turn now. It changes when the user approves a plan."""
        return self._scope.mode

    def switch_mode(self, mode: Mode) -> None:
        self._scope.mode = mode
        self._emit(ModeChanged(mode))

    async def run(self) -> TurnEnded:
        """Run to the end and return it. Raise CancelledError only after the end has been recorded."""
        self.has_started = True
        try:
            attached = await self._start()
            if self.is_interrupted:
                return self._end_turn("interrupted")
            await self._deps.hooks.fire_session_start(self._scope.mode)
            if self._is_by_user:
                await self._deps.hooks.fire_prompt_submit(self._started.text, self._scope.mode)
            for event in attached.to_events():
                self._emit(event)
            self._calls.touched += [file.path for file in attached.files]
            return self._end_turn(*await self._run_steps())
        except asyncio.CancelledError:
            self._keep_partial_text()
            ended = self._end_turn("interrupted" if self.is_interrupted else "aborted")
            if self.is_interrupted:
                return ended
            raise
        except RetriesExhausted as failure:
            error = failure.error
            if isinstance(error, EmptyTruncation):
                return self._end_turn("max_tokens", self._text)
            if isinstance(error, BudgetSpent):
                return self._end_turn("error_max_budget_usd", self._text, error)
            if isinstance(error, UnreadableCall):
                self._emit(Warned(str(error), "info"))
            if isinstance(error, EmptyReply):
                return self._end_turn("end_turn")
            self._keep_partial_text()
            return self._end_turn("error", self._text, error)
        except AgentShutdown as error:
            return self._end_turn("aborted", error=error)
        except OdinError as error:
            return self._end_turn("error", error=error)
        except Exception as error:  # a bug in Odin must not leave front ends waiting for the end
            fault = OdinError(f"Internal error ({type(error).__name__}: {error}).", "The session is saved; try again.")
            return self._end_turn("error", error=fault)

    async def _start(self) -> AttachedContent:
        """Record the prompt with its attachments; without them if reading them is interrupted."""
        attached = NO_CONTENT
        try:
            if self._attach is not None and not self.is_interrupted:
                attached = await self._attach()
        finally:
            notes = (*self._started.notes, *attached.notes)
            self._started = msgspec.structs.replace(self._started, notes=notes, images=attached.images)
            self._emit(self._started)
        return attached

    def abandon(self) -> None:
        """Record the end of a turn that was cancelled before it started."""
        if not self.has_started:
            self.has_started = True
            self._emit(self._started)
            self._end_turn("aborted")

    async def _run_steps(self) -> tuple[ExitReason, str]:
        """Run the turn and roll back every speculative call that does not count, however the turn ends."""
        try:
            return await self._run_until_done()
        except asyncio.CancelledError:
            await self._speculator.rollback("interrupted")
            raise
        finally:
            await self._speculator.rollback("not_run")

    async def _run_until_done(self) -> tuple[ExitReason, str]:
        while True:
            if (limit := self._check_limits()) is not None:
                return limit, self._text
            if self._malformed >= MAX_MALFORMED_REPLIES:
                raise MalformedCalls(MAX_MALFORMED_REPLIES)
            try:
                reply = await self._request_reply()
            except RetriesExhausted as failure:
                if self._started.output_schema is None or type(failure.error) is not EmptyReply:
                    raise
                self._emit(ReplyDiscarded("the reply was empty"))
                if not self._correct_output("it is empty"):
                    raise
                continue
            message = self._accept_reply(reply)
            if message is None:
                cut = reply.message.stop == "max_tokens"
                await self._speculator.rollback("length_recovery" if cut else "args_invalid")
                if self._recoveries > MAX_RECOVERIES and not await self._make_room():
                    return "max_tokens", self._text
                continue
            self._emit(Replied(message))
            if reply.note:
                self._emit(Warned(reply.note))
            self._text = message.text or self._text
            await self._deps.hooks.fire_after_reply(message, self._scope.mode)
            schema, self._output = self._started.output_schema, None
            calls = tuple(call for call in message.calls if schema is None or call.name != STRUCTURED_OUTPUT)
            if calls:
                if message.text.strip():
                    self._emit(StatusUpdated(message.text.strip()))
                count = len(calls)
                self._emit(ActivityChanged("executing", f"{count} tools" if count > 1 else calls[0].name))
                stop = await self._deps.get_pipeline().run_all(calls, self._scope)
                self._deps.hooks.raise_if_halted()
                if stop:
                    self.is_interrupted = True
                    return "interrupted", self._text
                if self._scope.answer and schema is None:
                    return "end_turn", self._scope.answer
                self._scope.guard.raise_if_stuck(lambda: self._make_template().info)
                if self._scope.guard.is_stuck:
                    return "loop_detected", self._text
                if calls == message.calls:
                    continue
            if await self._should_continue(message):
                continue
            if self.is_interrupted:
                return "interrupted", self._text
            if message.stop == "max_tokens" and self._output is None:
                return "max_tokens", message.text
            return "end_turn", message.text if schema is None else self._text

    async def _make_room(self) -> bool:
        """Compact once per turn to give cut-off replies more room. True if there is more room now."""
        if self._has_compacted or not await self._deps.compaction.handle_cut_off(self._make_template(), self._scope):
            return False
        self._has_compacted = True
        self._recoveries = 0
        return True

    async def _should_continue(self, message: ReplyMessage) -> bool:
        """True if the turn continues after a reply without tool calls.

        The reply was cut off and there is more room now, a prompt waits to be injected, the model said that the task is
        not done, its answer does not match the schema, its changes are not verified, or a stop hook wants it.
        """
        is_open = message.stop in ("max_tokens", "unfinished") or self._steering.has_waiting()
        if self._started.output_schema is not None and (message.calls or not is_open):
            calls = [call for call in message.calls if call.name == STRUCTURED_OUTPUT]
            found = calls[-1].args if calls else parse_answer(message.text)
            flaws = find_flaws(self._started.output_schema, found)
            if calls or not flaws:
                self._text = msgspec.json.encode(found).decode()
            if flaws:
                return self._correct_output(flaws, calls)
            self._output, self._corrections = found, 0
            for call in calls:
                self._emit(ToolEnded(call.id, call.name, "success", "The answer was accepted."))
        elif message.stop == "max_tokens":
            has_room = await self._make_room()
            if has_room:
                self._emit(NoteAdded(CUT_OFF_NOTE))
            return has_room
        if self._steering.has_waiting():
            return True
        if message.stop == "unfinished":
            self._emit(NoteAdded(UNFINISHED_NOTE))
            return True
        if await self._verify_changes():
            return True
        if self.is_interrupted:
            return False
        text = message.text if self._output is None else self._text
        continues = await self._deps.hooks.should_continue(text, self._scope.mode, self._hook_continues)
        self._hook_continues += continues
        return continues

    def _correct_output(self, flaws: str, calls: Sequence[ToolCall] = ()) -> bool:
        """Tell the model why its answer does not match the schema. False if it was told often enough."""
        self._output_flaws = flaws
        self._corrections += 1
        told = OUTPUT_NOTE.format(flaws)
        for call in calls:
            self._emit(ToolEnded(call.id, call.name, "error", told))
        if not calls and self._corrections <= MAX_CORRECTIONS:
            self._emit(NoteAdded(told))
        return self._corrections <= MAX_CORRECTIONS

    async def _verify_changes(self) -> bool:
        """True if the model has to continue because of the checks, or because a prompt came in while they ran."""
        if not self._calls.has_changes or not get_mode_spec(self._scope.mode).allows_changes:
            return False
        self._verifier = self._verifier or self._deps.make_verifier(self._started.id, self._scope, self._calls)
        if self._verifier is None:
            return False
        limits = self._deps.limits
        is_last = bool(limits.max_turns) and self._steps >= limits.max_turns
        can_continue = not is_last and self._deps.budget.get_refusal() is None
        review = await self._verifier.review(can_continue=can_continue)
        self._deps.hooks.raise_if_halted()
        self.is_interrupted = self.is_interrupted or review.stops_turn
        if review.note:
            self._emit(NoteAdded(review.note))
        return not review.stops_turn and (bool(review.note) or self._steering.has_waiting())

    def _check_limits(self) -> ExitReason | None:
        limits = self._deps.limits
        if limits.max_turns and self._steps >= limits.max_turns:
            return "max_turns"
        if refusal := self._deps.budget.get_refusal():
            raise RetriesExhausted(refusal)
        return None

    async def _request_reply(self) -> Reply:
        files = self._deps.take_fresh_files()
        if files:
            self._emit(NoteAdded(describe_cached_files(files)))
        touched, self._calls.touched = self._calls.touched, []
        for note in await self._deps.find_instructions(touched) if touched else ():
            self._emit(NoteAdded(note))
        if (unsent := self._take_unsent()) is not None:
            self._emit(unsent)
        await self._steering.inject_prompts(lambda text: self._deps.hooks.get_prompt_refusal(text, self._scope.mode))
        await self._deps.hooks.fire_before_request(self._scope.mode)
        (failover := self._deps.failover).begin_request()
        template = self._make_template()
        await self._deps.compaction.prepare_request(template, self._scope)
        while True:
            if refusal := self._deps.budget.get_refusal(template.info):
                raise RetriesExhausted(refusal)
            self._steps += 1
            account = partial(self._record_usage, template)
            try:
                request, expected = self._build_request(template), self._deps.compaction.expected_tokens
                retry = failover.limit_retries(self._deps.retry)
                await self._deps.recorder.wait_until_synced()
                reply = await self._stream.run(template.provider, request, retry, account, expected)
            except RetriesExhausted as failure:
                if isinstance(failure.error, BudgetSpent):
                    raise
                if not await self._shrink_to_fit(template, failure.error):
                    if not (following := await failover.fail_over(template.info.ref, failure.error)):
                        raise
                    await self._stream.wait_for_round(failure.error, following)
                    template = self._make_template()
                    await self._deps.compaction.prepare_request(template, self._scope)
            else:
                failover.record_reply()
                return reply

    def _make_template(self) -> RequestTemplate:
        return self._deps.template(self._scope.mode)

    async def _shrink_to_fit(self, template: RequestTemplate, error: ProviderError) -> bool:
        """True if the conversation is shorter now after a request that was too long or left no room for a reply."""
        if isinstance(error, EmptyTruncation):
            return await self._make_room()
        return isinstance(error, ContextOverflow) and await self._deps.compaction.handle_overflow(
            template, self._scope, error
        )

    def _build_request(self, template: RequestTemplate) -> Request:
        limits, options, schema = self._deps.limits, template.info.options, self._started.output_schema
        temperatures = self._started.temperature, options.temperature, limits.temperature
        thread = self._deps.recorder.state.get_thread(self._scope.agent)
        thinking = limits.thinking if template.info.thinking else 0
        thinking = thinking if options.thinking is None else options.thinking
        max_tokens = self._started.max_tokens or options.max_tokens or limits.max_tokens
        max_tokens = min(max_tokens, template.info.max_output or max_tokens)
        if room := self._deps.compaction.get_reply_room(template):
            thinking, max_tokens = min(thinking, room // 2), min(max_tokens, room)
        return Request(
            model=template.info.id,
            messages=thread.build_history(),
            system=(*template.system, thread.summary) if thread.summary else template.system,
            tools=template.tools if schema is None else (*template.tools, make_output_tool(schema)),
            max_tokens=max_tokens,
            temperature=next((value for value in temperatures if value is not None), None),
            thinking=thinking,
            images=template.info.images,
            agent=self._scope.agent,
            effort=options.effort,
            service_tier=options.service_tier,
            max_output=template.info.max_output,
            session=self._deps.recorder.state.session,
        )

    def _record_usage(self, template: RequestTemplate, usage: Usage, *, estimated: bool = False) -> BudgetSpent | None:
        """Record the usage of one request. Return the refusal if the budget is spent."""
        if usage.total == 0:
            return None
        info = template.info
        if not estimated:
            self._deps.compaction.record_usage(template, usage)
        cost = info.calculate_cost(usage)
        self._usage += usage
        self._cost += cost
        name = f"{info.provider}/{info.id}" if info.provider else info.id
        event = UsageRecorded(name, usage, cost, info.context, free=info.free, estimated=estimated)
        self._emit(self._explain_cache(event))
        return self._deps.budget.get_refusal()

    def _explain_cache(self, event: UsageRecorded) -> UsageRecorded:
        """Return the event with what was sent, and with what the provider's cache did not have any more."""
        sent, at = self._stream.sent, self._stream.sent_at
        if sent is None:
            return event
        last = self._deps.recorder.state.totals.last_requests.get(self._scope.agent)
        miss = None
        if last is not None and not event.estimated:
            miss = find_cache_miss(last, event.model, event.usage, sent, at)
        return msgspec.structs.replace(event, sent=make_mark(sent, at), cache_miss=miss)

    def _accept_reply(self, reply: Reply) -> ReplyMessage | None:
        """Return the message to record, or None if the reply is discarded and the model is asked again."""
        message = reply.message
        bad = [
            *reply.malformed_calls,
            *(MalformedCall(call.name, "{}") for call in message.calls if self._is_missing_arguments(call)),
        ]
        calls = [call for call in message.calls if not self._is_missing_arguments(call)]
        if bad and message.stop == "max_tokens":
            self._recoveries += 1
            self._emit(ReplyDiscarded("the reply was cut off by the length limit in a tool call"))
            if self._recoveries <= MAX_RECOVERIES:
                self._emit(NoteAdded(ONE_STEP_NOTE))
            return None
        if bad:
            self._malformed += 1
            if not calls:
                self._emit(ReplyDiscarded("the tool call could not be read"))
                self._emit(NoteAdded(_format_malformed_note(bad)))
                return None
        else:
            self._malformed = self._malformed + 1 if message.stop == "unfinished" else 0
        if self._recoveries and calls:
            calls = calls[:1]
        self._recoveries = 0
        kept = tuple(part for part in message.parts if not isinstance(part, ToolCall) or part in calls)
        return msgspec.structs.replace(message, parts=kept)

    def _is_missing_arguments(self, call: ToolCall) -> bool:
        tool = self._deps.get_pipeline().registry.get(call.name)
        return tool is not None and not call.args and bool(tool.build_spec().schema.get("required"))

    def _keep_partial_text(self) -> None:
        """Keep text that was streamed before the turn was cut off, marked as interrupted."""
        partial_message = self._stream.take_partial()
        if partial_message is not None:
            self._text = partial_message.text
            self._emit_anyway(Replied(partial_message))

    def _end_turn(self, reason: ExitReason, text: str = "", error: OdinError | None = None) -> TurnEnded:
        if reason == "end_turn" and self._started.output_schema is not None and self._output is None:
            why = f": {self._output_flaws}." if self._output_flaws else "."
            reason, error = "error_max_structured_output_retries", OutputMismatch(f"{OUTPUT_MISSING}{why}", OUTPUT_HINT)
        thread = self._deps.recorder.state.get_thread(self._scope.agent)
        for call in thread.open_calls:
            self._emit_anyway(ToolEnded(call.id, call.name, "cancelled", thread.get_interruption_text(call.id)))
        if warning := self._deps.take_late_warning():
            self._emit_anyway(Warned(warning))
        with suppress(OdinError):
            self._steering.finish_turn(reason, checked=self._deps.hooks.has_prompt_hooks)
        if reason == "end_turn" and not text.strip():
            asked = self._scope.agent or self._started.source in ("user", "channel")
            text = self._deps.limits.default_response if asked else self._deps.limits.background_response
        ended = TurnEnded(
            id=self._started.id,
            reason=reason,
            text=text or self._text,
            steps=self._steps,
            usage=self._usage,
            cost_usd=self._cost,
            duration_ms=int((self._deps.clock() - self._started_at) * 1000),
            api_ms=int(self._stream.seconds * 1000),
            error=str(error) if error else _ENDING_TEXTS.get(reason, ""),
            error_kind=error.kind if error else "",
            hint=error.hint if error else "",
            verification=self._verifier.verification if self._verifier is not None else None,
            plan_path=self._scope.plan_path,
            structured_output=self._output if reason == "end_turn" else None,
            all_denied=bool(self._scope.is_denied)
            and not self._calls.has_changes
            and get_mode_spec(self._scope.mode).allows_changes,
            **_get_api_fields(error),
        )
        self.has_ended = True
        self._emit_anyway(ended)
        if not self._on_ended(ended):
            self._emit(ActivityChanged("idle", reason))
        self._deps.hooks.report_error(ended, self._scope.mode)
        return ended

    def _emit(self, event: AnyEvent) -> None:
        self._deps.recorder.emit(event, self._scope.agent)

    def _emit_anyway(self, event: AnyEvent) -> None:
        """Emit although the log may fail: a turn always ends, and its last event reports the failure."""
        with suppress(OdinError):
            self._emit(event)


_ENDING_TEXTS: dict[str, str] = {
    "max_turns": "The limit of model requests per prompt was reached.",
    "max_tokens": "The reply was cut off by its length limit.",
    "loop_detected": LOOP_DETECTED,
    "interrupted": "The turn was interrupted.",
    "aborted": "The turn was aborted.",
}


def _get_api_fields(error: OdinError | None) -> dict[str, Any]:
    if not isinstance(error, ProviderError):
        return {}
    return {
        "error_status": error.status,
        "error_code": error.code,
        "error_type": error.type,
        "retry_after_s": error.retry_after,
    }


def _format_malformed_note(bad: list[MalformedCall]) -> str:
    names = ", ".join(sorted({call.name or "?" for call in bad}))
    return (
        f"Your last tool call ({names}) was discarded: its arguments were not a complete JSON object with the required "
        "fields. Send it again, correctly."
    )
