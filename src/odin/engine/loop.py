"""One turn: ask the model, run the tools it calls, ask again, until it answers or something ends it.

Whatever the ending, one terminal event is written and the history stays one that every provider accepts.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from odin.context.prompt import cached_files
from odin.core.errors import AgentShutdown, ContextOverflow, EmptyReply, EmptyTruncation, OdinError, ProviderError
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
)
from odin.core.message import AssistantMessage, ToolCall, Usage
from odin.core.provider import ModelInfo, Request
from odin.core.reply import BadCall, Reply
from odin.engine.admitted import Scope
from odin.engine.kit import Kit, Planner
from odin.engine.listen import GaveUp, Listener

MAX_RECOVERIES = 2
MAX_MALFORMED = 3
ONE_STEP = (
    "Your last reply was cut off by the length limit and was discarded. Take one small step now: "
    "one tool call with short arguments."
)
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
        asked: bool = True,
    ) -> None:
        """`news` gives what happened outside the turn since it was last called; the model reads it at once.

        `asked` says that somebody sent the prompt; the agent may also have begun by itself.
        """
        self.interrupted = False
        self.begun = False
        self.ended = False
        self._kit = kit
        self._started = started
        self._scope = scope
        self._news = news
        self._asked = asked
        self._kept_going = 0
        self._listener = Listener(kit.recorder, kit.retry, scope.agent)
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
            self._emit(self._started)
            if self.interrupted:
                return self._end("interrupted")
            if self._asked:
                await self._kit.hooks.submitted(self._started.text, self._scope.mode)
            return self._end(*await self._steps_until_done())
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

    def abandon(self) -> None:
        """Record the ending of a turn that was cancelled before it had run at all."""
        if not self.begun:
            self.begun = True
            self._emit(self._started)
            self._end("aborted")

    async def _steps_until_done(self) -> tuple[ExitReason, str]:
        while True:
            limit = self._limit_reached()
            if limit is not None:
                return limit, self._text
            reply = await self._ask()
            message = self._accept(reply)
            if message is None:
                if self._recoveries > MAX_RECOVERIES and not await self._more_room():
                    return "max_tokens", self._text
                if self._malformed >= MAX_MALFORMED:
                    raise OdinError(
                        f"The model wrote {MAX_MALFORMED} tool calls in a row that could not be read.",
                        "Try again, use a stronger model, or set tools: json for this model.",
                    )
                continue
            self._emit(Replied(message))
            self._text = message.text or self._text
            await self._kit.hooks.after_reply(message, self._scope.mode)
            if not message.calls:
                if message.stop == "max_tokens":
                    return "max_tokens", message.text
                if await self._goes_on(message.text):
                    continue
                return "end_turn", message.text
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

    async def _goes_on(self, text: str) -> bool:
        """Whether a stop hook wants more of a turn in which the model has answered."""
        goes_on = await self._kit.hooks.keeps_going(text, self._scope.mode, self._kept_going)
        self._kept_going += goes_on
        return goes_on

    def _limit_reached(self) -> ExitReason | None:
        limits = self._kit.limits
        if limits.max_turns and self._steps >= limits.max_turns:
            return "max_turns"
        if limits.max_budget_usd and self._kit.recorder.state.cost_usd >= limits.max_budget_usd:
            return "error_max_budget_usd"
        return None

    async def _ask(self) -> Reply:
        files = self._kit.fresh_files()
        if files:
            self._emit(Noted(cached_files(files)))
        if news := self._news():
            self._emit(Noted(news))
        await self._kit.hooks.before_request(self._scope.mode)
        planner = self._kit.planner()
        await self._kit.compaction.before_request(planner, self._scope)
        while True:
            self._steps += 1
            try:
                return await self._listener.ask(planner.provider, self._request(planner))
            except GaveUp as failure:
                if not await self._fits_now(planner, failure.error):
                    raise
            finally:
                self._record_usage(planner.info, self._listener.take_usage())

    async def _fits_now(self, planner: Planner, error: ProviderError) -> bool:
        """Whether a request that was refused as too long has become shorter."""
        return isinstance(error, ContextOverflow) and await self._kit.compaction.overflowed(planner, self._scope, error)

    def _request(self, planner: Planner) -> Request:
        limits = self._kit.limits
        return Request(
            model=planner.info.id,
            messages=self._kit.recorder.state.history(self._scope.agent),
            system=planner.system,
            tools=planner.tools,
            max_tokens=min(limits.max_tokens, planner.info.max_output or limits.max_tokens),
            temperature=limits.temperature,
            thinking=limits.thinking if planner.info.thinking else 0,
            images=planner.info.images,
        )

    def _record_usage(self, info: ModelInfo, usage: Usage) -> None:
        if usage.total == 0:
            return
        cost = info.cost(usage)
        self._usage += usage
        self._cost += cost
        model = f"{info.provider}/{info.id}" if info.provider else info.id
        self._emit(UsageRecorded(model, usage, cost, info.context))

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
        if isinstance(error, EmptyReply):
            return self._end("end_turn", self._kit.limits.default_response)
        self._keep_partial_text()
        return self._end("error", self._text, error)

    def _keep_partial_text(self) -> None:
        """What was streamed before the cut stays in the conversation, marked as interrupted."""
        partial = self._listener.partial()
        if partial is not None:
            self._text = partial.text
            self._emit(Replied(partial))

    def _end(self, reason: ExitReason, text: str = "", error: OdinError | None = None) -> TurnEnded:
        thread = self._kit.recorder.state.thread(self._scope.agent)
        for call in thread.open_calls:
            self._emit(ToolEnded(call.id, call.name, "cancelled", thread.unfinished(call.id)))
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
        )
        self.ended = True
        with suppress(OdinError):  # what could not be saved is said in the event itself
            self._emit(ended)
        self._emit(ActivityChanged("idle"))
        self._kit.hooks.failed(ended, self._scope.mode)
        return ended

    def _emit(self, event: AnyEvent) -> None:
        self._kit.recorder.emit(event, self._scope.agent)


_ENDINGS: dict[str, str] = {
    "max_turns": "The limit of model calls for one prompt was reached.",
    "error_max_budget_usd": "The budget is used up.",
    "max_tokens": "The reply was cut off by its length limit.",
    "loop_detected": LOOP_ADVICE,
    "interrupted": "The turn was interrupted.",
    "aborted": "The turn was aborted.",
}


def _malformed_note(bad: list[BadCall]) -> str:
    names = ", ".join(sorted({call.name or "?" for call in bad}))
    return (
        f"Your last tool call ({names}) was discarded: its arguments were not a complete JSON object with the required "
        "fields. Send it again, correctly."
    )
