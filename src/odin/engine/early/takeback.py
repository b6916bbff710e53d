"""Putting back the files of a call that was begun early and does not count.

A path is put back only when what is there now is the call's own doing. What somebody else changed since is left alone.
"""

from collections.abc import Iterable

from msgspec import structs

from odin.core.event import FileChange, KeptFile
from odin.engine.early.discard import NOTHING, PutBack, report
from odin.engine.files.checkpointer import OURS_S, in_thread
from odin.engine.files.rewind import FOREIGN, carry_out, plan_back
from odin.engine.recorder import Recorder
from odin.policy.paths import contains, protected
from odin.session.files.changes import Ahead, Change
from odin.session.files.checkpoints import CheckpointStore
from odin.session.files.filestate import place_of, same, since, state_of, unspelled
from odin.session.files.listing import hashed

BARRED = "it is outside the project or protected"


async def put_back(early: Ahead, store: CheckpointStore) -> PutBack:
    return await in_thread(lambda stopped: _put_back(early, store))


def _put_back(early: Ahead, store: CheckpointStore) -> PutBack:
    changes, foreign = (early.changes, ()) if early.changes is not None else _guessed(early)
    outcome = carry_out(plan_back(map(Change, changes), store, force=False), store)
    return PutBack(outcome.changes, (*outcome.kept, *foreign))


async def _put_back_within(early: Ahead, store: CheckpointStore, root: str) -> PutBack:
    """Put back what is in the project and not protected; to change anything else somebody would have been asked."""
    files = early.saved.files if early.saved else ()
    changes = early.changes
    named = [state.path for state in files] if changes is None else [change.before.path for change in changes]
    barred = {path for path in dict.fromkeys(named) if not _harmless(path, root)}
    if early.saved:
        saved = structs.replace(early.saved, files=tuple(state for state in files if state.path not in barred))
        early = structs.replace(early, saved=saved)
    if changes is not None:
        early = structs.replace(early, changes=tuple(item for item in changes if item.before.path not in barred))
    back = await put_back(early, store)
    return PutBack(back.changes, (*back.kept, *(KeptFile(path, BARRED) for path in sorted(barred))))


def _harmless(path: str, root: str) -> bool:
    place = unspelled(path)
    return "\0" not in place and place_of(place) == place and contains(root, place) and not protected(place, root)


def _guessed(early: Ahead) -> tuple[tuple[FileChange, ...], tuple[KeptFile, ...]]:
    """What a call did that was killed before it could say so, and what is changed but not by it."""
    own: list[FileChange] = []
    foreign: list[KeptFile] = []
    for was in early.saved.files if early.saved else ():
        now = state_of(unspelled(was.path), hashed)
        if same(was, now):
            continue
        if since(now) <= early.saved_at + OURS_S:
            own.append(FileChange(was, now))
        else:
            foreign.append(KeptFile(was.path, FOREIGN))
    return tuple(own), tuple(foreign)


async def clear_up(calls: Iterable[Ahead], recorder: Recorder, store: CheckpointStore, root: str) -> None:
    """Discard what was running early when the session was killed. What a fork has inherited is not its to put back.

    Only the log tells of it, and it may be somebody else's: what no call can have changed early is left alone.
    """
    for early in calls:
        own = early.seq > recorder.inherited
        back = await _put_back_within(early, store, root) if early.saved is not None and own else NOTHING
        report(recorder, early.agent, early.call, "crashed", back, completed=early.changes is not None)
