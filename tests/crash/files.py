"""What the log says of the files beside what is there, and whether all of it can be undone.

A copy of the session works in the same folder and says what it did in its own log only; the commands of the person
are nobody's record. For the session both are somebody else, as a person with an editor would be.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from odin.checkpoints.file_state import decode_path, is_same_state, state_of
from odin.checkpoints.project_listing import hash_file
from odin.checkpoints.rewind import CHANGED_IN_BACKGROUND, plan_restore, restore_files
from odin.checkpoints.store import CheckpointStore
from odin.core.call_events import CallDiscarded
from odin.core.event import Envelope, FilesChanged, Redone, Rewound
from odin.core.event_values import FileChange, FileState
from odin.policy.paths import open_folder
from odin.session.state import SessionState
from odin.tools.atomic_write import is_temporary, sweep_leftovers

from .model import Model
from .victim import OWN

States = dict[str, FileState]
THEIRS = "copy-"
"""What the names of files begin with that copies of the session work on."""


class Known:
    """What the log says of every path. What a call did early is taken back with it, whoever put it back."""

    def __init__(self) -> None:
        self.states: States = {}
        self._left: dict[tuple[str, str], tuple[FileChange, ...]] = {}

    def hear(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, FilesChanged):
            self._left[envelope.agent, event.call_id] = event.changes
        if isinstance(event, FilesChanged | Rewound | Redone):
            self.states |= {change.after.path: change.after for change in event.changes}
        elif isinstance(event, CallDiscarded):
            kept = {file.path for file in event.skipped_files}
            left = self._left.get((envelope.agent, event.call_id), ())
            self.states |= {item.before.path: item.before for item in left if item.before.path not in kept}
            self.states |= {change.after.path: change.after for change in event.restored}


class Files:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._others: list[tuple[int, States]] = []
        """What somebody else left, and the number of the session's last event at that time."""

    def now(self) -> States:
        """Return all files but what killed writes have left: the next write removes it, whoever makes it."""
        paths = [str(path) for path in self._root.rglob("*") if not is_temporary(str(path))]
        return {path: state_of(path, hash_file) for path in paths}

    @contextmanager
    def by_somebody_else(self, seq: int, model: Model) -> Generator[None]:
        """What changes here is not the session's doing, and nothing that is changes. `seq` is its last event."""
        before = self.now()
        model.whose = THEIRS
        yield
        model.whose = ""
        after = self.now()
        gone = {path: state_of(path, hash_file) for path in before if path not in after}
        new = {
            path: state for path, state in after.items() if path not in before or not is_same_state(before[path], state)
        }
        assert [path for path in gone | new if not Path(path).name.startswith(THEIRS)] == []
        self._others.append((seq, gone | new))

    def check(self, events: list[Envelope], where: str) -> None:
        """The last that is known of every path is what is there."""
        known = Known()
        others = list(self._others)
        for envelope in events:
            while others and others[0][0] < envelope.seq:
                known.states |= others.pop(0)[1]
            known.hear(envelope)
        for _, states in others:
            known.states |= states
        for path, state in known.states.items():
            now = state_of(decode_path(path), hash_file)
            assert is_same_state(now, state) or self._is_own(path), (where, path, now, state)

    def check_undo(self, events: list[Envelope], store: CheckpointStore, where: str) -> None:
        """Undo takes back everything the session did since its beginning, which found nothing here, and no more."""
        foreign = {path for _, states in self._others for path in states}
        self._sweep(where)
        before = self.now()
        plan = plan_restore(SessionState.fold(events).file_history.list_since(0), store, force=False)
        unfit = [file for file in plan.kept if file.path not in foreign and not self._is_own(file.path)]
        unfit = [file for file in unfit if file.reason != CHANGED_IN_BACKGROUND]
        assert unfit == [], (where, unfit)
        outcome = restore_files(plan, store)
        assert len(outcome.kept) == len(plan.kept), (where, outcome.kept)
        kept = {file.path for file in plan.kept}
        for path, state in self.now().items():
            assert path in kept | foreign or self._is_own(path), (where, path)
            assert path not in kept or is_same_state(state, before[path]), (where, path)
        assert self._find_temporary() == [], where

    def _sweep(self, where: str) -> None:
        """Do what the next write does, after which nothing is left of killed writes."""
        for parent in {path.parent for path in self._find_temporary()}:
            with open_folder(str(parent)) as folder:
                sweep_leftovers(folder)
        assert self._find_temporary() == [], where

    def _find_temporary(self) -> list[Path]:
        return [path for path in self._root.rglob("*") if is_temporary(str(path))]

    def _is_own(self, path: str) -> bool:
        return path == os.fspath(self._root / OWN)
