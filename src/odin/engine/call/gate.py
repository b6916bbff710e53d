"""The only way to a tool.

    find → guard → parse → mode → rules → refusal of the tool → tool_call hooks → ask        (admission)
      → before → around: run → outside the sandbox? → after → tool_result hooks              (perform)
      → redact → bound → remarks → before_tool_result_append hooks → record                  (result)

A call may have run while its reply was still being written (speculate); then it is admitted like any other, and its
output is taken instead of running it. After all calls of a reply: tool_batch_complete hooks. Everything that can go
wrong on the way becomes an error result that the model reads; nothing here ends the turn.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from odin.context.files import FileCache
from odin.core.errors import AgentShutdown
from odin.core.event import CachedFile, CallQueued, DiscardReason
from odin.core.message import ToolCall
from odin.core.redaction import Redact, redact_nothing
from odin.core.registry import Registry
from odin.core.tool import ToolOutput, fail
from odin.engine.asker import Approvals
from odin.engine.call.admission import Admission
from odin.engine.call.admitted import AdmittedCall, CallScope, RefusedCall
from odin.engine.call.confirm import CallApproval, PreviewCall, RuleWriter, skip_preview
from odin.engine.call.hooking import HookInbox, ToolHooks
from odin.engine.call.perform import AfterStep, AroundStep, BeforeStep, CallExecutor, ReplyCalls
from odin.engine.call.result import ResultRecorder
from odin.engine.call.together import group_calls
from odin.engine.early.eligible import is_read_only_call
from odin.engine.early.speculate import RollbackFiles, Speculator
from odin.engine.recorder import Recorder
from odin.policy.rules import Policy

__all__ = ["SKIPPED_BY_STEERING", "AfterStep", "AroundStep", "BeforeStep", "CallPipeline"]


class CallPipeline:
    def __init__(
        self,
        *,
        registry: Registry,
        policy: Callable[[], Policy],
        approvals: Approvals,
        recorder: Recorder,
        seen_files: Callable[[], Iterable[CachedFile]] = tuple,
        before: Sequence[BeforeStep] = (),
        around: AroundStep = lambda tool, args, context: nullcontext(),
        after: Sequence[AfterStep] = (),
        save: Callable[[str], str] | None = None,
        inbox: HookInbox | None = None,
        redact: Redact = redact_nothing,
        rules: RuleWriter | None = None,
        preview: PreviewCall = skip_preview,
        sandbox: Callable[[], str] = lambda: "",
        files: FileCache | None = None,
        rollback_files: RollbackFiles | None = None,
        speculate: bool = True,
    ) -> None:
        """`files`, `restore` and `speculate` are for calls that begin early: see `Speculator`."""
        self.registry = registry
        self._approvals = approvals
        self._recorder = recorder
        self._inbox = inbox or HookInbox(recorder)
        self._hooks = ToolHooks(self._inbox)
        confirm = CallApproval(
            asker=approvals,
            policy=policy,
            recorder=recorder,
            rules=rules,
            redact=redact,
            preview=preview,
            sandbox=sandbox,
        )
        self._admission = Admission(registry=registry, policy=policy, confirm=confirm, hooks=self._hooks)
        self._results = ResultRecorder(
            recorder=recorder, hooks=self._hooks, redact=redact, seen_files=seen_files, save=save
        )
        self._executor = CallExecutor(
            recorder=recorder,
            policy=policy,
            confirm=confirm,
            hooks=self._hooks,
            redact=redact,
            before=before,
            around=around,
            after=after,
        )
        self._speculator = Speculator(
            recorder=recorder,
            admit=self._admission.admit_without_asking,
            has_call_hook=self._hooks.has_call_hook,
            run_tool=self._executor.run_speculatively,
            files=files,
            rollback_files=rollback_files,
            enabled=speculate,
        )

    def observe_reply(self, scope: CallScope) -> Speculator:
        """Who is told of the calls of a reply while it is being written."""
        return self._speculator.observe_reply(scope)

    async def rollback(self, reason: DiscardReason) -> None:
        """Nothing that was begun early counts any more."""
        await self._speculator.rollback(reason)

    async def run_all(self, calls: Sequence[ToolCall], scope: CallScope) -> bool:
        """Run one reply's calls. Questions come in source order, results are recorded in call order.

        Calls that do not get in each other's way run together. When a command fails, the calls after it that are not
        mere looks are not run: they were planned on its success. True when the person asked wants the turn to stop.
        Raises AgentShutdown, with every result recorded, when the session ends meanwhile.
        """
        files = self._recorder.state.file_history.mark()
        await self._speculator.discard_changed(calls)
        admitted, stop = await self._admit_all(calls, scope)
        ran = ReplyCalls()
        found = group_calls(admitted, scope)
        for item in (item for batch in found[1:] for item in batch):
            self._announce_queued(item, scope, ran)
        for batch in found:
            await self._run_batch([await self._drop_if_obsolete(item, scope, ran) for item in batch], scope, ran)
        await self._speculator.rollback("not_run")
        scope.guard.end_round(changed=self._recorder.state.file_history.mark() != files)
        await self._hooks.fire_batch_complete(ran.calls, scope)
        if self._approvals.is_closed:
            raise AgentShutdown
        return stop or ran.is_stopped

    async def _admit_all(
        self, calls: Sequence[ToolCall], scope: CallScope
    ) -> tuple[list[AdmittedCall | RefusedCall], bool]:
        """Which calls may run, asked in their order. Whoever wants the turn to stop is not asked about the rest."""
        stop = False
        admitted: list[AdmittedCall | RefusedCall] = []
        for call in calls:
            if scope.is_steered():
                admitted.append(_skip_call(call))
                continue
            if stop or self._inbox.halt_reason:
                admitted.append(_cancel_call(call, _USER_STOPPED if stop else "a hook ended this turn."))
                continue
            verdict = await self._admit_call(call, scope)
            if scope.is_steered():
                verdict = _skip_call(call)
            admitted.append(verdict)
            stop = isinstance(verdict, RefusedCall) and verdict.stops_turn
        return admitted, stop

    async def _admit_call(self, call: ToolCall, scope: CallScope) -> AdmittedCall | RefusedCall:
        """What was begun early is taken back before anybody is asked about it, and when it may not run as it did."""
        begun = self._speculator.find_judged(call.id)
        if begun is not None and not self._admission.is_still_allowed(begun, scope):
            await self._speculator.discard_call(call.id, "not_run")
            begun = None
        verdict = await self._admission.admit(call, scope, begun)
        if isinstance(verdict, RefusedCall):
            await self._speculator.discard_call(call.id, verdict.reason)
        else:
            await self._speculator.confirm_arguments(verdict)
        return verdict

    async def _drop_if_obsolete(
        self, item: AdmittedCall | RefusedCall, scope: CallScope, ran: ReplyCalls
    ) -> AdmittedCall | RefusedCall:
        now = self._check_obsolete(item, scope, ran)
        if isinstance(now, RefusedCall):
            await self._speculator.discard_call(now.call.id, now.reason)
        return now

    def _check_obsolete(
        self, item: AdmittedCall | RefusedCall, scope: CallScope, ran: ReplyCalls
    ) -> AdmittedCall | RefusedCall:
        """A call that was admitted may have lost its reason to run since."""
        if isinstance(item, RefusedCall):
            return item
        if self._approvals.is_closed:
            return _cancel_call(item.call, str(AgentShutdown()))
        if ran.is_stopped:
            return _cancel_call(item.call, _USER_STOPPED)
        if scope.is_steered():
            return _skip_call(item.call)
        if ran.has_failed_command and not is_read_only_call(item.tool, item.args, scope):
            return _cancel_call(item.call, "the command before it in the same reply failed.")
        return item

    async def _run_batch(self, batch: Sequence[AdmittedCall | RefusedCall], scope: CallScope, ran: ReplyCalls) -> None:
        """What was refused waits for nothing, so that a session that ends still records why."""
        if len(batch) == 1 or all(isinstance(item, RefusedCall) for item in batch):
            for item in batch:
                await self._record_result(item, *await self._run_call(item, scope, ran), scope, ran)
            return
        tasks = [asyncio.create_task(self._run_call(item, scope, ran)) for item in batch]
        try:
            for item, task in zip(batch, tasks, strict=True):
                await self._record_result(item, *await task, scope, ran)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _record_result(
        self, item: AdmittedCall | RefusedCall, output: ToolOutput, took_ms: int, scope: CallScope, ran: ReplyCalls
    ) -> None:
        await self._results.record(item, output, took_ms, scope)
        ran.add(item, output)
        _inform_guard(item, output, scope)

    # --- one call ---

    async def _run_call(
        self, item: AdmittedCall | RefusedCall, scope: CallScope, ran: ReplyCalls
    ) -> tuple[ToolOutput, int]:
        if isinstance(item, RefusedCall):
            return fail(item.text), 0
        begun = self._speculator.commit(item.call.id)
        if begun is not None:
            return await self._executor.finish_speculative(begun, item, scope, ran)
        if self._speculator.slots.locked():
            self._announce_queued(item, scope, ran)
        async with self._speculator.slots:
            return await self._executor.run(item, scope, ran)

    def _announce_queued(self, item: AdmittedCall | RefusedCall, scope: CallScope, ran: ReplyCalls) -> None:
        """A call waits for its turn. That is said once, and not of one that runs already."""
        call_id = item.call.id
        if (
            isinstance(item, AdmittedCall)
            and call_id not in ran.queued
            and self._speculator.find_judged(call_id) is None
        ):
            ran.queued.add(call_id)
            self._recorder.emit(CallQueued(call_id, item.tool.name), scope.agent)


def _inform_guard(item: AdmittedCall | RefusedCall, output: ToolOutput, scope: CallScope) -> None:
    """Let the guard know what came of a call, unless it was never tried."""
    if isinstance(item, AdmittedCall):
        runs, edits = item.tool.kind == "execute", item.tool.kind == "edit"
        scope.guard.record_result(
            item.tool.name, item.call.args, output.text, failed=output.is_error, runs=runs, edits=edits
        )
    elif item.reason != "repetition" and item.status != "cancelled":
        scope.guard.record_result(item.call.name, item.call.args, item.text, failed=True)


_USER_STOPPED = "the user stopped this turn."


SKIPPED_BY_STEERING = "Skipped due to queued user message."
"""What the model reads of a call that somebody's words came before."""


def _skip_call(call: ToolCall) -> RefusedCall:
    return RefusedCall(call, SKIPPED_BY_STEERING, "cancelled")


def _cancel_call(call: ToolCall, why: str) -> RefusedCall:
    return RefusedCall(call, f"Not run: {why}", "cancelled")
