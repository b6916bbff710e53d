"""What speculation and checkpoints share: the rollback of a speculative call, and the calls that a crash left open."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from odin.core.call_events import CallDiscarded, CallSpeculated
from odin.core.event import Warned
from odin.core.event_values import DiscardReason, FileChange, SkippedFile
from odin.engine.recorder import Recorder
from odin.session.history import SpeculativeChanges


class RollbackResult(Struct, frozen=True):
    """Changes that were undone, files that were left alone with the reason, and changes another call has built on."""

    changes: tuple[FileChange, ...] = ()
    kept: tuple[SkippedFile, ...] = ()
    kept_changes: tuple[FileChange, ...] = ()


NOTHING_RESTORED = RollbackResult()

RollbackFiles = Callable[[SpeculativeChanges], Awaitable[RollbackResult]]
"""Restore the files a speculative call changed."""


def find_crashed_calls(recorder: Recorder) -> tuple[SpeculativeChanges, ...]:
    """Return the speculative calls that were running when an earlier process of the session was killed."""
    speculative = recorder.state.file_history.speculative
    return tuple(changes for changes in speculative if changes.seq <= recorder.last_past_seq)


def record_discard(
    recorder: Recorder,
    agent: str,
    call: CallSpeculated,
    reason: DiscardReason,
    restored: RollbackResult = NOTHING_RESTORED,
    *,
    started: bool = True,
    completed: bool = False,
) -> None:
    """Record that a speculative call does not count; warn if a file could not be restored."""
    event = CallDiscarded(
        call.call_id,
        call.name,
        call.args,
        reason,
        started,
        completed,
        restored=restored.changes,
        skipped_files=restored.kept,
        kept_changes=restored.kept_changes,
    )
    recorder.emit(event, agent)
    if restored.kept:
        named = "; ".join(f"{file.path} ({file.reason})" for file in restored.kept)
        problem = f"A speculative {call.name} call was discarded, but these files could not be restored: {named}."
        recorder.emit(Warned(problem), agent)
