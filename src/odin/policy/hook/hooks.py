"""All hooks of one session: who is told, in which order, and what comes of it together."""

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from odin.core.event import AnyEvent, HookRan, Warned
from odin.core.hook import SILENT, HookCall, HookVerdict, Point
from odin.core.redaction import Redact, unredacted
from odin.policy.hook.declared import Hook
from odin.policy.hook.envelope import Session
from odin.policy.hook.matching import concerned, meant
from odin.policy.hook.outcome import Said, together
from odin.policy.hook.run import run
from odin.policy.process.runner import ProcessRunner

CHANGING = frozenset(("tool_call", "tool_result", "before_tool_result_append", "wait_confirm"))
"""Points at which hooks run one after the other, because each sees what the one before has changed."""


class SessionHooks:
    """`emit` records what a hook said or what was wrong with it; one that said nothing leaves no trace.

    `swapped` names programs of the project's hooks that have changed since the project was trusted. While there is one,
    none of them runs: the model may have written it.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        session: Session,
        runner: ProcessRunner,
        emit: Callable[[AnyEvent, str], object],
        redact: Redact = unredacted,
        swapped: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._hooks = tuple(hooks)
        self._swapped = swapped
        self._session = session
        self._runner = runner
        self._emit = emit
        self._redact = redact
        self._points = {point for hook in hooks for point in hook.kind.points}

    def add(self, hook: Hook) -> None:
        self._hooks = (*self._hooks, hook)
        self._points.update(hook.kind.points)

    def listens(self, point: Point, tool: str = "") -> bool:
        return point in self._points and (not tool or any(concerned(hook, point, tool) for hook in self._hooks))

    async def fire(self, call: HookCall) -> HookVerdict:
        call = msgspec.structs.replace(call, model=call.model or self._session.model())
        told = [(hook, named) for hook in self._hooks if (named := meant(hook, call, self._session.root)) is not None]
        if not told:
            return SILENT
        if call.point in CHANGING:
            return await self._in_turn(told, call)
        said = await asyncio.gather(*(self._ask(hook, named, call) for hook, named in told))
        return together([item.verdict for item in said])

    async def _in_turn(self, told: Sequence[tuple[Hook, str]], call: HookCall) -> HookVerdict:
        """One after the other; a no ends it, because there is nothing left to change."""
        verdicts: list[HookVerdict] = []
        for hook, named in told:
            verdict = (await self._ask(hook, named, call)).verdict
            verdicts.append(verdict)
            if verdict.halt or verdict.decision == "deny":
                break
            call = _as_changed(call, verdict)
        return together(verdicts)

    async def _ask(self, hook: Hook, named: str, call: HookCall) -> Said:
        if hook.project and (swapped := self._swapped()):
            why = f"{', '.join(swapped)} changed since this session began, and is not trusted as it is now"
            self._emit(Warned(f"The {hook.event} hook {hook.name!r} was not run: {why}."), call.agent)
            return Said()
        began = time.monotonic()
        said = self._clean(await run(hook, call, named, self._session, self._runner))
        if said.outcome != "silent":
            took = int((time.monotonic() - began) * 1000)
            ran = HookRan(call.point, hook.name, said.outcome, said.detail, call.call_id, took)
            self._emit(ran, call.agent)
        if said.problem:
            self._emit(Warned(f"The {hook.event} hook {hook.name!r} failed: {said.problem}"), call.agent)
        return said

    def _clean(self, said: Said) -> Said:
        """Without secrets: a hook may repeat what it was told of a result."""
        if said.outcome == "silent":
            return said
        verdict = msgspec.structs.replace(
            said.verdict,
            message=self._redact(said.verdict.message).text,
            context=self._redact(said.verdict.context).text,
            notice=self._redact(said.verdict.notice).text,
        )
        return msgspec.structs.replace(said, verdict=verdict, problem=self._redact(said.problem).text)


def _as_changed(call: HookCall, verdict: HookVerdict) -> HookCall:
    if verdict.args is not None:
        call = msgspec.structs.replace(call, args=verdict.args)
    if verdict.output is not None:
        call = msgspec.structs.replace(call, output=verdict.output)
    return call
