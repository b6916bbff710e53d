"""What the session did to files, in order: the part of the state that a rewind works from."""

from collections.abc import Iterable

from msgspec import Struct

from odin.core.event import FileChange, FilesLeft, FilesSaved


class Change(Struct, frozen=True):
    """`shared` means that it happened beside a process in the background, so it may be somebody else's."""

    before_after: FileChange
    shared: bool = False


class FileHistory:
    """Every change in the order of the log, those of rewinds too: going further back is reading further back."""

    def __init__(self) -> None:
        self._open: dict[str, FilesSaved] = {}
        self._changes: list[Change] = []

    @property
    def open(self) -> tuple[FilesSaved, ...]:
        """What was saved for calls of which the end is not known: the process that ran them is gone."""
        return tuple(self._open.values())

    def saved(self, event: FilesSaved) -> None:
        self._open[event.call_id] = event

    def left(self, event: FilesLeft) -> None:
        self._open.pop(event.call_id, None)
        self._changes.extend(Change(change, event.shared) for change in event.changes)

    def went(self, rewind: str, changes: Iterable[FileChange]) -> None:
        """A rewind, or the redo of one."""
        self._open.pop(rewind, None)
        self._changes.extend(Change(change) for change in changes)

    def mark(self) -> int:
        return len(self._changes)

    def since(self, mark: int) -> tuple[Change, ...]:
        return tuple(self._changes[mark:])
