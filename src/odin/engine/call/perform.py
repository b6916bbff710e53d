"""Running one call that was admitted: now, or early, or taking what it gave when it ran early.

before → around: run → outside the sandbox? → after → tool_result hooks
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from odin.core.event import FileState, ToolProgressed, ToolStarted
from odin.core.redaction import Redact
from odin.core.text import to_valid_unicode
from odin.core.tool import SandboxProfile, Tool, ToolContext, ToolOutput, fail, hide_nothing
from odin.engine.call.admitted import AdmittedCall, CallScope, RefusedCall, describe_tool_error
from odin.engine.call.confirm import CallApproval
from odin.engine.call.hooking import ToolHooks
from odin.engine.early.speculate import FilesNotSaved, SpeculativeCall
from odin.engine.recorder import Recorder
from odin.policy.modes import spec_of
from odin.policy.rules import Policy

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
