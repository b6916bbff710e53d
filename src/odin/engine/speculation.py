"""Starts tool calls while their reply is still being streamed.

A call whose arguments are complete starts speculatively if the rules allow it without approval and it can be undone:
it is read-only, a command in a view that is applied without asking, or it edits files that are saved first. Calls start
in order, and none starts after one that did not,
so each sees what it would have seen in order. When the reply is final, a call that is still the same counts and `run`
takes its output. Any other call is discarded, with all that started after it: its files are restored, what it wrote in
a view and what it read is forgotten. At most one call changes something, as the last, so the order of undoing never
matters.

A speculative call is not part of the session until it counts. Its file changes are kept apart in the session state, and
what it read in a journal of the file cache; `ToolStarted` brings them in and `CallDiscarded` drops them.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.context.file_cache import CacheJournal, FileCache, record_into
from odin.core.call_events import CallSpeculated
from odin.core.errors import OdinError
from odin.core.event_values import DiscardReason, FileState, SkippedFile
from odin.core.message import ToolCall
from odin.core.tool import fail
from odin.engine.call import Call, CallDeps, CallScope
from odin.engine.call_text import describe_tool_error
from odin.engine.command_effects import drop_layer
from odin.engine.execution import CallExecutor, RawOutput, ToolRun
from odin.engine.rollback import NOTHING_RESTORED, RollbackFiles, RollbackResult, record_discard
from odin.sandbox.runner import ViewUnavailable

MAX_PARALLEL_CALLS = 4
"""Calls of one agent that run at the same time, speculative or not."""

MAX_SPECULATIVE_BYTES = 4_000_000
"""Larger files are not edited speculatively: saving them first would delay the reply."""


class SpeculationSettings(Struct, frozen=True):
    """Without `rollback_files` no edit starts speculatively. `files` forgets what a discarded call has read."""

    enabled: bool = True
    files: FileCache | None = None
    rollback_files: RollbackFiles | None = None


class FilesNotSaved(Exception):
    """The files a call would change could not be saved first."""


class SpeculativeCall(ToolRun):
    """One call that runs before its reply is final. Its progress is hidden until it counts."""

    task: asyncio.Task[RawOutput]

    def __init__(self, call: Call, files: FileCache | None) -> None:
        super().__init__(is_shown=False)
        self.call = call
        self.paths = list_named_files(call)
        self.has_started = False
        self.journal = CacheJournal()
        self._files = files

    @property
    def result(self) -> RawOutput | None:
        """The output, if the call has ended with one."""
        task = self.task
        succeeded = task.done() and not task.cancelled() and task.exception() is None
        return task.result() if succeeded else None

    async def await_started(self) -> RawOutput:
        """Wait for the output of a call that counts. What it read and wrote is in the file cache from then on."""
        try:
            return await self.task
        finally:
            if self._files is not None:
                self._files.commit(self.journal)


class Speculator:
    """The speculative calls of one agent. It observes a reply while it is streamed and wraps `run` when it is final."""

    def __init__(self, deps: CallDeps, settings: SpeculationSettings) -> None:
        self._deps = deps
        self._recorder = deps.recorder
        self._settings = settings
        self._slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)
        self._executor: CallExecutor | None = None
        self._order: list[str] = []
        self._complete_calls: dict[str, ToolCall | None] = {}
        self._calls: dict[str, SpeculativeCall] = {}
        self._starting: asyncio.Handle | None = None
        self._pump: asyncio.Task[None] | None = None
        self._call_completed = asyncio.Event()

    # --- while the reply is streamed ---

    def observe_reply(self, scope: CallScope) -> "Speculator":
        """Take the calls reported from now on as calls of this turn."""
        if self._executor is None or self._executor.scope is not scope:
            self._executor = CallExecutor(scope, self._deps)
        return self

    def on_call_started(self, call_id: str) -> None:
        """The first chunk of a call has arrived."""
        self._order.append(call_id)

    def on_call_complete(self, call_id: str, name: str, args: dict[str, Any] | None) -> None:
        """The arguments of a call are complete; None if they are not valid JSON."""
        if not self._settings.enabled or self._executor is None:
            return
        self._complete_calls[call_id] = None if args is None else ToolCall(call_id, name, args)
        self._call_completed.set()
        if self._starting is None:
            # Soon, not now: the end of the reply has often arrived too, and a task that was never started costs a
            # round of the event loop to end.
            self._starting = asyncio.get_running_loop().call_soon(self._start_pump, self._executor)

    def _start_pump(self, executor: CallExecutor) -> None:
        self._pump = asyncio.create_task(self._start_all(executor))

    async def _start_all(self, executor: CallExecutor) -> None:
        """Start the calls in order, each as soon as it may; stop at the first that may not, and after an edit."""
        with suppress(OdinError):  # the next step of the turn reports a log that cannot be written
            for number in count():
                while len(self._order) <= number or self._order[number] not in self._complete_calls:
                    self._call_completed.clear()
                    await self._call_completed.wait()
                request = self._complete_calls[self._order[number]]
                call = await self._evaluate_eligible(request, executor) if request is not None else None
                if call is None:
                    return
                if call.tool.kind == "edit" and not await self._did_succeed():
                    return
                await self._slots.acquire()
                try:
                    executor.emit(CallSpeculated(call.id, call.tool.name, call.request.args))
                except BaseException:
                    self._slots.release()
                    raise
                started = self._calls[call.id] = SpeculativeCall(call, self._settings.files)
                started.task = asyncio.create_task(self._run_speculatively(started, executor))
                started.task.add_done_callback(lambda task: self._slots.release())
                if not executor.is_read_only(call):
                    return

    async def _evaluate_eligible(self, request: ToolCall, executor: CallExecutor) -> Call | None:
        """Return the checked call if it may start speculatively, otherwise None."""
        call = await executor.evaluate_without_asking(request)
        if call is None or not call.tool.can_speculate(call.args):
            return None
        if call.tool.exclusive and call.tool.kind != "edit":
            return None
        if not executor.is_read_only(call) and not self._is_reversible(call):
            return None
        taken = {path for started in self._calls.values() for path in started.paths}
        return call if taken.isdisjoint(list_named_files(call)) else None

    def _is_reversible(self, call: Call) -> bool:
        """True for an edit of files that can be saved first, and for a command in a view about which nobody is asked.

        Not if a hook must see the call before it runs.
        """
        tool, paths, decision = call.tool, call.paths, call.decision
        if self._deps.hooks.has_hook_for("PreToolUse", tool.name):
            return False
        if tool.kind == "execute":
            return decision.runs_in == "view" and decision.after in ("apply", "discard")
        can_save = self._settings.rollback_files is not None and tool.kind == "edit" and bool(paths)
        return can_save and all(_is_small(path) for path in paths)

    async def _did_succeed(self) -> bool:
        """Wait for the calls before an edit. False if one of them is a reason not to make it."""
        await _wait_for_calls(self._calls.values())
        results = [(started.call.tool.kind, started.result) for started in self._calls.values()]
        return all(raw is not None and not (kind == "execute" and raw.output.is_error) for kind, raw in results)

    async def _run_speculatively(self, started: SpeculativeCall, executor: CallExecutor) -> RawOutput:
        """Run the tool up to its bare output. Never ask the user, and an edit runs only if its files are saved."""
        call = started.call

        def check_saved() -> None:
            changes = self._recorder.state.file_history.find_speculative(executor.scope.agent, call.id)
            saved = changes.saved.files if changes is not None and changes.saved is not None else ()
            if call.tool.kind == "edit" and not (saved and all(_can_restore(state) for state in saved)):
                raise FilesNotSaved
            started.has_started = True

        with record_into(started.journal):
            try:
                return await executor.run_tool(call, executor.build_context(call, started), on_start=check_saved)
            except (FilesNotSaved, ViewUnavailable):
                raise
            except Exception as error:  # whatever a tool raises is its result
                return RawOutput(fail(describe_tool_error(call.tool, error)))
            finally:
                started.stop_clock()

    # --- when the reply is final ---

    async def discard_changed(self, requests: Sequence[ToolCall]) -> None:
        """Discard every speculative call that the final reply does not contain, or contains with other arguments."""
        await self._stop_pump()
        final = {request.id: request for request in requests}
        for call_id, started in list(self._calls.items()):
            if call_id not in self._calls:
                return
            request = started.call.request
            if call_id not in final:
                await self._discard_from(started, "filtered")
            elif (final[call_id].name, final[call_id].args) != (request.name, request.args):
                await self._discard_from(started, "args_drift")
            elif started.call.tool.kind == "edit":
                await _wait_for_calls([started])
                if started.result is None:
                    await self._discard_from(started, "filtered")

    def has_started(self, call_id: str) -> bool:
        return call_id in self._calls

    async def find_evaluated(self, request: ToolCall, executor: CallExecutor) -> Call:
        """Return the call as checked when it started; discard it and return a new call if it is no longer allowed."""
        started = self._calls.get(request.id)
        if started is not None and executor.is_still_allowed(started.call):
            return started.call
        if started is not None:
            await self._discard_from(started, "not_run")
        return Call(request)

    async def settle(self, call: Call) -> None:
        """Discard the speculative call if authorization refused it or changed its arguments, and all that started
        later."""
        started = self._calls.get(call.id)
        if started is None:
            return
        if call.refusal is not None:
            await self._discard_from(started, call.refusal.discard_reason)
        elif started.call.request.args != call.request.args or started.call.tool is not call.tool:
            await self._discard_from(started, "args_drift")

    async def run(self, call: Call, executor: CallExecutor, on_queued: Callable[[], None]) -> Call:
        """`run` for an authorized call. `on_queued` is called if it must wait because too many calls run."""
        started = self._calls.pop(call.id, None)
        if started is not None:
            started.is_shown = True
            return await executor.run(call, started)
        if self._slots.locked():
            on_queued()
        async with self._slots:
            return await executor.run(call)

    # --- undo ---

    async def rollback(self, reason: DiscardReason) -> None:
        """Discard all speculative calls and forget what was streamed of the reply."""
        await self._stop_pump()
        if self._calls:
            await _run_to_completion(self._discard_calls(list(self._calls.values()), reason))
        self._order, self._complete_calls = [], {}

    async def _stop_pump(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        pump, self._starting, self._pump = self._pump, None, None
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])

    async def _discard_from(self, first: SpeculativeCall, reason: DiscardReason) -> None:
        calls = list(self._calls.values())
        await _run_to_completion(self._discard_calls(calls[calls.index(first) :], reason))

    async def _discard_calls(self, calls: Sequence[SpeculativeCall], reason: DiscardReason) -> None:
        """Undo the last call first, so that each finds the files as it left them."""
        completed = {started.call.id for started in calls if started.result is not None}
        for started in calls:
            started.task.cancel()
        await _wait_for_calls(calls)
        failure: OdinError | None = None
        for started in reversed(calls):
            self._calls.pop(started.call.id, None)
            output = started.partial if started.result is None else started.result.output
            if output is not None and output.layer is not None:
                drop_layer(output.layer)
            if self._settings.files is not None:
                self._settings.files.rollback(started.journal)
            try:
                await self._rollback_call(started, reason, completed=started.call.id in completed)
            except OdinError as error:  # the log failed: restore the files of the other calls first
                failure = failure or error
        if failure is not None:
            raise failure

    async def _rollback_call(self, started: SpeculativeCall, reason: DiscardReason, *, completed: bool) -> None:
        agent = self._executor.scope.agent if self._executor else ""
        call = started.call
        changes = self._recorder.state.file_history.find_speculative(agent, call.id)
        restored = NOTHING_RESTORED
        if changes is not None and changes.saved is not None and self._settings.rollback_files is not None:
            try:
                restored = await self._settings.rollback_files(changes)
            except (OdinError, OSError) as error:
                paths = [change.before.path for change in changes.changes or ()]
                restored = RollbackResult(kept=tuple(SkippedFile(path, str(error)) for path in paths))
        event = CallSpeculated(call.id, call.tool.name, call.request.args)
        record_discard(self._recorder, agent, event, reason, restored, started=started.has_started, completed=completed)


def list_named_files(call: Call) -> frozenset[str]:
    """Return the files a checked call names. Directories are left out: any number of calls may read one."""
    return frozenset(path for path in call.paths if not Path(path).is_dir())


def _is_small(path: str) -> bool:
    try:
        return not os.path.lexists(path) or Path(path).stat().st_size <= MAX_SPECULATIVE_BYTES
    except (OSError, ValueError):
        return False


def _can_restore(state: FileState) -> bool:
    return state.saved and state.kind != "other"


async def _wait_for_calls(calls: Iterable[SpeculativeCall]) -> None:
    tasks = [started.task for started in calls]
    if tasks:
        await asyncio.wait(tasks)


async def _run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end even if the caller is cancelled; raise CancelledError only afterwards."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()
        raise asyncio.CancelledError
    task.result()
