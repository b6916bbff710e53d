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
    Envelope,
    FileChange,
    FilesLeft,
    FilesSaved,
    Redone,
    Rewound,
    ToolStarted,
)


class Change(Struct, frozen=True):
    """`shared` means that it happened beside a process in the background, so it may be somebody else's."""

    before_after: FileChange
    shared: bool = False


class Ahead(Struct, frozen=True):
    """A call that was begun early and neither counts nor is discarded yet. `seq` is the number of its event.

    `saved` is how its files were, since `saved_at`; `changes` what it made of them, or None while that is not known.
    """

    agent: str
    call: CallSpeculated
    seq: int
    saved: FilesSaved | None = None
    saved_at: float = 0.0
    changes: tuple[FileChange, ...] | None = None


class Unended(Struct, frozen=True):
    """What was saved for a call of which the end is not known, and when."""

    saved: FilesSaved
    at: float


class FileHistory:
    """Every change in the order of the log, those of rewinds too: going further back is reading further back."""

    def __init__(self) -> None:
        self._open: dict[str, Unended] = {}
        self._changes: list[Change] = []
        self._ahead: dict[tuple[str, str], Ahead] = {}

    @property
    def open(self) -> tuple[Unended, ...]:
        """What was saved for calls of which the end is not known: the process that ran them is gone."""
        return tuple(self._open.values())

    @property
    def ahead(self) -> tuple[Ahead, ...]:
        """The calls that were begun early and of which nothing more is known, in order."""
        return tuple(self._ahead.values())

    def begun_early(self, agent: str, call_id: str) -> Ahead | None:
        return self._ahead.get((agent, call_id))

    def apply(self, envelope: Envelope) -> tuple[FileChange, ...]:
        """What a call has changed for good with this event."""
        step = _STEPS.get(type(envelope.event))
        return (step(self, envelope.event, envelope) or ()) if step is not None else ()

    def speculated(self, event: CallSpeculated, agent: str, seq: int) -> None:
        self._ahead[agent, event.call_id] = Ahead(agent, event, seq)

    def saved(self, event: FilesSaved, agent: str = "", at: float = 0.0) -> None:
        early = self._ahead.get((agent, event.call_id))
        if early is None:
            self._open[event.call_id] = Unended(event, at)
        else:
            self._ahead[agent, event.call_id] = structs.replace(early, saved=event, saved_at=at)

    def left(self, event: FilesLeft, agent: str = "") -> tuple[FileChange, ...]:
        """What the session has changed with this: nothing yet, when the call may still be discarded."""
        early = self._ahead.get((agent, event.call_id))
        if early is not None:
            self._ahead[agent, event.call_id] = structs.replace(early, changes=event.changes)
            return ()
        self._open.pop(event.call_id, None)
        self._changes.extend(Change(change, event.shared) for change in event.changes)
        return event.changes

    def counts(self, agent: str, call_id: str) -> tuple[FileChange, ...]:
        """A call begins for good. What it has changed early is the session's now."""
        early = self._ahead.pop((agent, call_id), None)
        if early is None or early.saved is None:
            return ()
        if early.changes is None:
            self._open[call_id] = Unended(early.saved, early.saved_at)
            return ()
        self._changes.extend(map(Change, early.changes))
        return early.changes

    def discarded(self, event: CallDiscarded, agent: str) -> None:
        """Only what could not be put back remains a change, so that a rewind may still see to it."""
        early = self._ahead.pop((agent, event.call_id), None)
        kept = {file.path for file in event.kept}
        changes = early.changes or () if early else ()
        self._changes.extend(Change(change) for change in changes if change.before.path in kept)

    def went(self, rewind: str, changes: Iterable[FileChange]) -> None:
        """A rewind, or the redo of one."""
        self._open.pop(rewind, None)
        self._changes.extend(Change(change) for change in changes)

    def mark(self) -> int:
        return len(self._changes)

    def since(self, mark: int) -> tuple[Change, ...]:
        return tuple(self._changes[mark:])


def _speculated(history: FileHistory, event: CallSpeculated, envelope: Envelope) -> None:
    history.speculated(event, envelope.agent, envelope.seq)


def _saved(history: FileHistory, event: FilesSaved, envelope: Envelope) -> None:
    history.saved(event, envelope.agent, envelope.ts)


def _left(history: FileHistory, event: FilesLeft, envelope: Envelope) -> tuple[FileChange, ...]:
    return history.left(event, envelope.agent)


def _started(history: FileHistory, event: ToolStarted, envelope: Envelope) -> tuple[FileChange, ...]:
    return history.counts(envelope.agent, event.call_id)


def _discarded(history: FileHistory, event: CallDiscarded, envelope: Envelope) -> None:
    history.discarded(event, envelope.agent)


def _went(history: FileHistory, event: Rewound | Redone, envelope: Envelope) -> None:
    history.went(event.id, event.changes)


_STEPS: dict[type[AnyEvent], Callable[[FileHistory, Any, Envelope], tuple[FileChange, ...] | None]] = {
    CallSpeculated: _speculated,
    FilesSaved: _saved,
    FilesLeft: _left,
    ToolStarted: _started,
    CallDiscarded: _discarded,
    Rewound: _went,
    Redone: _went,
}
