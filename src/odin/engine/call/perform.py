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
from odin.core.text import mended
from odin.core.tool import Confinement, Tool, ToolContext, ToolOutput, failed, keeps_nothing_back
from odin.engine.call.admitted import Admitted, Refused, Scope, fault
from odin.engine.call.confirm import Confirm
from odin.engine.call.hooking import ToolHooks
from odin.engine.early.speculate import Begun, NotSaved
from odin.engine.recorder import Recorder
from odin.policy.modes import spec_of
from odin.policy.rules import Policy

Before = Callable[[Tool[Any], Any, ToolContext], Awaitable[ToolOutput | None]]
"""A step before a call runs. An output stops the call and is its result."""

Around = Callable[[Tool[Any], Any, ToolContext], AbstractAsyncContextManager[None]]
"""What surrounds the running of a call and sees it end, whatever comes of it, also a cancellation."""

Outside = Callable[[ToolOutput], Awaitable[ToolOutput]]
"""What becomes of an output that the sandbox had a hand in."""

After = Callable[[Tool[Any], Any, ToolOutput, ToolContext], Awaitable[ToolOutput]]
"""A step after a call ran. What it returns is the result."""


class Ran:
    """The calls of one reply that ran so far, with what came of them.

    `broken`: a command failed. `stopped`: the person wants the turn to end. `queued`: calls that were said to wait.
    """

    def __init__(self) -> None:
        self.broken = False
        self.stopped = False
        self.calls: list[tuple[Tool[Any], Any, ToolOutput]] = []
        self.queued: set[str] = set()

    def add(self, item: Admitted | Refused, output: ToolOutput) -> None:
        if isinstance(item, Admitted):
            self.broken = self.broken or (output.is_error and item.tool.kind == "execute")
            self.calls.append((item.tool, item.args, output))


