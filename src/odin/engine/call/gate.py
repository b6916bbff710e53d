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
from odin.core.redaction import Redact, unredacted
from odin.core.registry import Registry
from odin.core.tool import ToolOutput, failed
from odin.engine.asker import Asker
from odin.engine.call.admission import Admission
from odin.engine.call.admitted import Admitted, Refused, Scope
from odin.engine.call.confirm import Confirm, Preview, Rules, no_preview
from odin.engine.call.hooking import Desk, ToolHooks
from odin.engine.call.perform import After, Around, Before, Performer, Ran
from odin.engine.call.result import Results
from odin.engine.call.together import batches
from odin.engine.early.eligible import looks
from odin.engine.early.speculate import Restore, Speculator
from odin.engine.recorder import Recorder
from odin.policy.rules import Policy

__all__ = ["SKIPPED", "After", "Around", "Before", "Gate"]


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
        files: FileCache | None = None,
        restore: Restore | None = None,
        speculate: bool = True,
    ) -> None:
        """`files`, `restore` and `speculate` are for calls that begin early: see `Speculator`."""
        self.registry = registry
        self._asker = asker
        self._recorder = recorder
        self._desk = desk or Desk(recorder)
        self._hooks = ToolHooks(self._desk)
        confirm = Confirm(
            asker=asker,
            policy=policy,
            recorder=recorder,
            rules=rules,
            redact=redact,
            preview=preview,
            sandbox=sandbox,
        )
        self._admission = Admission(registry=registry, policy=policy, confirm=confirm, hooks=self._hooks)
        self._results = Results(recorder=recorder, hooks=self._hooks, redact=redact, seen_files=seen_files, save=save)
        self._performer = Performer(
            recorder=recorder,
            policy=policy,
            confirm=confirm,
            hooks=self._hooks,
            redact=redact,
            before=before,
            around=around,
            after=after,
        )
        self._early = Speculator(
            recorder=recorder,
            allowed=self._admission.allowed,
            heard=self._hooks.hears,
            make=self._performer.make_early,
            files=files,
            restore=restore,
            enabled=speculate,
        )

    def listen(self, scope: Scope) -> Speculator:
        """Who is told of the calls of a reply while it is being written."""
        return self._early.listen(scope)

    async def take_back(self, reason: DiscardReason) -> None:
        """Nothing that was begun early counts any more."""
        await self._early.take_back(reason)

    async def run_all(self, calls: Sequence[ToolCall], scope: Scope) -> bool:
        """Run one reply's calls. Questions come in source order, results are recorded in call order.

        Calls that do not get in each other's way run together. When a command fails, the calls after it that are not
        mere looks are not run: they were planned on its success. True when the person asked wants the turn to stop.
        Raises AgentShutdown, with every result recorded, when the session ends meanwhile.
        """
        files = self._recorder.state.changes.mark()
        await self._early.settle(calls)
        admitted, stop = await self._admit_all(calls, scope)
        ran = Ran()
        found = batches(admitted, scope)
        for item in (item for batch in found[1:] for item in batch):
            self._queued(item, scope, ran)
        for batch in found:
            await self._run_batch([await self._ready(item, scope, ran) for item in batch], scope, ran)
        await self._early.take_back("not_run")
        scope.guard.end_round(changed=self._recorder.state.changes.mark() != files)
        await self._hooks.batch(ran.calls, scope)
        if self._asker.closed:
            raise AgentShutdown
        return stop or ran.stopped

    async def _admit_all(self, calls: Sequence[ToolCall], scope: Scope) -> tuple[list[Admitted | Refused], bool]:
        """Which calls may run, asked in their order. Whoever wants the turn to stop is not asked about the rest."""
        stop = False
        admitted: list[Admitted | Refused] = []
        for call in calls:
            if scope.steered():
                admitted.append(_skipped(call))
                continue
            if stop or self._desk.halted:
                admitted.append(_not_run(call, _STOPPED if stop else "a hook ended this turn."))
                continue
            verdict = await self._admit(call, scope)
            if scope.steered():
                verdict = _skipped(call)
            admitted.append(verdict)
            stop = isinstance(verdict, Refused) and verdict.interrupt
        return admitted, stop

    async def _admit(self, call: ToolCall, scope: Scope) -> Admitted | Refused:
        """What was begun early is taken back before anybody is asked about it, and when it may not run as it did."""
        begun = self._early.holds(call.id)
        if begun is not None and not self._admission.still_allowed(begun, scope):
            await self._early.let_go(call.id, "not_run")
            begun = None
        verdict = await self._admission.admit(call, scope, begun)
        if isinstance(verdict, Refused):
            await self._early.let_go(call.id, verdict.reason)
        else:
            await self._early.agree(verdict)
        return verdict

    async def _ready(self, item: Admitted | Refused, scope: Scope, ran: Ran) -> Admitted | Refused:
        now = self._given_up(item, scope, ran)
        if isinstance(now, Refused):
            await self._early.let_go(now.call.id, now.reason)
        return now

    def _given_up(self, item: Admitted | Refused, scope: Scope, ran: Ran) -> Admitted | Refused:
        """A call that was admitted may have lost its reason to run since."""
        if isinstance(item, Refused):
            return item
        if self._asker.closed:
            return _not_run(item.call, str(AgentShutdown()))
        if ran.stopped:
            return _not_run(item.call, _STOPPED)
        if scope.steered():
            return _skipped(item.call)
        if ran.broken and not looks(item.tool, item.args, scope):
            return _not_run(item.call, "the command before it in the same reply failed.")
        return item

    async def _run_batch(self, batch: Sequence[Admitted | Refused], scope: Scope, ran: Ran) -> None:
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

    async def _record(self, item: Admitted | Refused, output: ToolOutput, took_ms: int, scope: Scope, ran: Ran) -> None:
        await self._results.record(item, output, took_ms, scope)
        ran.add(item, output)
        _noticed(item, output, scope)

    # --- one call ---

    async def _run(self, item: Admitted | Refused, scope: Scope, ran: Ran) -> tuple[ToolOutput, int]:
        if isinstance(item, Refused):
            return failed(item.text), 0
        begun = self._early.promote(item.call.id)
        if begun is not None:
            return await self._performer.finish(begun, item, scope, ran)
        if self._early.slots.locked():
            self._queued(item, scope, ran)
        async with self._early.slots:
            return await self._performer.run(item, scope, ran)

    def _queued(self, item: Admitted | Refused, scope: Scope, ran: Ran) -> None:
        """A call waits for its turn. That is said once, and not of one that runs already."""
        call_id = item.call.id
        if isinstance(item, Admitted) and call_id not in ran.queued and self._early.holds(call_id) is None:
            ran.queued.add(call_id)
            self._recorder.emit(CallQueued(call_id, item.tool.name), scope.agent)


def _noticed(item: Admitted | Refused, output: ToolOutput, scope: Scope) -> None:
    """Let the guard know what came of a call, unless it was never tried."""
    if isinstance(item, Admitted):
        runs, edits = item.tool.kind == "execute", item.tool.kind == "edit"
        scope.guard.saw(item.tool.name, item.call.args, output.text, failed=output.is_error, runs=runs, edits=edits)
    elif item.reason != "repetition" and item.status != "cancelled":
        scope.guard.saw(item.call.name, item.call.args, item.text, failed=True)


_STOPPED = "the user stopped this turn."


SKIPPED = "Skipped due to queued user message."
"""What the model reads of a call that somebody's words came before."""


def _skipped(call: ToolCall) -> Refused:
    return Refused(call, SKIPPED, "cancelled")


def _not_run(call: ToolCall, why: str) -> Refused:
    return Refused(call, f"Not run: {why}", "cancelled")
