"""Which calls of one reply run at the same time: those that do not get in each other's way.

Running one call that was admitted: now, or early, or taking what it gave when it ran early.

before → around: run → outside the sandbox? → after → tool_result hooks

The only way to a tool.

    find → guard → parse → mode → rules → refusal of the tool → tool_call hooks → ask        (admission)
      → before → around: run → outside the sandbox? → after → tool_result hooks              (perform)
      → redact → bound → remarks → before_tool_result_append hooks → record                  (result)

A call may have run while its reply was still being written (speculate); then it is admitted like any other, and its
output is taken instead of running it. After all calls of a reply: tool_batch_complete hooks. Everything that can go
wrong on the way becomes an error result that the model reads; nothing here ends the turn.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from odin.context.file_cache import FileCache
from odin.core.errors import AgentShutdown
from odin.core.event import CachedFile, CallQueued, DiscardReason, FileState, ToolProgressed, ToolStarted
from odin.core.message import ToolCall
from odin.core.policy import Redact, redact_nothing
from odin.core.registry import Registry
from odin.core.text import to_valid_unicode
from odin.core.tool import SandboxProfile, Tool, ToolContext, ToolOutput, fail, hide_nothing
from odin.engine.admission import Admission
from odin.engine.approvals import Approvals, CallApproval, PreviewCall, RuleWriter, skip_preview
from odin.engine.call_types import AdmittedCall, CallScope, RefusedCall, describe_tool_error
from odin.engine.hooks import HookInbox, ToolHooks
from odin.engine.recorder import Recorder
from odin.engine.results import ResultRecorder
from odin.engine.speculation import FilesNotSaved, RollbackFiles, SpeculativeCall, Speculator, is_read_only_call
from odin.policy.modes import spec_of
from odin.policy.policy import Policy


def group_calls(
    items: Sequence[AdmittedCall | RefusedCall], scope: CallScope
) -> list[list[AdmittedCall | RefusedCall]]:
    """Neighbours that may run together, in order."""
    found: list[list[AdmittedCall | RefusedCall]] = []
    sociable = {item.call.id: _can_overlap(item, scope) for item in items if isinstance(item, AdmittedCall)}
    for item in items:
        if found and all(_can_run_together(earlier, item, sociable) for earlier in found[-1]):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def _can_overlap(item: AdmittedCall, scope: CallScope) -> bool:
    """Whether it may share its time at all. A command may when it provably only looks."""
    if item.tool.exclusive:
        return False
    return item.tool.kind != "execute" or is_read_only_call(item.tool, item.args, scope)


def _can_run_together(
    one: AdmittedCall | RefusedCall, other: AdmittedCall | RefusedCall, sociable: dict[str, bool]
) -> bool:
    """Looking and talking mix with each other, changes only with changes of other files, the rest with nothing."""
    if isinstance(one, RefusedCall) or isinstance(other, RefusedCall):
        return True
    if not (sociable[one.call.id] and sociable[other.call.id]):
        return False
    if one.tool.kind != "edit" and other.tool.kind != "edit":
        return True
    if one.tool.kind == "edit" and other.tool.kind == "edit":
        touched = {os.path.realpath(path) for path in one.tool.subject_of(one.args).paths}
        return touched.isdisjoint(os.path.realpath(path) for path in other.tool.subject_of(other.args).paths)
    return False


BeforeStep = Callable[[Tool[Any], Any, ToolContext], Awaitable[ToolOutput | None]]
"""A step before a call runs. An output stops the call and is its result."""

AroundStep = Callable[[Tool[Any], Any, ToolContext], AbstractAsyncContextManager[None]]
"""What surrounds the running of a call and sees it end, whatever comes of it, also a cancellation."""

RetryUnsandboxed = Callable[[ToolOutput], Awaitable[ToolOutput]]
"""What becomes of an output that the sandbox had a hand in."""

AfterStep = Callable[[Tool[Any], Any, ToolOutput, ToolContext], Awaitable[ToolOutput]]
"""A step after a call ran. What it returns is the result."""


class ReplyCalls:
    """The calls of one reply that ran so far, with what came of them.

    `broken`: a command failed. `stopped`: the person wants the turn to end. `queued`: calls that were said to wait.
    """

    def __init__(self) -> None:
        self.has_failed_command = False
        self.is_stopped = False
        self.calls: list[tuple[Tool[Any], Any, ToolOutput]] = []
        self.queued: set[str] = set()

    def add(self, item: AdmittedCall | RefusedCall, output: ToolOutput) -> None:
        if isinstance(item, AdmittedCall):
            self.has_failed_command = self.has_failed_command or (output.is_error and item.tool.kind == "execute")
            self.calls.append((item.tool, item.args, output))


class CallExecutor:
    def __init__(
        self,
        *,
        recorder: Recorder,
        policy: Callable[[], Policy],
        confirm: CallApproval,
        hooks: ToolHooks,
        redact: Redact,
        before: Sequence[BeforeStep],
        around: AroundStep,
        after: Sequence[AfterStep],
    ) -> None:
        self._recorder = recorder
        self._policy = policy
        self._approval = confirm
        self._hooks = hooks
        self._redact = redact
        self._before = before
        self._around = around
        self._after = after

    async def run(self, item: AdmittedCall, scope: CallScope, ran: ReplyCalls) -> tuple[ToolOutput, int]:
        self._record_start(item, scope)
        since = time.monotonic()
        running = {item.call.id}
        context = self._build_context(item, scope, since, running)

        async def outside(output: ToolOutput) -> ToolOutput:
            return await self._retry_unsandboxed(item, output, context, scope, ran)

        try:
            output, stopped = await self._run_tool(item, context, outside)
            output = output if stopped else await self._apply_after_steps(item, output, context)
        except Exception as error:  # a tool must never end the turn: whatever it raises is its result
            output = fail(describe_tool_error(item.tool, error))
        finally:
            running.clear()
        took = int((time.monotonic() - since) * 1000)
        return await self._hooks.fire_tool_result(item.tool, item.call, item.args, output, scope), took

    async def finish_speculative(
        self, begun: SpeculativeCall, item: AdmittedCall, scope: CallScope, ran: ReplyCalls
    ) -> tuple[ToolOutput, int]:
        """A call that was begun early counts: what it gave is its output."""
        self._record_start(item, scope)
        context = self._build_context(item, scope, begun.started_at, begun.running)
        try:
            made = await begun.await_result()
            output = made.output
            if output.blocked:
                output = await self._retry_unsandboxed(item, output, context, scope, ran)
            output = output if made.is_stopped else await self._apply_after_steps(item, output, context)
        except Exception as error:  # as above
            output = fail(describe_tool_error(item.tool, error))
        finally:
            begun.running.clear()
        return await self._hooks.fire_tool_result(item.tool, item.call, item.args, output, scope), begun.took_ms

    async def run_speculatively(self, begun: SpeculativeCall, scope: CallScope) -> tuple[ToolOutput, bool]:
        """Run a call whose reply is not complete. Nobody is asked anything, and its files must be saved."""

        def ready() -> None:
            early = self._recorder.state.file_history.find_speculative(scope.agent, begun.call.id)
            saved = early.saved.files if early is not None and early.saved is not None else ()
            if begun.judged.tool.kind == "edit" and not (saved and all(_can_restore(state) for state in saved)):
                raise FilesNotSaved
            begun.has_started = True

        context = self._build_context(begun.admitted, scope, begun.started_at, begun.running)
        return await self._run_tool(begun.admitted, context, _keep_output, ready)

    async def _run_tool(
        self,
        item: AdmittedCall,
        context: ToolContext,
        outside: RetryUnsandboxed,
        ready: Callable[[], None] = lambda: None,
    ) -> tuple[ToolOutput, bool]:
        """The bare output of a call, and whether it was stopped before it ran."""
        tool, args = item.tool, item.args
        for before in self._before:
            stopped = await before(tool, args, context)
            if stopped is not None:
                return stopped, True
        async with self._around(tool, args, context):
            ready()
            output = await tool.run(args, context)
            return (await outside(output) if output.blocked else output), False

    async def _apply_after_steps(self, item: AdmittedCall, output: ToolOutput, context: ToolContext) -> ToolOutput:
        for after in self._after:
            output = await after(item.tool, item.args, output, context)
        return output

    def _record_start(self, item: AdmittedCall, scope: CallScope) -> None:
        title = to_valid_unicode(self._redact(_title_of(item.tool, item.args)).text)
        self._recorder.emit(ToolStarted(item.call.id, item.tool.name, item.call.args, title), scope.agent)

    async def _retry_unsandboxed(
        self, item: AdmittedCall, output: ToolOutput, context: ToolContext, scope: CallScope, ran: ReplyCalls
    ) -> ToolOutput:
        """The sandbox kept a command from something: a person may let it run once more without it.

        Only a person, asked once: no rule, hook or permission mode leads out of the sandbox. In a mode that changes
        nothing it is not offered, because outside nothing would hold the command to that.
        """
        if (
            not self._approval.can_ask
            or not context.sandbox_profile.writes
            or self._policy().permission_mode == "dontAsk"
        ):
            return output
        answer = await self._approval.ask_unsandboxed(item, output.blocked, scope)
        ran.is_stopped = ran.is_stopped or answer.interrupt
        if not answer.allow:
            why = f": {answer.reason}" if answer.reason else "."
            who = "Nobody let" if answer.by in ("timeout", "shutdown") else "The user would not let"
            remark = f"[The sandbox kept it from {output.blocked}. {who} it run outside the sandbox{why}]"
            return msgspec.structs.replace(output, text=f"{output.text}\n\n{remark}")
        free = msgspec.structs.replace(
            context, sandbox_profile=SandboxProfile(context.sandbox_profile.writes, unsandboxed=True)
        )
        again = await item.tool.run(item.args, free)
        remark = f"The sandbox had kept it from {output.blocked}. The user let it run again outside the sandbox."
        note = f"{again.note} (again, outside the sandbox, which had kept it from {output.blocked})".lstrip()
        return msgspec.structs.replace(again, text=f"{again.text}\n\n[{remark}]", note=note)

    def _build_context(self, item: AdmittedCall, scope: CallScope, started: float, running: set[str]) -> ToolContext:
        """What a call says after it is no longer `running` comes too late to be heard."""
        call, tool = item.call, item.tool

        def progress(text: str) -> None:
            if call.id not in running:
                return
            elapsed = round(time.monotonic() - started, 3)
            shown = to_valid_unicode(self._redact(text).text)
            self._recorder.emit(ToolProgressed(call.id, tool.name, shown, elapsed), scope.agent)

        return ToolContext(
            cwd=scope.cwd,
            root=scope.root,
            session=self._recorder.state.session,
            agent=scope.agent,
            call_id=call.id,
            mode=scope.mode,
            progress=progress,
            sandbox_profile=SandboxProfile(
                writes=spec_of(scope.mode).allows_changes and self._policy().permission_mode != "plan"
            ),
            is_hidden=self._hidden_filter_of(item, scope),
        )

    def _hidden_filter_of(self, item: AdmittedCall, scope: CallScope) -> Callable[[str], bool]:
        """What a search must not show of what it finds. Other calls name what they are about."""
        if item.tool.kind != "read":
            return hide_nothing
        return self._policy().make_result_filter(item.tool.name, "read", item.tool.subject_of(item.args), scope.mode)


async def _keep_output(output: ToolOutput) -> ToolOutput:
    return output


def _can_restore(state: FileState) -> bool:
    return state.saved and state.kind != "other"


def _title_of(tool: Tool[Any], args: Any) -> str:
    try:
        return tool.title_of(args)
    except Exception:
        return ""


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
