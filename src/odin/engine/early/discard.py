"""Recording that a call does not count which was begun before its reply was complete."""

from msgspec import Struct

from odin.core.event import CallDiscarded, CallSpeculated, DiscardReason, FileChange, SkippedFile, Warned
from odin.engine.recorder import Recorder
from odin.session.files.changes import SpeculativeChanges


class RollbackResult(Struct, frozen=True):
    """What was put back in files, and what was left alone."""

    changes: tuple[FileChange, ...] = ()
    kept: tuple[SkippedFile, ...] = ()


NOTHING_RESTORED = RollbackResult()


def make_failed_rollback(early: SpeculativeChanges, error: Exception) -> RollbackResult:
    """Nothing could be put back."""
    paths = [change.before.path for change in early.changes or ()]
    return RollbackResult(kept=tuple(SkippedFile(path, str(error)) for path in paths))


def find_crashed_calls(recorder: Recorder) -> tuple[SpeculativeChanges, ...]:
    """The calls that an earlier run of the session had begun early when it was killed."""
    return tuple(early for early in recorder.state.file_history.speculative if early.seq <= recorder.last_past_seq)


def record_discard(
    recorder: Recorder,
    agent: str,
    call: CallSpeculated,
    reason: DiscardReason,
    back: RollbackResult = NOTHING_RESTORED,
    *,
    started: bool = True,
    completed: bool = False,
) -> None:
    """The log, and a person where something is not as it was before the call."""
    event = CallDiscarded(
        call.call_id, call.name, call.args, reason, started, completed, restored=back.changes, skipped_files=back.kept
    )
    recorder.emit(event, agent)
    if back.kept:
        named = "; ".join(f"{file.path} ({file.reason})" for file in back.kept)
        recorder.emit(
            Warned(f"{call.name} was begun early and does not count, but this could not be put back: {named}."), agent
        )
