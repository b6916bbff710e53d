"""Going back to before a prompt, and forward again: which files may be put back, and doing it.

A path is put back only when everything that was ever seen of it since is the session's own doing. As soon as somebody
else had a hand in it, it is left alone and named; `force` takes it all the same. What is there at that moment is saved
first, so that nothing a rewind replaces is lost.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from odin.core.errors import OdinError, UsageError
from odin.core.event import FileChange, FilesSaved, FileState, KeptFile, Redone, Rewound
from odin.core.op import Redo, Rewind
from odin.engine.files.checkpointer import EDIT_BYTES, Checkpointer, in_thread
from odin.engine.recorder import Recorder
from odin.session.files.changes import Change
from odin.session.files.checkpoints import CheckpointStore
from odin.session.files.filestate import UNHASHED, same, signature, state_of, unspelled
from odin.session.files.listing import hashed, read_file
from odin.session.files.restore import NotRestored, clear, put

FOREIGN = "somebody else changed it since"
SHARED = "it changed while a process ran in the background, so it may be somebody else's change"
UNSAVED = "its earlier bytes were not saved"
_MANY = 100
"""More files than this are brought to the disk together, because each by itself would take most of the time."""


class Step(Struct, frozen=True):
    """One path: what is there and what shall be. With a `reason` it stays as it is."""

    now: FileState
    target: FileState
    reason: str = ""


class Plan(Struct, frozen=True):
    steps: tuple[Step, ...]
    kept: tuple[KeptFile, ...]

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return tuple(FileChange(step.now, step.target) for step in self.steps)


class Outcome(Struct, frozen=True):
    changes: tuple[FileChange, ...] = ()
    kept: tuple[KeptFile, ...] = ()


def plan_back(changes: Iterable[Change], store: CheckpointStore, *, force: bool) -> Plan:
    """How every path got from the first of these changes to what it is now, and whether it can go back."""
    by_path: dict[str, list[Change]] = {}
    for change in changes:
        by_path.setdefault(change.before_after.before.path, []).append(change)
    return _plan((_judge(path, found) for path, found in by_path.items()), store, force)


def plan_forward(changes: Iterable[FileChange], store: CheckpointStore, *, force: bool) -> Plan:
    """The reverse of what a rewind did."""
    return plan_back([Change(change) for change in changes], store, force=force)


def _judge(path: str, found: list[Change]) -> Step:
    target = found[0].before_after.before
    known = [target]
    foreign = False
    for change in found:
        foreign = foreign or not _among(change.before_after.before, known)
        known.append(change.before_after.after)
    now = _now(path, known)
    if same(now, target):
        return Step(now, target)
    if foreign or not _among(now, known):
        return Step(now, target, FOREIGN)
    if any(change.shared for change in found):
        return Step(now, target, SHARED)
    return Step(now, target)


def _plan(found: Iterable[Step], store: CheckpointStore, force: bool) -> Plan:
    steps: list[Step] = []
    kept: list[KeptFile] = []
    for step in found:
        if same(step.now, step.target):
            continue
        lost = _lost(step.target, store)
        reason = lost or ("" if force else step.reason)
        if reason:
            kept.append(KeptFile(step.target.path, reason))
        else:
            steps.append(step)
    return Plan(tuple(steps), tuple(kept))


def _lost(target: FileState, store: CheckpointStore) -> str:
    if target.kind == "other" or not target.saved:
        return UNSAVED
    if target.kind == "file" and not store.holds(target.sha256):
        return "its earlier bytes are no longer in the checkpoint store"
    return ""


def _among(state: FileState, known: Iterable[FileState]) -> bool:
    return any(same(state, other) for other in known)


def _now(path: str, known: list[FileState]) -> FileState:
    """The path as it is, described so that it can be compared with what is known of it."""
    signatures = {state.sha256 for state in known if state.sha256.startswith(UNHASHED)}

    def content(path: str, info: os.stat_result) -> str:
        return "" if signature(info) in signatures else hashed(path, info)

    return state_of(unspelled(path), content)


def carry_out(plan: Plan, store: CheckpointStore) -> Outcome:
    """Put back what can be put back. One path that fails does not stop the others."""
    failed: dict[str, str] = {}
    cleared: set[str] = set()
    many = len(plan.steps) > _MANY
    for step in sorted(plan.steps, key=lambda step: step.now.path, reverse=True):
        if step.target.kind == "absent" or (step.now.kind == "folder") != (step.target.kind == "folder"):
            _try(failed, step, lambda step=step: _clear(step))
            cleared.add(step.now.path)
    for step in sorted(plan.steps, key=lambda step: step.target.path):
        if step.target.kind != "absent" and step.target.path not in failed:
            _try(failed, step, lambda step=step: _put(step, store, step.target.path in cleared, sync=not many))
    if many:
        os.sync()
    done = tuple(FileChange(step.now, step.target) for step in plan.steps if step.target.path not in failed)
    named = tuple(KeptFile(path, reason) for path, reason in failed.items() if reason)
    return Outcome(done, (*plan.kept, *named))


def _clear(step: Step) -> None:
    """A folder that the session made and that somebody else uses now stays; that is nobody's loss."""
    _check_unchanged(step)
    if step.now.kind == "folder" and step.target.kind == "absent" and any(Path(unspelled(step.now.path)).iterdir()):
        raise NotRestored("")
    if step.now.kind != "absent":
        clear(step.now)


