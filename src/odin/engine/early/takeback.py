"""Putting back the files of a call that was begun early and does not count.

A path is put back only when what is there now is the call's own doing. What somebody else changed since is left alone.
"""

from collections.abc import Iterable

from msgspec import structs

from odin.core.event import FileChange, SkippedFile
from odin.engine.early.discard import NOTHING_RESTORED, RollbackResult, record_discard
from odin.engine.files.checkpointer import OWN_CHANGE_S, run_in_thread
from odin.engine.files.rewind import CHANGED_BY_OTHERS, plan_restore, restore_files
from odin.engine.recorder import Recorder
from odin.policy.paths import contains, find_protected_part
from odin.session.files.changes import RecordedChange, SpeculativeChanges
from odin.session.files.checkpoints import CheckpointStore
from odin.session.files.filestate import changed_time_of, decode_path, is_same_state, resolved_path_of, state_of
from odin.session.files.listing import hash_file

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
