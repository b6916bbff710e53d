"""Checks that the files are in the states that the session log records, and that undo restores all of them.

A fork of the session works in the same folder and records its changes only in its own log; shell commands of the user
are recorded nowhere. The session treats both as external changes, like edits that the user makes in an editor.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from odin.checkpoints.file_state import decode_path, is_same_state, read_file_state
from odin.checkpoints.project_listing import hash_file
from odin.checkpoints.rewind import CHANGED_IN_BACKGROUND, plan_restore, restore_files
from odin.checkpoints.store import CheckpointStore
from odin.core.call_events import CallDiscarded
from odin.core.event import Envelope, FilesChanged, Redone, Rewound
from odin.core.event_values import FileChange, FileState
from odin.core.path_names import is_temporary
from odin.policy.paths import open_folder
from odin.session.state import SessionState
from odin.tools.atomic_write import sweep_leftovers

from .model import Model
from .worker import USER_FILE

States = dict[str, FileState]
FORK_PREFIX = "copy-"
"""Prefix of the names of files that forks of the session work on."""


class RecordedStates:
    """The last recorded state of every path. A discarded speculative call restores the states before its changes."""

    def __init__(self) -> None:
        self.states: States = {}
        self._changes_of_calls: dict[tuple[str, str], tuple[FileChange, ...]] = {}

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, FilesChanged):
            self._changes_of_calls[envelope.agent, event.call_id] = event.changes
        if isinstance(event, FilesChanged | Rewound | Redone):
            self.states |= {change.after.path: change.after for change in event.changes}
        elif isinstance(event, CallDiscarded):
            kept = {file.path for file in event.skipped_files}
            changes = self._changes_of_calls.get((envelope.agent, event.call_id), ())
            self.states |= {item.before.path: item.before for item in changes if item.before.path not in kept}
            self.states |= {change.after.path: change.after for change in event.restored}


class FileChecker:
    """Compares the files below `root` with the session log."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._external: list[tuple[int, States]] = []
        """External changes: the number of the session's last event before them, and the states after them."""

    def list_states(self) -> States:
        """Return the states of all files, without temporary files of killed writes: the next write removes those."""
        paths = [str(path) for path in self._root.rglob("*") if not is_temporary(str(path))]
        return {path: read_file_state(path, hash_file) for path in paths}

    @contextmanager
    def record_external_changes(self, seq: int, model: Model) -> Generator[None]:
        """Record changes in this block as external. Only files with the prefix may change. `seq` is the last event."""
        before = self.list_states()
        model.file_prefix = FORK_PREFIX
        yield
        model.file_prefix = ""
        after = self.list_states()
        gone = {path: read_file_state(path, hash_file) for path in before if path not in after}
        new = {
            path: state for path, state in after.items() if path not in before or not is_same_state(before[path], state)
        }
        assert [path for path in gone | new if not Path(path).name.startswith(FORK_PREFIX)] == []
        self._external.append((seq, gone | new))

    def check(self, events: list[Envelope], run: str) -> None:
        """Check that every path is in its last known state."""
        recorded = RecordedStates()
        external = list(self._external)
        for envelope in events:
            while external and external[0][0] < envelope.seq:
                recorded.states |= external.pop(0)[1]
            recorded.apply(envelope)
        for _, states in external:
            recorded.states |= states
        for path, state in recorded.states.items():
            current = read_file_state(decode_path(path), hash_file)
            assert is_same_state(current, state) or self._is_user_file(path), (run, path, current, state)

    def check_undo(self, events: list[Envelope], store: CheckpointStore, run: str) -> None:
        """Check that undo removes all changes of the session, which started in an empty folder, and nothing else."""
        foreign = {path for _, states in self._external for path in states}
        self._sweep_temporary(run)
        before = self.list_states()
        plan = plan_restore(SessionState.fold(events).file_history.list_since(0), store, force=False)
        refused = [file for file in plan.kept if file.path not in foreign and not self._is_user_file(file.path)]
        refused = [file for file in refused if file.reason != CHANGED_IN_BACKGROUND]
        assert refused == [], (run, refused)
        outcome = restore_files(plan, store)
        assert len(outcome.kept) == len(plan.kept), (run, outcome.kept)
        kept = {file.path for file in plan.kept}
        for path, state in self.list_states().items():
            assert path in kept | foreign or self._is_user_file(path), (run, path)
            assert path not in kept or is_same_state(state, before[path]), (run, path)
        assert self._find_temporary() == [], run

    def _sweep_temporary(self, run: str) -> None:
        """Remove the temporary files of killed writes, as the next write would."""
        for parent in {path.parent for path in self._find_temporary()}:
            with open_folder(str(parent)) as folder:
                sweep_leftovers(folder)
        assert self._find_temporary() == [], run

    def _find_temporary(self) -> list[Path]:
        return [path for path in self._root.rglob("*") if is_temporary(str(path))]

    def _is_user_file(self, path: str) -> bool:
        return path == os.fspath(self._root / USER_FILE)
