"""Going back to before a prompt, and forward again: which files may be put back, and doing it.

A path is put back only when everything that was ever seen of it since is the session's own doing. As soon as somebody
else had a hand in it, it is left alone and named; `force` takes it all the same. What is there at that moment is saved
first, so that nothing a rewind replaces is lost.

Putting back the files of a call that was begun early and does not count.

A path is put back only when what is there now is the call's own doing. What somebody else changed since is left alone.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct, structs

from odin.checkpoints.checkpointer import MAX_EDIT_BYTES, OWN_CHANGE_S, Checkpointer, run_in_thread
from odin.checkpoints.file_state import (
    UNHASHED_PREFIX,
    RestoreFailed,
    changed_time_of,
    decode_path,
    is_same_state,
    remove_path,
    resolved_path_of,
    restore_path,
    signature_of,
    state_of,
)
from odin.checkpoints.project_listing import hash_file, read_regular_file
from odin.checkpoints.store import CheckpointStore
from odin.core.errors import OdinError, UsageError
from odin.core.event import CheckpointSaved, FileChange, FileState, Redone, Rewound, SkippedFile
from odin.core.op import Redo, Rewind
from odin.core.path_names import contains
from odin.engine.recorder import Recorder
from odin.engine.speculation import NOTHING_RESTORED, RollbackResult, record_discard
from odin.policy.paths import find_protected_part
from odin.session.file_history import RecordedChange, SpeculativeChanges

CHANGED_BY_OTHERS = "somebody else changed it since"
CHANGED_IN_BACKGROUND = "it changed while a process ran in the background, so it may be somebody else's change"
UNSAVED = "its earlier bytes were not saved"
_SYNC_TOGETHER = 100
"""More files than this are brought to the disk together, because each by itself would take most of the time."""


class RestoreStep(Struct, frozen=True):
    """One path: what is there and what shall be. With a `reason` it stays as it is."""

    now: FileState
    target: FileState
    reason: str = ""


class RestorePlan(Struct, frozen=True):
    steps: tuple[RestoreStep, ...]
    kept: tuple[SkippedFile, ...]

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return tuple(FileChange(step.now, step.target) for step in self.steps)


class RestoreOutcome(Struct, frozen=True):
    changes: tuple[FileChange, ...] = ()
    kept: tuple[SkippedFile, ...] = ()


def plan_restore(changes: Iterable[RecordedChange], store: CheckpointStore, *, force: bool) -> RestorePlan:
    """How every path got from the first of these changes to what it is now, and whether it can go back."""
    by_path: dict[str, list[RecordedChange]] = {}
    for change in changes:
        by_path.setdefault(change.change.before.path, []).append(change)
    return _build_plan((_judge_path(path, found) for path, found in by_path.items()), store, force)


def plan_reapply(changes: Iterable[FileChange], store: CheckpointStore, *, force: bool) -> RestorePlan:
    """The reverse of what a rewind did."""
    return plan_restore([RecordedChange(change) for change in changes], store, force=force)


def _judge_path(path: str, found: list[RecordedChange]) -> RestoreStep:
    target = found[0].change.before
    known = [target]
    foreign = False
    for change in found:
        foreign = foreign or not _is_known_state(change.change.before, known)
        known.append(change.change.after)
    now = _current_state_of(path, known)
    if is_same_state(now, target):
        return RestoreStep(now, target)
    if foreign or not _is_known_state(now, known):
        return RestoreStep(now, target, CHANGED_BY_OTHERS)
    if any(change.is_shared for change in found):
        return RestoreStep(now, target, CHANGED_IN_BACKGROUND)
    return RestoreStep(now, target)


def _build_plan(found: Iterable[RestoreStep], store: CheckpointStore, force: bool) -> RestorePlan:
    steps: list[RestoreStep] = []
    kept: list[SkippedFile] = []
    for step in found:
        if is_same_state(step.now, step.target):
            continue
        lost = _missing_reason_of(step.target, store)
        reason = lost or ("" if force else step.reason)
        if reason:
            kept.append(SkippedFile(step.target.path, reason))
        else:
            steps.append(step)
    return RestorePlan(tuple(steps), tuple(kept))


def _missing_reason_of(target: FileState, store: CheckpointStore) -> str:
    if target.kind == "other" or not target.saved:
        return UNSAVED
    if target.kind == "file" and not store.contains(target.sha256):
        return "its earlier bytes are no longer in the checkpoint store"
    return ""


def _is_known_state(state: FileState, known: Iterable[FileState]) -> bool:
    return any(is_same_state(state, other) for other in known)


def _current_state_of(path: str, known: list[FileState]) -> FileState:
    """The path as it is, described so that it can be compared with what is known of it."""
    signatures = {state.sha256 for state in known if state.sha256.startswith(UNHASHED_PREFIX)}

    def content(path: str, info: os.stat_result) -> str:
        return "" if signature_of(info) in signatures else hash_file(path, info)

    return state_of(decode_path(path), content)


def restore_files(plan: RestorePlan, store: CheckpointStore) -> RestoreOutcome:
    """Put back what can be put back. One path that fails does not stop the others."""
    failed: dict[str, str] = {}
    cleared: set[str] = set()
    many = len(plan.steps) > _SYNC_TOGETHER
    for step in sorted(plan.steps, key=lambda step: step.now.path, reverse=True):
        if step.target.kind == "absent" or (step.now.kind == "folder") != (step.target.kind == "folder"):
            _try_step(failed, step, lambda step=step: _clear_step(step))
            cleared.add(step.now.path)
    for step in sorted(plan.steps, key=lambda step: step.target.path):
        if step.target.kind != "absent" and step.target.path not in failed:
            _try_step(
                failed, step, lambda step=step: _restore_step(step, store, step.target.path in cleared, sync=not many)
            )
    if many:
        os.sync()
    done = tuple(FileChange(step.now, step.target) for step in plan.steps if step.target.path not in failed)
    named = tuple(SkippedFile(path, reason) for path, reason in failed.items() if reason)
    return RestoreOutcome(done, (*plan.kept, *named))


def _clear_step(step: RestoreStep) -> None:
    """A folder that the session made and that somebody else uses now stays; that is nobody's loss."""
    _check_unchanged(step)
    if step.now.kind == "folder" and step.target.kind == "absent" and any(Path(decode_path(step.now.path)).iterdir()):
        raise RestoreFailed("")
    if step.now.kind != "absent":
        remove_path(step.now)


