"""Rewind and redo of files, and rollback of speculative calls.

A path is restored only if every state seen since is the session's own. If it was also changed by something else, it is
left alone and reported, unless `force` is set. The current content is saved first, so a rewind never loses anything.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from odin.checkpoints.checkpointer import MAX_EDIT_BYTES, OWN_CHANGE_S, Checkpointer
from odin.checkpoints.file_state import (
    LINKED_FOLDER,
    UNHASHED_PREFIX,
    RestoreFailed,
    decode_path,
    get_changed_time,
    is_behind_link,
    is_same_state,
    list_missing_folders,
    make_signature,
    read_file_state,
    remove_path,
    restore_path,
)
from odin.checkpoints.project_listing import hash_file, read_regular_file
from odin.checkpoints.store import CheckpointStore
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError, UsageError
from odin.core.event import CheckpointSaved, Redone, Rewound
from odin.core.event_values import FileChange, FileState, SkippedFile
from odin.core.op import Redo, Rewind
from odin.core.path_names import contains
from odin.core.text import join_some
from odin.core.timing import run_in_thread
from odin.engine.recorder import Recorder
from odin.engine.rollback import NOTHING_RESTORED, RollbackResult, record_discard
from odin.policy.command_scope import CommandScope
from odin.policy.paths import open_folder, resolve_given
from odin.session.history import FileHistory, RecordedChange, SpeculativeChanges

CHANGED_BY_OTHERS = "changed outside this session"
CHANGED_IN_BACKGROUND = "changed while a background process ran; the change may not be from this session"
UNSAVED = "its earlier content was not saved"
_FOLDER_MODE = 0o755
_SYNC_TOGETHER = 100
"""More files than this are synced to disk together, which is faster than one by one."""


class RestoreStep(Struct, frozen=True):
    """One path with its current and its target state. A step with a `reason` is skipped unless forced."""

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
    """Plan how to undo these changes."""
    by_path: dict[str, list[RecordedChange]] = {}
    for change in changes:
        by_path.setdefault(change.change.before.path, []).append(change)
    return _build_plan((_plan_path(path, changed) for path, changed in by_path.items()), store, force)


def plan_agent_restore(
    changes: Iterable[RecordedChange], agent: str, store: CheckpointStore, *, force: bool
) -> RestorePlan:
    """Plan how to undo the changes of one agent. A file that another agent changed after it is left alone."""
    by_path: dict[str, list[RecordedChange]] = {}
    for change in changes:
        path = change.change.before.path
        if path in by_path or agent in change.agents:
            by_path.setdefault(path, []).append(change)
    return _build_plan((_plan_restore_step(agent, path, changed) for path, changed in by_path.items()), store, force)


def _plan_restore_step(agent: str, path: str, changes: list[RecordedChange]) -> RestoreStep:
    step = _plan_path(path, changes)
    others = sorted({other for change in changes for other in change.agents} - {agent})
    if not others:
        return step
    return structs.replace(
        step, reason=f"also changed by {join_some((name or 'the main agent' for name in others), 3)}"
    )


def plan_reapply(changes: Iterable[FileChange], store: CheckpointStore, *, force: bool) -> RestorePlan:
    """Plan how to reverse the changes of a rewind."""
    return plan_restore([RecordedChange(change) for change in changes], store, force=force)


def _plan_path(path: str, changes: list[RecordedChange]) -> RestoreStep:
    target = changes[0].change.before
    known = [target]
    is_foreign = False
    for change in changes:
        is_foreign = is_foreign or not _is_known_state(change.change.before, known)
        known.append(change.change.after)
    now = _read_current_state(path, known)
    if is_same_state(now, target):
        return RestoreStep(now, target)
    if is_foreign or not _is_known_state(now, known):
        return RestoreStep(now, target, LINKED_FOLDER if is_behind_link(path) else CHANGED_BY_OTHERS)
    if any(change.is_concurrent for change in changes):
        return RestoreStep(now, target, CHANGED_IN_BACKGROUND)
    return RestoreStep(now, target)


def _build_plan(candidates: Iterable[RestoreStep], store: CheckpointStore, force: bool) -> RestorePlan:
    steps: list[RestoreStep] = []
    kept: list[SkippedFile] = []
    for step in candidates:
        if is_same_state(step.now, step.target):
            continue
        if step.target.kind == "other" or not step.target.saved:
            missing = UNSAVED
        elif step.target.kind == "file" and not store.contains(step.target.sha256):
            missing = "its earlier content is no longer in the checkpoint store"
        else:
            missing = ""
        reason = missing or ("" if force else step.reason)
        if reason:
            kept.append(SkippedFile(step.target.path, reason))
        else:
            steps.append(step)
    return RestorePlan(tuple(steps), tuple(kept))


def _is_known_state(state: FileState, known: Iterable[FileState]) -> bool:
    return any(is_same_state(state, other) for other in known)


def _read_current_state(path: str, known: list[FileState]) -> FileState:
    """The current state, hashed or by signature, so that it is comparable with the known states."""
    signatures = {state.sha256 for state in known if state.sha256.startswith(UNHASHED_PREFIX)}

    def content(path: str, info: os.stat_result) -> str:
        return "" if make_signature(info) in signatures else hash_file(path, info)

    return read_file_state(decode_path(path), content)


def restore_files(plan: RestorePlan, store: CheckpointStore) -> RestoreOutcome:
    """Carry out the plan. A path that fails does not stop the others."""
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
    """Remove the current path. A folder that is not empty stays; that is not reported."""
    _check_unchanged(step)
    if step.now.kind == "folder" and step.target.kind == "absent":
        with open_folder(decode_path(step.now.path)) as folder:
            if folder.list_names():
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
    if not is_same_state(_read_current_state(step.now.path, [step.now]), step.now):
        raise RestoreFailed("it is being changed by another program")


def _try_step(failed: dict[str, str], step: RestoreStep, act: Callable[[], None]) -> None:
    try:
        act()
    except (RestoreFailed, OdinError, OSError) as error:
        failed[step.target.path] = str(error)


class Rewinder:
    """`forget` drops the agent's file cache, because files changed on disk."""

    def __init__(
        self, recorder: Recorder, checkpoints: Checkpointer, forget: Callable[[], None] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._store = checkpoints.store
        self._forget = forget

    async def plan(self, op: Rewind) -> RestorePlan:
        """The plan of a rewind, without carrying it out. Raise UsageError if there is no such prompt."""
        await self._checkpoints.record_pending()
        changes = self._recorder.state.list_changes_since(op.turn)
        if changes is None:
            raise UsageError(f"There is no prompt {op.turn!r} in this session.", "It may have been rewound already.")
        if not op.files:
            return RestorePlan((), ())
        changes = tuple(change for change in changes if not self._checkpoints.is_gone(change.change.before.path))
        if (agent := op.only_agent) is not None:
            return await run_in_thread(lambda stopped: plan_agent_restore(changes, agent, self._store, force=op.force))
        return await run_in_thread(lambda stopped: plan_restore(changes, self._store, force=op.force))

    async def rewind(self, op: Rewind, stopped: tuple[str, ...] = ()) -> Rewound:
        """Go back. `stopped` are the names of what was stopped for it."""
        if not (op.files or op.chat):
            raise UsageError("Nothing to rewind.", "Rewind files, chat or both.")
        if op.only_agent is not None and op.chat:
            raise UsageError("The work of one agent is undone in its files only.", "Rewind files, not chat.")
        plan = await self.plan(op)
        name = f"rewind-{self._recorder.state.seq + 1}"
        outcome = await self._restore(name, plan)
        event = Rewound(name, op.turn, op.files, op.chat, outcome.changes, outcome.kept, stopped)
        self._recorder.emit(event)
        self._forget()
        return event

    async def plan_redo(self, op: Redo) -> tuple[Rewound, RestorePlan]:
        await self._checkpoints.record_pending()
        rewinds = self._recorder.state.conversation.timeline.rewinds
        if not rewinds:
            raise UsageError("There is nothing to redo.", "A rewind can be redone until the next prompt.")
        undone = rewinds[-1].event
        return undone, await run_in_thread(lambda stopped: plan_reapply(undone.changes, self._store, force=op.force))

    async def redo(self, op: Redo) -> Redone:
        undone, plan = await self.plan_redo(op)
        outcome = await self._restore(undone.id, plan)
        event = Redone(undone.id, outcome.changes, outcome.kept)
        self._recorder.emit(event)
        self._forget()
        return event

    async def _restore(self, name: str, plan: RestorePlan) -> RestoreOutcome:
        """Save the current files to the store and the log before replacing any of them."""
        plan = await run_in_thread(lambda stopped: _save_current(plan, self._store))
        if not plan.steps:
            return RestoreOutcome(kept=plan.kept)
        self._recorder.emit(CheckpointSaved(name, tuple(step.now for step in plan.steps)))
        await self._recorder.wait_until_synced()
        outcome = await run_in_thread(lambda stopped: restore_files(plan, self._store))
        self._checkpoints.note_changes(outcome.changes)
        return outcome


def write_planned_files(plan: RestorePlan, store: CheckpointStore) -> RestoreOutcome:
    """Carry out a plan after saving the current files to the store. The caller records the changes."""
    # The plan with the folders that must be created for its files.
    folders: dict[str, RestoreStep] = {}
    for step in plan.steps:
        for path in list_missing_folders(decode_path(step.target.path)) if step.target.kind != "absent" else ():
            now = read_file_state(path, hash_file)
            folders[path] = RestoreStep(now, FileState(now.path, "folder", mode=_FOLDER_MODE))
    return restore_files(_save_current(RestorePlan((*folders.values(), *plan.steps), plan.kept), store), store)


def _save_current(plan: RestorePlan, store: CheckpointStore) -> RestorePlan:
    steps: list[RestoreStep] = []
    kept = list(plan.kept)
    for step in plan.steps:
        try:
            _save_state(step.now, store)
            steps.append(step)
        except (RestoreFailed, OdinError) as error:
            kept.append(SkippedFile(step.now.path, str(error)))
    return RestorePlan(tuple(steps), tuple(kept))


def _save_state(now: FileState, store: CheckpointStore) -> None:
    if now.kind == "file":
        data = read_regular_file(decode_path(now.path), MAX_EDIT_BYTES)
        if data is None or store.keep(data) != now.sha256:
            raise RestoreFailed("its current content cannot be saved first")
    elif now.kind == "other":
        linked = is_behind_link(now.path)
        raise RestoreFailed(LINKED_FOLDER if linked else "it is now neither a file nor a folder nor a link")


OUT_OF_BOUNDS = "outside the project or protected"


async def rollback_files(call: SpeculativeChanges, store: CheckpointStore, history: FileHistory) -> RollbackResult:
    later = history.find_later_states(call) if call.changes is None else {}
    return await run_in_thread(lambda stopped: _rollback(call, store, later))


def _rollback(call: SpeculativeChanges, store: CheckpointStore, later: Mapping[str, FileState]) -> RollbackResult:
    guess = _guess_changes(call, later) if call.changes is None else RollbackResult(call.changes)
    outcome = restore_files(plan_restore(map(RecordedChange, guess.changes), store, force=False), store)
    return RollbackResult(outcome.changes, (*outcome.kept, *guess.kept), guess.kept_changes)


async def _rollback_within(
    call: SpeculativeChanges, store: CheckpointStore, history: FileHistory, scopes: Sequence[CommandScope]
) -> RollbackResult:
    """Roll back only unprotected files in these folders: changing any other would have required an approval."""
    files = call.saved.files if call.saved else ()
    changes = call.changes
    paths = [state.path for state in files] if changes is None else [change.before.path for change in changes]
    excluded = {path for path in dict.fromkeys(paths) if not any(_is_restorable(path, scope) for scope in scopes)}
    if call.saved:
        saved = structs.replace(call.saved, files=tuple(state for state in files if state.path not in excluded))
        call = structs.replace(call, saved=saved)
    if changes is not None:
        call = structs.replace(call, changes=tuple(item for item in changes if item.before.path not in excluded))
    result = await rollback_files(call, store, history)
    kept = (*result.kept, *(SkippedFile(path, OUT_OF_BOUNDS) for path in sorted(excluded)))
    return RollbackResult(result.changes, kept, result.kept_changes)


def _is_restorable(path: str, scope: CommandScope) -> bool:
    resolved = decode_path(path)
    return (
        "\0" not in resolved
        and resolve_given(resolved, "/", scope.environment.home, on_links=True).path == resolved
        and contains(scope.root, resolved)
        and not scope.find_protected_part(resolved)
    )


def _guess_changes(call: SpeculativeChanges, later: Mapping[str, FileState]) -> RollbackResult:
    """Return the changes of a killed call whose end is not in the log, to be rolled back.

    Files that changed too late to be its own are kept. So are those that other calls have saved `later`, and what this
    call had changed in them by then.
    """
    own: list[FileChange] = []
    foreign: list[SkippedFile] = []
    built_on: list[FileChange] = []
    for before in call.saved.files if call.saved else ():
        now = read_file_state(decode_path(before.path), hash_file)
        if is_same_state(before, now):
            continue
        if (found := later.get(before.path)) is not None:
            foreign.append(SkippedFile(before.path, CHANGED_BY_OTHERS))
            if not is_same_state(before, found):
                built_on.append(FileChange(before, found))
        elif get_changed_time(now) <= call.saved_at + OWN_CHANGE_S:
            own.append(FileChange(before, now))
        else:
            foreign.append(SkippedFile(before.path, CHANGED_BY_OTHERS))
    return RollbackResult(tuple(own), tuple(foreign), tuple(built_on))


async def rollback_crashed_calls(
    calls: Iterable[SpeculativeChanges],
    recorder: Recorder,
    store: CheckpointStore,
    roots: Sequence[str],
    environment: ExecutionEnvironment,
) -> None:
    """Roll back the speculative calls that were running when the session was killed, except those a fork inherited.

    `roots` are the project and the worktrees of the session's agents. The log is the only source and may come from
    another person, so files that no call can have changed stay.
    """
    scopes = [CommandScope(root, root, environment) for root in roots]
    for call in calls:
        is_own = call.seq > recorder.last_inherited_seq
        result = NOTHING_RESTORED
        if call.saved is not None and is_own:
            result = await _rollback_within(call, store, recorder.state.file_history, scopes)
        record_discard(recorder, call.agent, call.call, "crashed", result, completed=call.changes is not None)
