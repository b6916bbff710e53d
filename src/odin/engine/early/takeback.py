"""Putting back the files of a call that was begun early and does not count.

A path is put back only when what is there now is the call's own doing. What somebody else changed since is left alone.
"""

import os
from collections.abc import Iterable

from odin.core.event import FileChange, FileState, KeptFile
from odin.engine.early.discard import NOTHING, PutBack, report
from odin.engine.files.checkpointer import in_thread
from odin.engine.files.rewind import FOREIGN, carry_out, plan_back
from odin.engine.recorder import Recorder
from odin.session.files.changes import Ahead, Change
from odin.session.files.checkpoints import CheckpointStore
from odin.session.files.filestate import same, state_of, unspelled
from odin.session.files.listing import hashed

OURS_S = 10.0
"""How long after its files were saved a killed call may have changed them. What came later is somebody else's."""


async def put_back(early: Ahead, store: CheckpointStore) -> PutBack:
    return await in_thread(lambda stopped: _put_back(early, store))


def _put_back(early: Ahead, store: CheckpointStore) -> PutBack:
    changes, foreign = (early.changes, ()) if early.changes is not None else _guessed(early)
    outcome = carry_out(plan_back(map(Change, changes), store, force=False), store)
    return PutBack(outcome.changes, (*outcome.kept, *foreign))


def _guessed(early: Ahead) -> tuple[tuple[FileChange, ...], tuple[KeptFile, ...]]:
    """What a call did that was killed before it could say so, and what is changed but not by it."""
    own: list[FileChange] = []
    foreign: list[KeptFile] = []
    for was in early.saved.files if early.saved else ():
        now = state_of(unspelled(was.path), hashed)
        if same(was, now):
            continue
        if _since(now) <= early.saved_at + OURS_S:
            own.append(FileChange(was, now))
        else:
            foreign.append(KeptFile(was.path, FOREIGN))
    return tuple(own), tuple(foreign)


def _since(now: FileState) -> float:
    """Since when the path is as it is. To bring back what is gone harms nobody, and a folder goes only when empty."""
    if now.kind not in ("file", "link"):
        return 0.0
    try:
        return os.lstat(unspelled(now.path)).st_ctime
    except OSError:
        return 0.0


async def clear_up(calls: Iterable[Ahead], recorder: Recorder, store: CheckpointStore) -> None:
    """Discard what was running early when the session was killed. What a fork has inherited is not its to put back."""
    for early in calls:
        own = early.seq > recorder.inherited
        back = await put_back(early, store) if early.saved is not None and own else NOTHING
        report(recorder, early.agent, early.call, "crashed", back, completed=early.changes is not None)
