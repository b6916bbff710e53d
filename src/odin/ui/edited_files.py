"""The files that a session has changed and how many lines of them, folded from events."""

from collections.abc import Iterable

from msgspec import Struct, field

from odin.core.call_events import ToolEnded
from odin.core.event import Envelope, FilesChanged, Redone, Rewound, TurnEnded
from odin.core.event_values import FileChange, FileState

MAX_FILES = 500


class EditedFile(Struct):
    """`original` is the file before the session changed it. `uncounted` are the calls whose lines are not known."""

    path: str
    original: FileState
    call_id: str
    added: int = 0
    removed: int = 0
    is_deleted: bool = False
    uncounted: set[str] = field(default_factory=set[str])

    @property
    def is_counted(self) -> bool:
        """True if the line counts cover every change."""
        return not self.uncounted


class EditedFiles:
    """Files changed by tool calls. A file whose content is the original again, e.g. after a rewind, is not listed."""

    def __init__(self) -> None:
        self.files: dict[str, EditedFile] = {}
        self._lines: dict[str, tuple[int, int]] = {}

    def apply(self, envelope: Envelope) -> None:
        match envelope.event:
            case FilesChanged(changes=changes, call_id=call_id):
                self._apply_changes(changes, call_id)
                self._count_lines(call_id)
            case Rewound(changes=changes) | Redone(changes=changes):
                self._apply_changes(changes, "")
            case ToolEnded(status="success", call_id=call_id, files=(_,), display=diff):
                self._lines[call_id] = count_diff_lines(diff)
                self._count_lines(call_id)
            case TurnEnded():
                self._lines.clear()
            case _:
                pass

    def _apply_changes(self, changes: Iterable[FileChange], call_id: str) -> None:
        """Record the changes. The lines of those without a call are never known."""
        for change in changes:
            path = change.after.path
            file = self.files.pop(path, None) or EditedFile(path, change.before, call_id)
            file.call_id = call_id or file.call_id
            file.uncounted.add(call_id)
            file.is_deleted = change.after.kind == "absent"
            if not _is_same_state(file.original, change.after):
                self.files[path] = file
        while len(self.files) > MAX_FILES:
            del self.files[next(iter(self.files))]

    def _count_lines(self, call_id: str) -> None:
        """Add the line counts of a call once both its file change and its diff have arrived, in either order."""
        changed = [file for file in self.files.values() if file.call_id == call_id]
        if len(changed) == 1 and call_id in self._lines:
            added, removed = self._lines.pop(call_id)
            file = changed[0]
            file.added += added
            file.removed += removed
            file.uncounted.discard(call_id)


def _is_same_state(one: FileState, other: FileState) -> bool:
    return (one.kind, one.sha256, one.target) == (other.kind, other.sha256, other.target)


def count_diff_lines(diff: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes. Lines before the first hunk are file headers."""
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
