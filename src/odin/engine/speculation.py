"""Recording that a call does not count which was begun before its reply was complete.

What can be told of a call before it runs: whether it only looks, and which files it names.

Calls that begin while their reply is still being written.

A call whose arguments are complete begins early when the rules let it run without asking anybody and when it can be
taken back: it only looks, or it changes files that are saved first. Calls begin in their order, and none begins after
one that did not, so that what they see is what they would have seen in order. When the reply is final a call that is
still the same counts; any other is discarded, and its files and what was learned by it are as if it had never run.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.context.file_cache import CacheJournal, FileCache, record_into
from odin.core.errors import OdinError
from odin.core.event import CallDiscarded, CallSpeculated, DiscardReason, FileChange, SkippedFile, Warned
from odin.core.message import ToolCall
from odin.core.tool import Tool, ToolOutput, fail
from odin.engine.call_types import AdmittedCall, CallScope, JudgedCall, describe_tool_error
from odin.engine.recorder import Recorder
from odin.policy.commands.analysis import is_read_only
from odin.session.file_history import SpeculativeChanges


class RollbackResult(Struct, frozen=True):
    """What was put back in files, and what was left alone."""

    changes: tuple[FileChange, ...] = ()
    kept: tuple[SkippedFile, ...] = ()


NOTHING_RESTORED = RollbackResult()


def make_failed_rollback(early: SpeculativeChanges, error: Exception) -> RollbackResult:
    """Nothing could be put back."""
    paths = [change.before.path for change in early.changes or ()]
    return RollbackResult(kept=tuple(SkippedFile(path, str(error)) for path in paths))


def find_crashed_calls(recorder: Recorder) -> tuple[SpeculativeChanges, ...]:
    """The calls that an earlier run of the session had begun early when it was killed."""
    return tuple(early for early in recorder.state.file_history.speculative if early.seq <= recorder.last_past_seq)


def record_discard(
    recorder: Recorder,
    agent: str,
    call: CallSpeculated,
    reason: DiscardReason,
    back: RollbackResult = NOTHING_RESTORED,
    *,
    started: bool = True,
    completed: bool = False,
) -> None:
    """The log, and a person where something is not as it was before the call."""
    event = CallDiscarded(
        call.call_id, call.name, call.args, reason, started, completed, restored=back.changes, skipped_files=back.kept
    )
    recorder.emit(event, agent)
    if back.kept:
        named = "; ".join(f"{file.path} ({file.reason})" for file in back.kept)
        recorder.emit(
            Warned(f"{call.name} was begun early and does not count, but this could not be put back: {named}."), agent
        )


MAX_SPECULATIVE_BYTES = 4_000_000
"""A larger file is not changed early: to save it first would hold up the reply."""


def is_read_only_call(tool: Tool[Any], args: Any, scope: CallScope) -> bool:
    """Whether a call only looks: it is made for that, or it is a command that provably does nothing else."""
    if tool.kind != "execute":
        return tool.kind == "read"
    command = tool.subject_of(args).command
    return bool(command) and tool.can_speculate(args) and is_read_only(command, scope.cwd, scope.root)


def named_files_of(judged: JudgedCall) -> frozenset[str]:
    """The files that a call names. Folders are looked through by any number of calls."""
    paths = (os.path.realpath(path) for path in judged.subject.paths if path and "\0" not in path)
    return frozenset(path for path in paths if not Path(path).is_dir())


def is_small(path: str) -> bool:
    try:
        return not os.path.lexists(path) or Path(path).stat().st_size <= MAX_SPECULATIVE_BYTES
    except (OSError, ValueError):
        return False


MAX_PARALLEL_CALLS = 4
"""Calls of one agent that run at the same time, begun early or not."""


class SpeculativeResult(Struct, frozen=True):
    """What came of a call so far. `stopped`: it was kept from running at all, and this is the reason."""

    output: ToolOutput
    is_stopped: bool = False


class FilesNotSaved(Exception):
    """The files that a call would change could not be saved first."""


RollbackFiles = Callable[[SpeculativeChanges], Awaitable[RollbackResult]]
"""Puts the files of a call back as they were."""


class SpeculativeCall:
    """One call that was begun early. People see how it goes on once it is `running` for all to see."""

    task: asyncio.Task[SpeculativeResult]

    def __init__(self, judged: JudgedCall, files: FileCache | None) -> None:
        self.judged = judged
        self._files = files
        self.admitted = AdmittedCall(judged.call, judged.tool, judged.args)
        self.paths = named_files_of(judged)
        self.started_at = time.monotonic()
        self.took_ms = 0
        self.has_started = False
        self.running: set[str] = set()
        self.journal = CacheJournal()

    @property
    def call(self) -> ToolCall:
        return self.judged.call

    @property
    def result(self) -> SpeculativeResult | None:
        """What came of it, when it is over."""
        task = self.task
        over = task.done() and not task.cancelled() and task.exception() is None
        return task.result() if over else None

    async def await_result(self) -> SpeculativeResult:
        """What comes of a call that counts. What it saw and wrote is known from then on."""
        try:
            return await self.task
        finally:
            if self._files is not None:
                self._files.commit(self.journal)


RunSpeculatively = Callable[[SpeculativeCall, CallScope], Awaitable[tuple[ToolOutput, bool]]]
"""Runs a call up to its bare output. True: it was stopped before it ran."""


class Speculator:
    """The early calls of one agent. It hears a reply as it comes and is asked for its calls when it is final.

    `allowed` judges a call without asking anybody. `heard` says whether a hook wants to see calls of that tool before
    they run. Without `restore` nothing that changes files begins early.
    """

    def __init__(
        self,
        *,
        recorder: Recorder,
        admit: Callable[[ToolCall, CallScope], JudgedCall | None],
        has_call_hook: Callable[[Tool[Any]], bool],
        run_tool: RunSpeculatively,
        files: FileCache | None = None,
        rollback_files: RollbackFiles | None = None,
        enabled: bool = True,
    ) -> None:
        self.slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)
        self._recorder = recorder
        self._admit = admit
        self._has_call_hook = has_call_hook
        self._run_tool = run_tool
        self._files = files
        self._rollback_files = rollback_files
        self._enabled = enabled
        self._scope: CallScope | None = None
        self._order: list[str] = []
        self._complete_calls: dict[str, ToolCall | None] = {}
        self._calls: dict[str, SpeculativeCall] = {}
        self._pump: asyncio.Task[None] | None = None
        self._call_completed = asyncio.Event()

    # --- while the reply is being written ---

    def observe_reply(self, scope: CallScope) -> "Speculator":
        """The calls that are heard from now on are of this turn."""
        self._scope = scope
        return self

    def on_call_started(self, call_id: str) -> None:
        """The model has begun to write a call."""
        self._order.append(call_id)

    def on_call_complete(self, call_id: str, name: str, args: dict[str, Any] | None) -> None:
        """The arguments of a call are all there; None when they cannot be read."""
        if not self._enabled or self._scope is None:
            return
        self._complete_calls[call_id] = None if args is None else ToolCall(call_id, name, args)
        self._call_completed.set()
        if self._pump is None:
            self._pump = asyncio.create_task(self._begin_all(self._scope))

    async def _begin_all(self, scope: CallScope) -> None:
        """Begin one call after the other as soon as each may. The first that may not ends it."""
        with suppress(OdinError):  # a log that takes no more is reported by what comes next
            for number in count():
                call = await self._wait_for_call(number)
                judged = self._judge_eligible(call, scope) if call is not None else None
                if judged is None:
                    return
                if judged.tool.kind == "edit" and not await self._did_succeed():
                    return
                await self.slots.acquire()
                self._begin_call(judged, scope)
                if judged.tool.kind == "edit":
                    return

    async def _wait_for_call(self, number: int) -> ToolCall | None:
        while len(self._order) <= number or self._order[number] not in self._complete_calls:
            self._call_completed.clear()
            await self._call_completed.wait()
        return self._complete_calls[self._order[number]]

    def _begin_call(self, judged: JudgedCall, scope: CallScope) -> None:
        call = judged.call
        try:
            self._recorder.emit(CallSpeculated(call.id, judged.tool.name, call.args), scope.agent)
        except BaseException:
            self.slots.release()
            raise
        begun = self._calls[call.id] = SpeculativeCall(judged, self._files)
        begun.task = asyncio.create_task(self._run_call(begun, scope))
        begun.task.add_done_callback(lambda task: self.slots.release())

    async def _run_call(self, begun: SpeculativeCall, scope: CallScope) -> SpeculativeResult:
        with record_into(begun.journal):
            try:
                return SpeculativeResult(*await self._run_tool(begun, scope))
            except FilesNotSaved:
                raise
            except Exception as error:  # as for any call: whatever a tool raises is its result
                return SpeculativeResult(fail(describe_tool_error(begun.judged.tool, error)))
            finally:
                begun.took_ms = int((time.monotonic() - begun.started_at) * 1000)

    async def _did_succeed(self) -> bool:
        """Wait for the calls before a change. False when one of them is a reason not to make it."""
        await _wait_for_calls(self._calls.values())
        results = [(begun.judged.tool.kind, begun.result) for begun in self._calls.values()]
        return all(made is not None and not (kind == "execute" and made.output.is_error) for kind, made in results)

    # --- which calls may ---

    def _judge_eligible(self, call: ToolCall, scope: CallScope) -> JudgedCall | None:
        judged = self._admit(call, scope)
        if judged is None or not judged.tool.can_speculate(judged.args):
            return None
        if judged.tool.exclusive and judged.tool.kind != "edit":
            return None
        if not is_read_only_call(judged.tool, judged.args, scope) and not self._is_reversible(judged):
            return None
        earlier = [(begun.judged.tool.name, begun.call.args) for begun in self._calls.values()]
        if scope.guard.would_refuse([*earlier, (judged.tool.name, call.args)]):
            return None
        taken = {path for begun in self._calls.values() for path in begun.paths}
        return judged if taken.isdisjoint(named_files_of(judged)) else None

    def _is_reversible(self, judged: JudgedCall) -> bool:
        """Whether it is a change of files that can be saved first, which nobody wants to see before it is made."""
        tool, paths = judged.tool, judged.subject.paths
        if self._rollback_files is None or tool.kind != "edit" or not paths or self._has_call_hook(tool):
            return False
        return all(is_small(path) for path in paths)

    # --- when the reply is final ---

    async def discard_changed(self, calls: Sequence[ToolCall]) -> None:
        """These are the calls of the reply. What is not among them, or not as it was begun, is discarded."""
        await self._stop_pump()
        final = {call.id: call for call in calls}
        for call_id, begun in list(self._calls.items()):
            if call_id not in self._calls:
                return
            if call_id not in final:
                await self._discard_from(begun, "filtered")
            elif (final[call_id].name, final[call_id].args) != (begun.call.name, begun.call.args):
                await self._discard_from(begun, "args_drift")
            elif begun.judged.tool.kind == "edit":
                await _wait_for_calls([begun])
                if begun.result is None:
                    await self._discard_from(begun, "filtered")

    def find_judged(self, call_id: str) -> JudgedCall | None:
        """How a call was judged that is begun and may yet count."""
        begun = self._calls.get(call_id)
        return begun.judged if begun is not None else None

    async def discard_call(self, call_id: str, reason: DiscardReason) -> None:
        """This call does not count, and so none does that was begun after it."""
        begun = self._calls.get(call_id)
        if begun is not None:
            await self._discard_from(begun, reason)

    async def confirm_arguments(self, item: AdmittedCall) -> None:
        """This is what is going to run. Whoever changed the arguments has made it another call."""
        begun = self._calls.get(item.call.id)
        if begun is not None and (begun.call.args != item.call.args or begun.judged.tool is not item.tool):
            await self._discard_from(begun, "args_drift")

    def commit(self, call_id: str) -> SpeculativeCall | None:
        """The call counts from now on. Whoever asks waits for what comes of it."""
        begun = self._calls.pop(call_id, None)
        if begun is not None:
            begun.running.add(call_id)
        return begun

    # --- taking back ---

    async def rollback(self, reason: DiscardReason) -> None:
        """None of the calls that were begun counts. What was heard of the reply is forgotten."""
        await self._stop_pump()
        if self._calls:
            await _run_to_completion(self._discard_calls(list(self._calls.values()), reason))
        self._order, self._complete_calls = [], {}

    async def _stop_pump(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])

    async def _discard_from(self, first: SpeculativeCall, reason: DiscardReason) -> None:
        begun = list(self._calls.values())
        await _run_to_completion(self._discard_calls(begun[begun.index(first) :], reason))

    async def _discard_calls(self, calls: Sequence[SpeculativeCall], reason: DiscardReason) -> None:
        """The last one first, so that each finds what it left."""
        done = {begun.call.id for begun in calls if begun.result is not None}
        for begun in calls:
            begun.task.cancel()
        await _wait_for_calls(calls)
        failure: OdinError | None = None
        for begun in reversed(calls):
            self._calls.pop(begun.call.id, None)
            if self._files is not None:
                self._files.rollback(begun.journal)
            try:
                await self._rollback_call(begun, reason, completed=begun.call.id in done)
            except OdinError as error:  # of the log: first the files of all of them
                failure = failure or error
        if failure is not None:
            raise failure

    async def _rollback_call(self, begun: SpeculativeCall, reason: DiscardReason, *, completed: bool) -> None:
        agent = self._scope.agent if self._scope else ""
        early = self._recorder.state.file_history.find_speculative(agent, begun.call.id)
        back = NOTHING_RESTORED
        if early is not None and early.saved is not None and self._rollback_files is not None:
            try:
                back = await self._rollback_files(early)
            except (OdinError, OSError) as error:
                back = make_failed_rollback(early, error)
        call = CallSpeculated(begun.call.id, begun.judged.tool.name, begun.call.args)
        record_discard(self._recorder, agent, call, reason, back, started=begun.has_started, completed=completed)


async def _wait_for_calls(calls: Iterable[SpeculativeCall]) -> None:
    tasks = [begun.task for begun in calls]
    if tasks:
        await asyncio.wait(tasks)


async def _run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Do it whatever happens: whoever is cancelled meanwhile hears of it when it is done."""
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
