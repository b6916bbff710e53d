"""All hooks of one session: who is told, in which order, and what comes of it together."""

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from odin.core.event import AnyEvent, HookRan, Warned
from odin.core.hook import NO_VERDICT, HookCall, HookPoint, HookVerdict
from odin.core.redaction import Redact, redact_nothing
from odin.policy.hook.declared import HookSpec
from odin.policy.hook.envelope import HookSession
from odin.policy.hook.matching import is_concerned, match_hook
from odin.policy.hook.outcome import HookResult, merge_verdicts
from odin.policy.hook.run import run_hook
from odin.policy.process.runner import ProcessRunner

SEQUENTIAL_POINTS = frozenset(("tool_call", "tool_result", "before_tool_result_append", "wait_confirm"))
"""Points at which hooks run one after the other, because each sees what the one before has changed."""


class SessionHooks:
    """`emit` records what a hook said or what was wrong with it; one that said nothing leaves no trace.

    `swapped` names programs of the project's hooks that have changed since the project was trusted. While there is one,
    none of them runs: the model may have written it.
    """

    def __init__(
        self,
        hooks: Sequence[HookSpec],
        session: HookSession,
        runner: ProcessRunner,
        emit: Callable[[AnyEvent, str], object],
        redact: Redact = redact_nothing,
        changed_programs: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._hooks = tuple(hooks)
        self._changed_programs = changed_programs
        self._session = session
        self._runner = runner
        self._emit = emit
        self._redact = redact
        self._points = {point for hook in hooks for point in hook.kind.points}

    def add(self, hook: HookSpec) -> None:
        self._hooks = (*self._hooks, hook)
        self._points.update(hook.kind.points)

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return point in self._points and (not tool or any(is_concerned(hook, point, tool) for hook in self._hooks))

    async def fire(self, call: HookCall) -> HookVerdict:
        call = msgspec.structs.replace(call, model=call.model or self._session.model())
        told = [
            (hook, named) for hook in self._hooks if (named := match_hook(hook, call, self._session.root)) is not None
        ]
        if not told:
            return NO_VERDICT
        if call.point in SEQUENTIAL_POINTS:
            return await self._run_in_turn(told, call)
        said = await asyncio.gather(*(self._run_one(hook, named, call) for hook, named in told))
        return merge_verdicts([item.verdict for item in said])

    async def _run_in_turn(self, hooks: Sequence[tuple[HookSpec, str]], call: HookCall) -> HookVerdict:
        """One after the other; a no ends it, because there is nothing left to change."""
        verdicts: list[HookVerdict] = []
        for hook, named in hooks:
            verdict = (await self._run_one(hook, named, call)).verdict
            verdicts.append(verdict)
            if verdict.halt or verdict.decision == "deny":
                break
            call = _apply_changes(call, verdict)
        return merge_verdicts(verdicts)

    async def _run_one(self, hook: HookSpec, tool_name: str, call: HookCall) -> HookResult:
        if hook.project and (swapped := self._changed_programs()):
            why = f"{', '.join(swapped)} changed since this session began, and is not trusted as it is now"
            self._emit(Warned(f"The {hook.event} hook {hook.name!r} was not run: {why}."), call.agent)
            return HookResult()
        began = time.monotonic()
        result = self._redact_result(await run_hook(hook, call, tool_name, self._session, self._runner))
        if result.outcome != "silent":
            took = int((time.monotonic() - began) * 1000)
            ran = HookRan(call.point, hook.name, result.outcome, result.detail, call.call_id, took)
            self._emit(ran, call.agent)
        if result.problem:
            self._emit(Warned(f"The {hook.event} hook {hook.name!r} failed: {result.problem}"), call.agent)
        return result

    def _redact_result(self, result: HookResult) -> HookResult:
        """Without secrets: a hook may repeat what it was told of a result."""
        if result.outcome == "silent":
            return result
        verdict = msgspec.structs.replace(
            result.verdict,
            message=self._redact(result.verdict.message).text,
            context=self._redact(result.verdict.context).text,
            notice=self._redact(result.verdict.notice).text,
        )
        return msgspec.structs.replace(result, verdict=verdict, problem=self._redact(result.problem).text)


def _apply_changes(call: HookCall, verdict: HookVerdict) -> HookCall:
    if verdict.args is not None:
        call = msgspec.structs.replace(call, args=verdict.args)
    if verdict.output is not None:
        call = msgspec.structs.replace(call, output=verdict.output)
    return call
