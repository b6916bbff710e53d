"""The only way to a tool.

    find → guard → parse → mode → rules → refusal of the tool → tool_call hooks → ask        (admission)
      → before → around: run → outside the sandbox? → after → tool_result hooks              (here)
      → redact → bound → remarks → before_tool_result_append hooks → record                  (result)

After all calls of a reply: tool_batch_complete hooks. Everything that can go wrong on the way becomes an error result
that the model reads; nothing here ends the turn.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from odin.core.errors import AgentShutdown
from odin.core.event import CachedFile, ToolProgressed, ToolStarted
from odin.core.message import ToolCall
from odin.core.redaction import Redact, unredacted
from odin.core.registry import Registry
from odin.core.text import mended
from odin.core.tool import Confinement, Tool, ToolContext, ToolOutput, failed, keeps_nothing_back
from odin.engine.admission import Admission
from odin.engine.admitted import Admitted, Refused, Scope, fault
from odin.engine.asker import Asker
from odin.engine.confirm import Confirm, Preview, Rules, no_preview
from odin.engine.hooking import Desk, ToolHooks
from odin.engine.recorder import Recorder
from odin.engine.result import Results
from odin.policy.modes import spec_of
from odin.policy.rules import Policy

Before = Callable[[Tool[Any], Any, ToolContext], Awaitable[ToolOutput | None]]
"""A step before a call runs. An output stops the call and is its result."""

Around = Callable[[Tool[Any], Any, ToolContext], AbstractAsyncContextManager[None]]
"""What surrounds the running of a call and sees it end, whatever comes of it, also a cancellation."""

After = Callable[[Tool[Any], Any, ToolOutput, ToolContext], Awaitable[ToolOutput]]
"""A step after a call ran. What it returns is the result."""


class Gate:
    def __init__(
        self,
        *,
        registry: Registry,
        policy: Callable[[], Policy],
        asker: Asker,
        recorder: Recorder,
        seen_files: Callable[[], Iterable[CachedFile]] = tuple,
        before: Sequence[Before] = (),
        around: Around = lambda tool, args, context: nullcontext(),
        after: Sequence[After] = (),
        save: Callable[[str], str] | None = None,
        desk: Desk | None = None,
        redact: Redact = unredacted,
        rules: Rules | None = None,
        preview: Preview = no_preview,
        sandbox: Callable[[], str] = lambda: "",
    ) -> None:
        self.registry = registry
        self._policy = policy
        self._asker = asker
        self._recorder = recorder
        self._before = before
        self._around = around
        self._after = after
        self._redact = redact
        self._desk = desk or Desk(recorder)
        self._hooks = ToolHooks(self._desk)
        self._confirm = Confirm(
            asker=asker,
            policy=policy,
            recorder=recorder,
            rules=rules,
            redact=redact,
            preview=preview,
            sandbox=sandbox,
        )
        self._admission = Admission(registry=registry, policy=policy, confirm=self._confirm, hooks=self._hooks)
        self._results = Results(recorder=recorder, hooks=self._hooks, redact=redact, seen_files=seen_files, save=save)

    async def run_all(self, calls: Sequence[ToolCall], scope: Scope) -> bool:
        """Run one reply's calls. Questions come in source order, results are recorded in call order.

        Calls that do not get in each other's way run together. When a command fails, the calls after it that are not
        mere looks are not run: they were planned on its success. True when the person asked wants the turn to stop.
        Raises AgentShutdown, with every result recorded, when the session ends meanwhile.
        """
        admitted, stop = await self._admit_all(calls, scope)
        ran = _Ran()
        for batch in _batches(admitted):
            await self._run_batch([self._given_up(item, ran) for item in batch], scope, ran)
        scope.guard.end_round()
        await self._hooks.batch(ran.calls, scope)
        if self._asker.closed:
            raise AgentShutdown
        return stop or ran.stopped

    async def _admit_all(self, calls: Sequence[ToolCall], scope: Scope) -> tuple[list[Admitted | Refused], bool]:
        """Which calls may run, asked in their order. Whoever wants the turn to stop is not asked about the rest."""
        stop = False
        admitted: list[Admitted | Refused] = []
        for call in calls:
            if stop or self._desk.halted:
                admitted.append(_not_run(call, _STOPPED if stop else "a hook ended this turn."))
                continue
            verdict = await self._admission.admit(call, scope)
            admitted.append(verdict)
            stop = isinstance(verdict, Refused) and verdict.interrupt
        return admitted, stop

    def _given_up(self, item: Admitted | Refused, ran: "_Ran") -> Admitted | Refused:
        """A call that was admitted may have lost its reason to run since."""
        if isinstance(item, Refused):
            return item
        if self._asker.closed:
            return _not_run(item.call, str(AgentShutdown()))
        if ran.stopped:
            return _not_run(item.call, _STOPPED)
        if ran.broken and item.tool.kind != "read":
            return _not_run(item.call, "the command before it in the same reply failed.")
        return item

    async def _run_batch(self, batch: Sequence[Admitted | Refused], scope: Scope, ran: "_Ran") -> None:
        """What was refused waits for nothing, so that a session that ends still records why."""
        if len(batch) == 1 or all(isinstance(item, Refused) for item in batch):
            for item in batch:
                await self._record(item, *await self._run(item, scope, ran), scope, ran)
            return
        tasks = [asyncio.create_task(self._run(item, scope, ran)) for item in batch]
        try:
            for item, task in zip(batch, tasks, strict=True):
                await self._record(item, *await task, scope, ran)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _record(
        self, item: Admitted | Refused, output: ToolOutput, took_ms: int, scope: Scope, ran: "_Ran"
    ) -> None:
        await self._results.record(item, output, took_ms, scope)
        ran.add(item, output)

    # --- one call ---

    async def _run(self, item: Admitted | Refused, scope: Scope, ran: "_Ran") -> tuple[ToolOutput, int]:
        if isinstance(item, Refused):
            return failed(item.text), 0
        title = mended(self._redact(_title(item.tool, item.args)).text)
        self._recorder.emit(ToolStarted(item.call.id, item.tool.name, item.call.args, title), scope.agent)
        started = time.monotonic()
        context = self._context(item, scope, started)
        try:
            output = await self._run_steps(item, context, scope, ran)
        except Exception as error:  # a tool must never end the turn: whatever it raises is its result
            output = failed(fault(item.tool, error))
        took = int((time.monotonic() - started) * 1000)
        return await self._hooks.after(item.tool, item.call, item.args, output, scope), took

    async def _run_steps(self, item: Admitted, context: ToolContext, scope: Scope, ran: "_Ran") -> ToolOutput:
        tool, args = item.tool, item.args
        for before in self._before:
            stopped = await before(tool, args, context)
            if stopped is not None:
                return stopped
        async with self._around(tool, args, context):
            output = await tool.run(args, context)
            if output.blocked:
                output = await self._run_outside(item, output, context, scope, ran)
        for after in self._after:
            output = await after(tool, args, output, context)
        return output

    async def _run_outside(
        self, item: Admitted, output: ToolOutput, context: ToolContext, scope: Scope, ran: "_Ran"
    ) -> ToolOutput:
        """The sandbox kept a command from something: a person may let it run once more without it.

        Only a person, asked once: no rule, hook or permission mode leads out of the sandbox. In a mode that changes
        nothing it is not offered, because outside nothing would hold the command to that.
        """
        if not self._asker.can_ask or not context.confinement.writes or self._policy().permission_mode == "dontAsk":
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

    def _context(self, item: Admitted, scope: Scope, started: float) -> ToolContext:
        call, tool = item.call, item.tool

        def progress(text: str) -> None:
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


class _Ran:
    """The calls of one reply that ran so far, with what came of them.

    `broken`: a command failed. `stopped`: the person wants the turn to end.
    """

    def __init__(self) -> None:
        self.broken = False
        self.stopped = False
        self.calls: list[tuple[Tool[Any], Any, ToolOutput]] = []

    def add(self, item: Admitted | Refused, output: ToolOutput) -> None:
        if isinstance(item, Admitted):
            self.broken = self.broken or (output.is_error and item.tool.kind == "execute")
            self.calls.append((item.tool, item.args, output))


def _batches(items: Sequence[Admitted | Refused]) -> list[list[Admitted | Refused]]:
    """Neighbours that may run together, in order."""
    batches: list[list[Admitted | Refused]] = []
    for item in items:
        if batches and all(_together(earlier, item) for earlier in batches[-1]):
            batches[-1].append(item)
        else:
            batches.append([item])
    return batches


def _together(one: Admitted | Refused, other: Admitted | Refused) -> bool:
    """Looking and talking mix with each other, changes only with changes of other files, commands with nothing."""
    if isinstance(one, Refused) or isinstance(other, Refused):
        return True
    if one.tool.alone or other.tool.alone:
        return False
    if one.tool.kind != "edit" and other.tool.kind != "edit":
        return True
    if one.tool.kind == "edit" and other.tool.kind == "edit":
        touched = {os.path.realpath(path) for path in one.tool.subject(one.args).paths}
        return touched.isdisjoint(os.path.realpath(path) for path in other.tool.subject(other.args).paths)
    return False


def _title(tool: Tool[Any], args: Any) -> str:
    try:
        return tool.title(args)
    except Exception:
        return ""


_STOPPED = "the user stopped this turn."


def _not_run(call: ToolCall, why: str) -> Refused:
    return Refused(call, f"Not run: {why}", "cancelled")