class Performer:
    def __init__(
        self,
        *,
        recorder: Recorder,
        policy: Callable[[], Policy],
        confirm: Confirm,
        hooks: ToolHooks,
        redact: Redact,
        before: Sequence[Before],
        around: Around,
        after: Sequence[After],
    ) -> None:
        self._recorder = recorder
        self._policy = policy
        self._confirm = confirm
        self._hooks = hooks
        self._redact = redact
        self._before = before
        self._around = around
        self._after = after

    async def run(self, item: Admitted, scope: Scope, ran: Ran) -> tuple[ToolOutput, int]:
        self._started(item, scope)
        since = time.monotonic()
        running = {item.call.id}
        context = self._context(item, scope, since, running)

        async def outside(output: ToolOutput) -> ToolOutput:
            return await self._run_outside(item, output, context, scope, ran)

        try:
            output, stopped = await self._make(item, context, outside)
            output = output if stopped else await self._after_steps(item, output, context)
        except Exception as error:  # a tool must never end the turn: whatever it raises is its result
            output = failed(fault(item.tool, error))
        finally:
            running.clear()
        took = int((time.monotonic() - since) * 1000)
        return await self._hooks.after(item.tool, item.call, item.args, output, scope), took

    async def finish(self, begun: Begun, item: Admitted, scope: Scope, ran: Ran) -> tuple[ToolOutput, int]:
        """A call that was begun early counts: what it gave is its output."""
        self._started(item, scope)
        context = self._context(item, scope, begun.since, begun.running)
        try:
            made = await begun.outcome()
            output = made.output
            if output.blocked:
                output = await self._run_outside(item, output, context, scope, ran)
            output = output if made.stopped else await self._after_steps(item, output, context)
        except Exception as error:  # as above
            output = failed(fault(item.tool, error))
        finally:
            begun.running.clear()
        return await self._hooks.after(item.tool, item.call, item.args, output, scope), begun.took_ms

    async def make_early(self, begun: Begun, scope: Scope) -> tuple[ToolOutput, bool]:
        """Run a call whose reply is not complete. Nobody is asked anything, and its files must be saved."""

        def ready() -> None:
            early = self._recorder.state.changes.begun_early(scope.agent, begun.call.id)
            saved = early.saved.files if early is not None and early.saved is not None else ()
            if begun.judged.tool.kind == "edit" and not (saved and all(_can_come_back(state) for state in saved)):
                raise NotSaved
            begun.started = True

        context = self._context(begun.item, scope, begun.since, begun.running)
        return await self._make(begun.item, context, _as_it_is, ready)

    async def _make(
        self, item: Admitted, context: ToolContext, outside: Outside, ready: Callable[[], None] = lambda: None
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

    async def _after_steps(self, item: Admitted, output: ToolOutput, context: ToolContext) -> ToolOutput:
        for after in self._after:
            output = await after(item.tool, item.args, output, context)
        return output

    def _started(self, item: Admitted, scope: Scope) -> None:
        title = mended(self._redact(_title(item.tool, item.args)).text)
        self._recorder.emit(ToolStarted(item.call.id, item.tool.name, item.call.args, title), scope.agent)

    async def _run_outside(
        self, item: Admitted, output: ToolOutput, context: ToolContext, scope: Scope, ran: Ran
    ) -> ToolOutput:
        """The sandbox kept a command from something: a person may let it run once more without it.

        Only a person, asked once: no rule, hook or permission mode leads out of the sandbox. In a mode that changes
        nothing it is not offered, because outside nothing would hold the command to that.
        """
        if not self._confirm.can_ask or not context.confinement.writes or self._policy().permission_mode == "dontAsk":
            return output
        answer = await self._confirm.outside(item, output.blocked, scope)
        ran.stopped = ran.stopped or answer.interrupt
        if not answer.allow:
            why = f": {answer.reason}" if answer.reason else "."
            who = "Nobody let" if answer.by in ("timeout", "shutdown") else "The user would not let"
            remark = f"[The sandbox kept it from {output.blocked}. {who} it run outside the sandbox{why}]"
            return msgspec.structs.replace(output, text=f"{output.text}\n\n{remark}")
        free = msgspec.structs.replace(context, confinement=Confinement(context.confinement.writes, outside=True))
        again = await item.tool.run(item.args, free)
        remark = f"The sandbox had kept it from {output.blocked}. The user let it run again outside the sandbox."
        note = f"{again.note} (again, outside the sandbox, which had kept it from {output.blocked})".lstrip()
        return msgspec.structs.replace(again, text=f"{again.text}\n\n[{remark}]", note=note)

    def _context(self, item: Admitted, scope: Scope, started: float, running: set[str]) -> ToolContext:
        """What a call says after it is no longer `running` comes too late to be heard."""
        call, tool = item.call, item.tool

        def progress(text: str) -> None:
            if call.id not in running:
                return
            elapsed = round(time.monotonic() - started, 3)
            shown = mended(self._redact(text).text)
            self._recorder.emit(ToolProgressed(call.id, tool.name, shown, elapsed), scope.agent)

        return ToolContext(
            cwd=scope.cwd,
            root=scope.root,
            session=self._recorder.state.session,
            agent=scope.agent,
            call_id=call.id,
            mode=scope.mode,
            progress=progress,
            confinement=Confinement(writes=spec_of(scope.mode).changes and self._policy().permission_mode != "plan"),
            keeps_back=self._keeps_back(item, scope),
        )

    def _keeps_back(self, item: Admitted, scope: Scope) -> Callable[[str], bool]:
        """What a search must not show of what it finds. Other calls name what they are about."""
        if item.tool.kind != "read":
            return keeps_nothing_back
        return self._policy().keeps_back(item.tool.name, "read", item.tool.subject(item.args), scope.mode)


async def _as_it_is(output: ToolOutput) -> ToolOutput:
    return output


def _can_come_back(state: FileState) -> bool:
    return state.saved and state.kind != "other"


def _title(tool: Tool[Any], args: Any) -> str:
    try:
        return tool.title(args)
    except Exception:
        return ""
