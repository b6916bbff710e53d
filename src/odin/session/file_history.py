"""The session's changes to files, in log order, as a fold over its events. Rewinds are computed from it.

Changes of a speculative call are kept apart until the call is committed; if it is discarded, they never count.
"""

from msgspec import Struct, structs

from odin.core.event import (
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
    """`is_shared`: made while a background process ran, so the change may not be the session's own."""

    change: FileChange
    is_shared: bool = False


class SpeculativeChanges(Struct, frozen=True):
    """A speculative call that is neither committed nor discarded. `seq` is the number of its event.

    `saved` is the checkpoint taken at `saved_at`; `changes` is None until the call's changes are recorded.
    """

    agent: str
    call: CallSpeculated
    seq: int
    saved: CheckpointSaved | None = None
    saved_at: float = 0.0
    changes: tuple[FileChange, ...] | None = None


class UnfinishedSave(Struct, frozen=True):
    """A checkpoint saved at `at` for a call whose changes are not recorded yet."""

    saved: CheckpointSaved
    at: float


class FileHistory:
    """All changes, including those made by rewinds, so any earlier state can be reached by reading backwards."""

    def __init__(self) -> None:
        self._open: dict[str, UnfinishedSave] = {}
        self._changes: list[RecordedChange] = []
        self._speculative: dict[tuple[str, str], SpeculativeChanges] = {}

    @property
    def unfinished(self) -> tuple[UnfinishedSave, ...]:
        """Checkpoints of calls whose changes were never recorded, because the process running them died."""
        return tuple(self._open.values())

    @property
    def speculative(self) -> tuple[SpeculativeChanges, ...]:
        """The undecided speculative calls, in order."""
        return tuple(self._speculative.values())

    def find_speculative(self, agent: str, call_id: str) -> SpeculativeChanges | None:
        return self._speculative.get((agent, call_id))

    def apply(self, envelope: Envelope) -> tuple[FileChange, ...]:
        """Return the changes that become final with this event."""
        event, agent = envelope.event, envelope.agent
        match event:
            case ToolStarted():
                return self._commit_call(agent, event.call_id)
            case CheckpointSaved():
                self._add_checkpoint(event, agent, envelope.ts)
            case FilesChanged():
                return self._add_changes(event, agent)
            case CallSpeculated():
                self._speculative[agent, event.call_id] = SpeculativeChanges(agent, event, envelope.seq)
            case CallDiscarded():
                self._discard_call(event, agent)
            case Rewound() | Redone():
                self._open.pop(event.id, None)
                self._changes.extend(map(RecordedChange, event.changes))
            case _:
                pass
        return ()

    def _add_checkpoint(self, event: CheckpointSaved, agent: str, at: float) -> None:
        speculative = self._speculative.get((agent, event.call_id))
        if speculative is None:
            self._open[event.call_id] = UnfinishedSave(event, at)
        else:
            self._speculative[agent, event.call_id] = structs.replace(speculative, saved=event, saved_at=at)

    def _add_changes(self, event: FilesChanged, agent: str) -> tuple[FileChange, ...]:
        speculative = self._speculative.get((agent, event.call_id))
        if speculative is not None:
            self._speculative[agent, event.call_id] = structs.replace(speculative, changes=event.changes)
            return ()
        self._open.pop(event.call_id, None)
        self._changes.extend(RecordedChange(change, event.concurrent) for change in event.changes)
        return event.changes

    def _commit_call(self, agent: str, call_id: str) -> tuple[FileChange, ...]:
        speculative = self._speculative.pop((agent, call_id), None)
        if speculative is None or speculative.saved is None:
            return ()
        if speculative.changes is None:
            self._open[call_id] = UnfinishedSave(speculative.saved, speculative.saved_at)
            return ()
        self._changes.extend(map(RecordedChange, speculative.changes))
        return speculative.changes

    def _discard_call(self, event: CallDiscarded, agent: str) -> None:
        """Record only the changes that could not be rolled back, so that a rewind can still handle them."""
        speculative = self._speculative.pop((agent, event.call_id), None)
        skipped = {file.path for file in event.skipped_files}
        changes = speculative.changes or () if speculative else ()
        self._changes.extend(RecordedChange(change) for change in changes if change.before.path in skipped)

    def mark(self) -> int:
        """Return the current position, for `list_since`."""
        return len(self._changes)

    def list_since(self, mark: int) -> tuple[RecordedChange, ...]:
        return tuple(self._changes[mark:])