def _put(step: Step, store: CheckpointStore, cleared: bool, *, sync: bool) -> None:
    if not cleared:
        _check_unchanged(step)
    try:
        put(step.target, store.fetch, sync=sync)
    except (NotRestored, OdinError):
        if cleared and step.now.kind != "absent":
            put(step.now, store.fetch)
        raise


def _check_unchanged(step: Step) -> None:
    if not same(_now(step.now.path, [step.now]), step.now):
        raise NotRestored("somebody changed it at this very moment")


def _try(failed: dict[str, str], step: Step, act: Callable[[], None]) -> None:
    try:
        act()
    except (NotRestored, OdinError, OSError) as error:
        failed[step.target.path] = str(error)


class Rewinder:
    """`forget` is called when the model must not rely any more on what it has read."""

    def __init__(
        self, recorder: Recorder, checkpoints: Checkpointer, forget: Callable[[], None] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._store = checkpoints.store
        self._forget = forget

    async def plan(self, op: Rewind) -> Plan:
        """What a rewind would do."""
        await self._checkpoints.settle()
        changes = self._recorder.state.changes_since(op.turn)
        if changes is None:
            raise UsageError(f"There is no prompt {op.turn!r} in this session.", "It may have been taken back already.")
        if not op.files:
            return Plan((), ())
        return await in_thread(lambda stopped: plan_back(changes, self._store, force=op.force))

    async def rewind(self, op: Rewind) -> Rewound:
        if not (op.files or op.chat):
            raise UsageError("A rewind needs something to take back.", "Name files, chat or both.")
        plan = await self.plan(op)
        name = f"rewind-{self._recorder.state.seq + 1}"
        outcome = await self._carry_out(name, plan)
        event = Rewound(name, op.turn, op.files, op.chat, outcome.changes, outcome.kept)
        self._recorder.emit(event)
        self._forget()
        return event

    async def plan_redo(self, op: Redo) -> tuple[Rewound, Plan]:
        await self._checkpoints.settle()
        undone = self._recorder.state.undone
        if undone is None:
            raise UsageError(
                "There is nothing to redo.", "Only a rewind after which nothing was asked can be taken back."
            )
        return undone, await in_thread(lambda stopped: plan_forward(undone.changes, self._store, force=op.force))

    async def redo(self, op: Redo) -> Redone:
        undone, plan = await self.plan_redo(op)
        outcome = await self._carry_out(undone.id, plan)
        event = Redone(undone.id, outcome.changes, outcome.kept)
        self._recorder.emit(event)
        self._forget()
        return event

    async def _carry_out(self, name: str, plan: Plan) -> Outcome:
        """What is there now is in the store and in the log before any of it is replaced."""
        plan = await in_thread(lambda stopped: self._saved(plan))
        if not plan.steps:
            return Outcome(kept=plan.kept)
        self._recorder.emit(FilesSaved(name, tuple(step.now for step in plan.steps)))
        return await in_thread(lambda stopped: carry_out(plan, self._store))

    def _saved(self, plan: Plan) -> Plan:
        steps: list[Step] = []
        kept = list(plan.kept)
        for step in plan.steps:
            try:
                self._save(step.now)
                steps.append(step)
            except (NotRestored, OdinError) as error:
                kept.append(KeptFile(step.now.path, str(error)))
        return Plan(tuple(steps), tuple(kept))

    def _save(self, now: FileState) -> None:
        if now.kind == "file":
            data = read_file(unspelled(now.path), EDIT_BYTES)
            if data is None or self._store.keep(data) != now.sha256:
                raise NotRestored("what is there now cannot be saved first")
        elif now.kind == "other":
            raise NotRestored("what is there now is neither a file nor a folder nor a link")
