"""One turn: ask the model, run the tools it calls, ask again, until it answers or something ends it.

Whatever the ending, one terminal event is written and the history stays one that every provider accepts.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from odin.context.prompt import cached_files
from odin.core.errors import (
    AgentShutdown,
    BudgetSpent,
    ContextOverflow,
    EmptyReply,
    EmptyTruncation,
    MalformedCalls,
    OdinError,
    ProviderError,
    UnreadableCall,
)
from odin.core.event import (
    ActivityChanged,
    AnyEvent,
    ExitReason,
    Noted,
    Replied,
    ReplyDiscarded,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    Updated,
    UsageRecorded,
    Warned,
)
from odin.core.message import AssistantMessage, ToolCall, Usage
from odin.core.provider import ModelInfo, Request
from odin.core.reply import BadCall, Reply
from odin.engine.attaching import NOTHING, Attached
from odin.engine.call.admitted import Scope
from odin.engine.joining import Joining
from odin.engine.kit import Kit, Planner
from odin.engine.listen import GaveUp, Listener

MAX_RECOVERIES = 2
MAX_MALFORMED = 3
ONE_STEP = (
    "Your last reply was cut off by the length limit and was discarded. Take one small step now: "
    "one tool call with short arguments."
)
CUT_OFF = "Your last reply was cut off by the length limit. There is more room now: go on where it stopped."
LOOP_ADVICE = "The model kept repeating the same calls, so the turn was stopped."


class Turn:
    """The running turn. `interrupted` tells a cancel by the user from one by whoever owns the process."""

    def __init__(
        self,
        kit: Kit,
        started: TurnStarted,
        scope: Scope,
        news: Callable[[], str] = lambda: "",
        *,
        joining: Joining,
        asked: bool = True,
        attach: Callable[[], Awaitable[Attached]] | None = None,
        over: Callable[[TurnEnded], bool] = lambda ended: False,
    ) -> None:
        """`news` gives what happened outside the turn since it was last called; the model reads it at once.

        `joining` brings in what is said to the turn while it runs.

        `asked` says that somebody sent the prompt; the agent may also have begun by itself. `attach` reads what the
        prompt brings along. `over` hears of the end in the same step and says whether the agent goes on by itself.
        """
        self.interrupted = False
        self.begun = False
        self.ended = False
        self._kit = kit
        self._started = started
        self._scope = scope
        self._news = news
        self._joining = joining
        self._asked = asked
        self._attach = attach
        self._over = over
        self._kept_going = 0
        self._listener = Listener(kit.recorder, kit.retry, scope.agent, kit.gate.listen(scope))
        self._begun = time.monotonic()
        self._steps = 0
        self._usage = Usage()
        self._cost = 0.0
        self._text = ""
        self._recoveries = 0
        self._malformed = 0
        self._compacted = False

    async def run(self) -> TurnEnded:
        """Run to the end. Raises CancelledError only after the ending has been recorded."""
        self.begun = True
        try:
            attached = await self._start()
            if self.interrupted:
                return self._end("interrupted")
            await self._kit.hooks.begin(self._scope.mode)
            if self._asked:
                await self._kit.hooks.submitted(self._started.text, self._scope.mode)
            for event in attached.told():
                self._emit(event)
            return self._end(*await self._steps_to_the_end())
        except asyncio.CancelledError:
            self._keep_partial_text()
            ended = self._end("interrupted" if self.interrupted else "aborted")
            if self.interrupted:
                return ended
            raise
        except GaveUp as failure:
            return self._end_on_failure(failure.error)
        except AgentShutdown as error:
            return self._end("aborted", error=error)
        except OdinError as error:
            return self._end("error", error=error)
        except Exception as error:  # a fault of ours must not leave a front end waiting for the end of the turn
            fault = OdinError(
                f"Odin failed inside ({type(error).__name__}: {error}).", "The session is kept; try again."
            )
            return self._end("error", error=fault)

    async def _start(self) -> Attached:
        """The prompt enters the conversation with what it brings; also when that is interrupted, then without it."""
        attached = NOTHING
        try:
            if self._attach is not None and not self.interrupted:
                attached = await self._attach()
        finally:
            notes = (*self._started.notes, *attached.notes)
            self._started = msgspec.structs.replace(self._started, notes=notes, images=attached.images)
            self._emit(self._started)
        return attached

    def abandon(self) -> None:
        """Record the ending of a turn that was cancelled before it had run at all."""
        if not self.begun:
            self.begun = True
            self._emit(self._started)
            self._end("aborted")

    async def _steps_to_the_end(self) -> tuple[ExitReason, str]:
        """However it ends, no call stays that was begun early and does not count."""
        try:
            return await self._steps_until_done()
        except asyncio.CancelledError:
            await self._kit.gate.take_back("interrupted")
            raise
        finally:
            await self._kit.gate.take_back("not_run")

    async def _steps_until_done(self) -> tuple[ExitReason, str]:
        while True:
            limit = self._limit_reached()
            if limit is not None:
                return limit, self._text
            if self._malformed >= MAX_MALFORMED:
                raise MalformedCalls(MAX_MALFORMED)
            reply = await self._ask()
            message = self._accept(reply)
            if message is None:
                cut = reply.message.stop == "max_tokens"
                await self._kit.gate.take_back("length_recovery" if cut else "args_invalid")
                if self._recoveries > MAX_RECOVERIES and not await self._more_room():
                    return "max_tokens", self._text
                continue
            self._emit(Replied(message))
            self._text = message.text or self._text
            await self._kit.hooks.after_reply(message, self._scope.mode)
            if not message.calls:
                if not await self._goes_on(message):
                    return "max_tokens" if message.stop == "max_tokens" else "end_turn", message.text
                continue
            if message.text.strip():
                self._emit(Updated(message.text.strip()))
            stop = await self._run_calls(message.calls)
            self._kit.hooks.heed()
            if stop:
                self.interrupted = True
                return "interrupted", self._text
            if self._scope.guard.hopeless:
                return "loop_detected", self._text

    async def _more_room(self) -> bool:
        """Once in a turn, a shorter conversation may help a model whose replies are cut off."""
        if self._compacted or not await self._kit.compaction.cut_off(self._kit.planner(), self._scope):
            return False
        self._compacted = True
        self._recoveries = 0
        return True

    async def _goes_on(self, message: AssistantMessage) -> bool:
        """Whether the model is asked again although it has answered.

        Its answer was cut off and there is more room now, somebody said something meanwhile, or a stop hook wants it.
        """
        if message.stop == "max_tokens":
            more = await self._more_room()
            if more:
                self._emit(Noted(CUT_OFF))
            return more
        if self._joining.waits():
            return True
        goes_on = await self._kit.hooks.keeps_going(message.text, self._scope.mode, self._kept_going)
        self._kept_going += goes_on
        return goes_on

    def _limit_reached(self) -> ExitReason | None:
        limits = self._kit.limits
        if limits.max_turns and self._steps >= limits.max_turns:
            return "max_turns"
        if refusal := self._kit.budget.refusal():
            raise GaveUp(refusal)
        return None

    async def _ask(self) -> Reply:
        files = self._kit.fresh_files()
        if files:
            self._emit(Noted(cached_files(files)))
        if news := self._news():
            self._emit(Noted(news))
        await self._joining.come_in(lambda text: self._kit.hooks.refusal(text, self._scope.mode))
        await self._kit.hooks.before_request(self._scope.mode)
        planner = self._kit.planner()
        self._kit.budget.heed(planner.info)
        await self._kit.compaction.before_request(planner, self._scope)
        while True:
            self._steps += 1
            spent = partial(self._record_usage, planner)
            try:
                expected = self._kit.compaction.expected
                return await self._listener.ask(planner.provider, self._request(planner), spent, expected)
            except GaveUp as failure:
                if isinstance(failure.error, BudgetSpent):
                    raise
                if not await self._fits_now(planner, failure.error):
                    if not await self._kit.other_model(_name_of(planner.info), failure.error):
                        raise
                    planner = self._kit.planner()
                    await self._kit.compaction.before_request(planner, self._scope)

    async def _fits_now(self, planner: Planner, error: ProviderError) -> bool:
        """Whether a request that was refused as too long, or left no room for a reply, has become shorter."""
        if isinstance(error, EmptyTruncation):
            return await self._more_room()
        return isinstance(error, ContextOverflow) and await self._kit.compaction.overflowed(planner, self._scope, error)

    def _request(self, planner: Planner) -> Request:
        limits = self._kit.limits
        thread = self._kit.recorder.state.thread(self._scope.agent)
        thinking = limits.thinking if planner.info.thinking else 0
        most = min(limits.max_tokens, planner.info.max_output or limits.max_tokens)
        room = self._kit.compaction.reply_room(planner)
        if room:
            thinking, most = min(thinking, room // 2), min(most, room)
        return Request(
            model=planner.info.id,
            messages=thread.history(),
            system=(*planner.system, thread.summary) if thread.summary else planner.system,
            tools=planner.tools,
            max_tokens=most,
            temperature=limits.temperature,
            thinking=thinking,
            images=planner.info.images,
        )

    def _record_usage(self, planner: Planner, usage: Usage) -> BudgetSpent | None:
        """Write down what one call took. Gives the reason if there may be no other."""
        if usage.total == 0:
            return None
        info = planner.info
        self._kit.compaction.answered(planner, usage)
        cost = info.cost(usage)
        self._usage += usage
        self._cost += cost
        self._emit(UsageRecorded(_name_of(info), usage, cost, info.context, free=info.free))
        return self._kit.budget.refusal()

    def _accept(self, reply: Reply) -> AssistantMessage | None:
        """The message to store, or None when the reply is discarded and the model is asked again."""
        message = reply.message
        bad = [*reply.bad, *(BadCall(call.name, "{}") for call in message.calls if self._lacks_arguments(call))]
        calls = [call for call in message.calls if not self._lacks_arguments(call)]
        if bad and message.stop == "max_tokens":
            self._recoveries += 1
            self._discard("the reply was cut off by the length limit in a tool call")
            if self._recoveries <= MAX_RECOVERIES:
                self._emit(Noted(ONE_STEP))
            return None
        if bad:
            self._malformed += 1
            if not calls:
                self._discard("the tool call could not be read")
                self._emit(Noted(_malformed_note(bad)))
                return None
        else:
            self._malformed = 0
        if self._recoveries and calls:
            calls = calls[:1]
        self._recoveries = 0
        kept = tuple(part for part in message.parts if not isinstance(part, ToolCall) or part in calls)
        return msgspec.structs.replace(message, parts=kept)

    def _lacks_arguments(self, call: ToolCall) -> bool:
        tool = self._kit.gate.registry.get(call.name)
        return tool is not None and not call.args and bool(tool.spec().schema.get("required"))

    def _discard(self, reason: str) -> None:
        self._emit(ReplyDiscarded(reason))

    async def _run_calls(self, calls: tuple[ToolCall, ...]) -> bool:
        count = len(calls)
        self._emit(ActivityChanged("executing", f"{count} tools" if count > 1 else calls[0].name))
        return await self._kit.gate.run_all(calls, self._scope)

    def _end_on_failure(self, error: ProviderError) -> TurnEnded:
        if isinstance(error, EmptyTruncation):
            return self._end("max_tokens", self._text)
        if isinstance(error, BudgetSpent):
            return self._end("error_max_budget_usd", self._text, error)
        if isinstance(error, UnreadableCall):
            self._emit(Warned(str(error), "info"))
        if isinstance(error, EmptyReply):
            return self._end("end_turn", self._kit.limits.default_response)
        self._keep_partial_text()
        return self._end("error", self._text, error)

    def _keep_partial_text(self) -> None:
        """What was streamed before the cut stays in the conversation, marked as interrupted."""
        begun = self._listener.partial()
        if begun is not None:
            self._text = begun.text
            self._emit_anyway(Replied(begun))

    def _end(self, reason: ExitReason, text: str = "", error: OdinError | None = None) -> TurnEnded:
        thread = self._kit.recorder.state.thread(self._scope.agent)
        for call in thread.open_calls:
            self._emit_anyway(ToolEnded(call.id, call.name, "cancelled", thread.unfinished(call.id)))
        with suppress(OdinError):
            self._joining.end(reason, judged=self._kit.hooks.judges_prompts)
        if reason == "end_turn" and not text.strip():
            text = self._kit.limits.default_response
        ended = TurnEnded(
            id=self._started.id,
            reason=reason,
            text=text or self._text,
            steps=self._steps,
            usage=self._usage,
            cost_usd=self._cost,
            duration_ms=int((time.monotonic() - self._begun) * 1000),
            api_ms=int(self._listener.seconds * 1000),
            error=str(error) if error else _ENDINGS.get(reason, ""),
            error_kind=error.kind if error else "",
            hint=error.hint if error else "",
            **_told_by_api(error),
        )
        self.ended = True
        self._emit_anyway(ended)
        if not self._over(ended):
            self._emit(ActivityChanged("idle", reason))
        self._kit.hooks.failed(ended, self._scope.mode)
        return ended

    def _emit(self, event: AnyEvent) -> None:
        self._kit.recorder.emit(event, self._scope.agent)

    def _emit_anyway(self, event: AnyEvent) -> None:
        """A turn always ends: what could not be saved is said in the event that ends it."""
        with suppress(OdinError):
            self._emit(event)


_ENDINGS: dict[str, str] = {
    "max_turns": "The limit of model calls for one prompt was reached.",
    "max_tokens": "The reply was cut off by its length limit.",
    "loop_detected": LOOP_ADVICE,
    "interrupted": "The turn was interrupted.",
    "aborted": "The turn was aborted.",
}


def _told_by_api(error: OdinError | None) -> dict[str, Any]:
    if not isinstance(error, ProviderError):
        return {}
    return {
        "error_status": error.status,
        "error_code": error.code,
        "error_type": error.type,
        "retry_after_s": error.retry_after,
    }


def _name_of(info: ModelInfo) -> str:
    return f"{info.provider}/{info.id}" if info.provider else info.id


def _malformed_note(bad: list[BadCall]) -> str:
    names = ", ".join(sorted({call.name or "?" for call in bad}))
    return (
        f"Your last tool call ({names}) was discarded: its arguments were not a complete JSON object with the required "
        "fields. Send it again, correctly."
    )