def _restore_step(step: RestoreStep, store: CheckpointStore, cleared: bool, *, sync: bool) -> None:
    if not cleared:
        _check_unchanged(step)
    try:
        restore_path(step.target, store.fetch, sync=sync)
    except (RestoreFailed, OdinError):
        if cleared and step.now.kind != "absent":
            restore_path(step.now, store.fetch)
        raise


def _check_unchanged(step: RestoreStep) -> None:
    if not is_same_state(_current_state_of(step.now.path, [step.now]), step.now):
        raise RestoreFailed("somebody changed it at this very moment")


def _try_step(failed: dict[str, str], step: RestoreStep, act: Callable[[], None]) -> None:
    try:
        act()
    except (RestoreFailed, OdinError, OSError) as error:
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

    async def plan(self, op: Rewind) -> RestorePlan:
        """What a rewind would do."""
        await self._checkpoints.record_pending()
        changes = self._recorder.state.list_changes_since(op.turn)
        if changes is None:
            raise UsageError(f"There is no prompt {op.turn!r} in this session.", "It may have been taken back already.")
        if not op.files:
            return RestorePlan((), ())
        return await run_in_thread(lambda stopped: plan_restore(changes, self._store, force=op.force))

    async def rewind(self, op: Rewind) -> Rewound:
        if not (op.files or op.chat):
            raise UsageError("A rewind needs something to take back.", "Name files, chat or both.")
        plan = await self.plan(op)
        name = f"rewind-{self._recorder.state.seq + 1}"
        outcome = await self._restore(name, plan)
        event = Rewound(name, op.turn, op.files, op.chat, outcome.changes, outcome.kept)
        self._recorder.emit(event)
        self._forget()
        return event

    async def plan_redo(self, op: Redo) -> tuple[Rewound, RestorePlan]:
        await self._checkpoints.record_pending()
        undone = self._recorder.state.conversation.redoable_rewind
        if undone is None:
            raise UsageError(
                "There is nothing to redo.", "Only a rewind after which nothing was asked can be taken back."
            )
        return undone, await run_in_thread(lambda stopped: plan_reapply(undone.changes, self._store, force=op.force))

    async def redo(self, op: Redo) -> Redone:
        undone, plan = await self.plan_redo(op)
        outcome = await self._restore(undone.id, plan)
        event = Redone(undone.id, outcome.changes, outcome.kept)
        self._recorder.emit(event)
        self._forget()
        return event

    async def _restore(self, name: str, plan: RestorePlan) -> RestoreOutcome:
        """What is there now is in the store and in the log before any of it is replaced."""
        plan = await run_in_thread(lambda stopped: self._save_current(plan))
        if not plan.steps:
            return RestoreOutcome(kept=plan.kept)
        self._recorder.emit(CheckpointSaved(name, tuple(step.now for step in plan.steps)))
        return await run_in_thread(lambda stopped: restore_files(plan, self._store))

    def _save_current(self, plan: RestorePlan) -> RestorePlan:
        steps: list[RestoreStep] = []
        kept = list(plan.kept)
        for step in plan.steps:
            try:
                self._save_state(step.now)
                steps.append(step)
            except (RestoreFailed, OdinError) as error:
                kept.append(SkippedFile(step.now.path, str(error)))
        return RestorePlan(tuple(steps), tuple(kept))

    def _save_state(self, now: FileState) -> None:
        if now.kind == "file":
            data = read_regular_file(decode_path(now.path), MAX_EDIT_BYTES)
            if data is None or self._store.keep(data) != now.sha256:
                raise RestoreFailed("what is there now cannot be saved first")
        elif now.kind == "other":
            raise RestoreFailed("what is there now is neither a file nor a folder nor a link")


