"""What the session did to files, in order: the part of the state that a rewind works from.

What a call did that was begun before its reply was complete is no change of the session until the call counts.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, structs

from odin.core.event import (
    AnyEvent,
    CallDiscarded,
    CallSpeculated,
    CheckpointSaved,
    Envelope,
    FileChange,
    FilesChanged,
    Redone,
    Rewound,
    ToolStarted,
)


class RecordedChange(Struct, frozen=True):
    """`shared` means that it happened beside a process in the background, so it may be somebody else's."""

    change: FileChange
    is_shared: bool = False


class SpeculativeChanges(Struct, frozen=True):
    """A call that was begun early and neither counts nor is discarded yet. `seq` is the number of its event.

    `saved` is how its files were, since `saved_at`; `changes` what it made of them, or None while that is not known.
    """

    agent: str
    call: CallSpeculated
    seq: int
    saved: CheckpointSaved | None = None
    saved_at: float = 0.0
    changes: tuple[FileChange, ...] | None = None


class UnfinishedSave(Struct, frozen=True):
    """What was saved for a call of which the end is not known, and when."""

    saved: CheckpointSaved
    at: float


class FileHistory:
    """Every change in the order of the log, those of rewinds too: going further back is reading further back."""

    def __init__(self) -> None:
        self._open: dict[str, UnfinishedSave] = {}
        self._changes: list[RecordedChange] = []
        self._speculative: dict[tuple[str, str], SpeculativeChanges] = {}

    @property
    def unfinished(self) -> tuple[UnfinishedSave, ...]:
        """What was saved for calls of which the end is not known: the process that ran them is gone."""
        return tuple(self._open.values())

    @property
    def speculative(self) -> tuple[SpeculativeChanges, ...]:
        """The calls that were begun early and of which nothing more is known, in order."""
        return tuple(self._speculative.values())

    def find_speculative(self, agent: str, call_id: str) -> SpeculativeChanges | None:
        return self._speculative.get((agent, call_id))

    def apply(self, envelope: Envelope) -> tuple[FileChange, ...]:
        """What a call has changed for good with this event."""
        step = _FILE_HANDLERS.get(type(envelope.event))
        return (step(self, envelope.event, envelope) or ()) if step is not None else ()

    def add_speculative(self, event: CallSpeculated, agent: str, seq: int) -> None:
        self._speculative[agent, event.call_id] = SpeculativeChanges(agent, event, seq)

    def record_saved(self, event: CheckpointSaved, agent: str = "", at: float = 0.0) -> None:
        early = self._speculative.get((agent, event.call_id))
        if early is None:
            self._open[event.call_id] = UnfinishedSave(event, at)
        else:
            self._speculative[agent, event.call_id] = structs.replace(early, saved=event, saved_at=at)

    def record_left(self, event: FilesChanged, agent: str = "") -> tuple[FileChange, ...]:
        """What the session has changed with this: nothing yet, when the call may still be discarded."""
        early = self._speculative.get((agent, event.call_id))
        if early is not None:
            self._speculative[agent, event.call_id] = structs.replace(early, changes=event.changes)
            return ()
        self._open.pop(event.call_id, None)
        self._changes.extend(RecordedChange(change, event.concurrent) for change in event.changes)
        return event.changes

    def commit_call(self, agent: str, call_id: str) -> tuple[FileChange, ...]:
        """A call begins for good. What it has changed early is the session's now."""
        early = self._speculative.pop((agent, call_id), None)
        if early is None or early.saved is None:
            return ()
        if early.changes is None:
            self._open[call_id] = UnfinishedSave(early.saved, early.saved_at)
            return ()
        self._changes.extend(map(RecordedChange, early.changes))
        return early.changes

    def discard_call(self, event: CallDiscarded, agent: str) -> None:
        """Only what could not be put back remains a change, so that a rewind may still see to it."""
        early = self._speculative.pop((agent, event.call_id), None)
        kept = {file.path for file in event.skipped_files}
        changes = early.changes or () if early else ()
        self._changes.extend(RecordedChange(change) for change in changes if change.before.path in kept)

    def record_rewind(self, rewind: str, changes: Iterable[FileChange]) -> None:
        """A rewind, or the redo of one."""
        self._open.pop(rewind, None)
        self._changes.extend(RecordedChange(change) for change in changes)

    def mark(self) -> int:
        return len(self._changes)

    def list_since(self, mark: int) -> tuple[RecordedChange, ...]:
        return tuple(self._changes[mark:])


def _on_call_speculated(history: FileHistory, event: CallSpeculated, envelope: Envelope) -> None:
    history.add_speculative(event, envelope.agent, envelope.seq)


def _on_files_saved(history: FileHistory, event: CheckpointSaved, envelope: Envelope) -> None:
    history.record_saved(event, envelope.agent, envelope.ts)


def _on_files_left(history: FileHistory, event: FilesChanged, envelope: Envelope) -> tuple[FileChange, ...]:
    return history.record_left(event, envelope.agent)


def _on_tool_started(history: FileHistory, event: ToolStarted, envelope: Envelope) -> tuple[FileChange, ...]:
    return history.commit_call(envelope.agent, event.call_id)


def _on_call_discarded(history: FileHistory, event: CallDiscarded, envelope: Envelope) -> None:
    history.discard_call(event, envelope.agent)


def _on_rewind(history: FileHistory, event: Rewound | Redone, envelope: Envelope) -> None:
    history.record_rewind(event.id, event.changes)


_FILE_HANDLERS: dict[type[AnyEvent], Callable[[FileHistory, Any, Envelope], tuple[FileChange, ...] | None]] = {
    CallSpeculated: _on_call_speculated,
    CheckpointSaved: _on_files_saved,
    FilesChanged: _on_files_left,
    ToolStarted: _on_tool_started,
    CallDiscarded: _on_call_discarded,
    Rewound: _on_rewind,
    Redone: _on_rewind,
}
