"""The files this session has changed, with how many lines came and went."""

from collections.abc import Iterable
from dataclasses import dataclass

from odin.core.event import Envelope, FileChange, FilesChanged, FileState, Redone, Rewound, ToolEnded, TurnEnded

MAX_FILES = 500


@dataclass(slots=True)
class EditedFile:
    """`first` is how it was before the session touched it. `counted` says that the lines of every change are known."""

    path: str
    original: FileState
    call_id: str
    added: int = 0
    removed: int = 0
    is_deleted: bool = False
    is_counted: bool = False


class EditedFiles:
    """Folds what calls did to files. A file that is as it was at first is not listed: a rewind takes it out again."""

    def __init__(self) -> None:
        self.files: dict[str, EditedFile] = {}
        self._lines: dict[str, tuple[int, int]] = {}

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, FilesChanged):
            self._apply_changes(event.changes, event.call_id)
            self._count_lines_of(event.call_id)
        elif isinstance(event, Rewound | Redone):
            for path in self._apply_changes(event.changes, ""):
                self.files[path].is_counted = False
        elif isinstance(event, ToolEnded) and len(event.files) == 1 and event.status == "success":
            self._lines[event.call_id] = count_diff_lines(event.display)
            self._count_lines_of(event.call_id)
        elif isinstance(event, TurnEnded):
            self._lines.clear()

    def _apply_changes(self, changes: Iterable[FileChange], call_id: str) -> list[str]:
        """Take over what became of these files, and say which of them are listed now."""
        changed: dict[str, None] = {}
        for change in changes:
            path = change.after.path
            changed[path] = None
            file = self.files.pop(path, None) or EditedFile(path, change.before, call_id)
            file.call_id = call_id or file.call_id
            file.is_deleted = change.after.kind == "absent"
            if not _is_same_state(file.original, change.after):
                self.files[path] = file
        while len(self.files) > MAX_FILES:
            del self.files[next(iter(self.files))]
        return [path for path in changed if path in self.files]

    def _count_lines_of(self, call_id: str) -> None:
        """The lines of a call count when both are known: what it did to a file and what it showed of that."""
        changed = [file for file in self.files.values() if file.call_id == call_id]
        if len(changed) == 1 and call_id in self._lines:
            added, removed = self._lines.pop(call_id)
            file = changed[0]
            fresh = not (file.added or file.removed)
            file.added += added
            file.removed += removed
            file.is_counted = file.is_counted or fresh


def _is_same_state(one: FileState, other: FileState) -> bool:
    return (one.kind, one.sha256, one.target) == (other.kind, other.sha256, other.target)


def count_diff_lines(diff: str) -> tuple[int, int]:
    """How many lines a diff adds and takes away. Before its first place it only names the files."""
    added = removed = 0
    inside = False
    for line in diff.splitlines():
        if line.startswith("@@"):
            inside = True
        elif inside and line.startswith("+"):
            added += 1
        elif inside and line.startswith("-"):
            removed += 1
    return added, removed