OUT_OF_BOUNDS = "it is outside the project or protected"


async def rollback_files(early: SpeculativeChanges, store: CheckpointStore) -> RollbackResult:
    return await run_in_thread(lambda stopped: _rollback(early, store))


def _rollback(early: SpeculativeChanges, store: CheckpointStore) -> RollbackResult:
    changes, foreign = (early.changes, ()) if early.changes is not None else _guess_changes(early)
    outcome = restore_files(plan_restore(map(RecordedChange, changes), store, force=False), store)
    return RollbackResult(outcome.changes, (*outcome.kept, *foreign))


async def _rollback_within(early: SpeculativeChanges, store: CheckpointStore, root: str) -> RollbackResult:
    """Put back what is in the project and not protected; to change anything else somebody would have been asked."""
    files = early.saved.files if early.saved else ()
    changes = early.changes
    named = [state.path for state in files] if changes is None else [change.before.path for change in changes]
    barred = {path for path in dict.fromkeys(named) if not _is_restorable(path, root)}
    if early.saved:
        saved = structs.replace(early.saved, files=tuple(state for state in files if state.path not in barred))
        early = structs.replace(early, saved=saved)
    if changes is not None:
        early = structs.replace(early, changes=tuple(item for item in changes if item.before.path not in barred))
    back = await rollback_files(early, store)
    return RollbackResult(back.changes, (*back.kept, *(SkippedFile(path, OUT_OF_BOUNDS) for path in sorted(barred))))


def _is_restorable(path: str, root: str) -> bool:
    place = decode_path(path)
    return (
        "\0" not in place
        and resolved_path_of(place) == place
        and contains(root, place)
        and not find_protected_part(place, root)
    )


def _guess_changes(early: SpeculativeChanges) -> tuple[tuple[FileChange, ...], tuple[SkippedFile, ...]]:
    """What a call did that was killed before it could say so, and what is changed but not by it."""
    own: list[FileChange] = []
    foreign: list[SkippedFile] = []
    for was in early.saved.files if early.saved else ():
        now = state_of(decode_path(was.path), hash_file)
        if is_same_state(was, now):
            continue
        if changed_time_of(now) <= early.saved_at + OWN_CHANGE_S:
            own.append(FileChange(was, now))
        else:
            foreign.append(SkippedFile(was.path, CHANGED_BY_OTHERS))
    return tuple(own), tuple(foreign)


async def rollback_crashed_calls(
    calls: Iterable[SpeculativeChanges], recorder: Recorder, store: CheckpointStore, root: str
) -> None:
    """Discard what was running early when the session was killed. What a fork has inherited is not its to put back.

    Only the log tells of it, and it may be somebody else's: what no call can have changed early is left alone.
    """
    for early in calls:
        own = early.seq > recorder.last_inherited_seq
        back = await _rollback_within(early, store, root) if early.saved is not None and own else NOTHING_RESTORED
        record_discard(recorder, early.agent, early.call, "crashed", back, completed=early.changes is not None)
