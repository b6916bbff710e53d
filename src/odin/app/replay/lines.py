"""What a model said in a recording, in the order in which it has to say it again."""

from collections.abc import Iterable

import msgspec

from odin.context.compact import body_of
from odin.core import errors
from odin.core.errors import ProviderError
from odin.core.event import (
    AgentStarted,
    Compacted,
    ContextSummarized,
    Envelope,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    SessionOpened,
    TitleSet,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.job import COMPACTION_JOB
from odin.core.message import Usage
from odin.providers.recorded import RecordedReply

_CUT_REASONS = ("interrupted", "aborted")


class ReplayScript(msgspec.Struct):
    """Everything a recorded model needs: what it said, and in which turns it was cut off."""

    speeches: dict[str, list[RecordedReply]] = msgspec.field(default_factory=dict[str, list[RecordedReply]])
    tasks: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    cut_turns: set[str] = msgspec.field(default_factory=set[str])
    jobs: dict[str, list[str]] = msgspec.field(default_factory=dict[str, list[str]])


def script_of(envelopes: Iterable[Envelope]) -> ReplayScript:
    return _ScriptReader().read(envelopes)


class _ScriptReader:
    def __init__(self) -> None:
        self._script = ReplayScript()
        self._turns: dict[str, str] = {}
        self._usage: dict[str, Usage] = {}
        self._summaries = 0

    def read(self, envelopes: Iterable[Envelope]) -> ReplayScript:
        for envelope in envelopes:
            self._handle_event(envelope)
        self._script.cut_turns.update(self._turns.values())
        return self._script

    def _handle_event(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        if isinstance(event, TurnStarted):
            self._turns[agent] = event.id
        elif isinstance(event, AgentStarted):
            self._script.tasks[event.id] = event.task
        elif isinstance(event, UsageRecorded):
            self._add_usage(event, agent)
        elif isinstance(event, Replied):
            self._add_speech(
                envelope, RecordedReply(0, "", message=event.message, is_unfinished=event.message.interrupted)
            )
        elif isinstance(event, ReplyDiscarded):
            self._add_speech(envelope, RecordedReply(0, "", discard_reason=event.reason))
        elif isinstance(event, RetryScheduled):
            self._add_speech(envelope, RecordedReply(0, "", error=event.error_kind, error_text=event.error))
        elif isinstance(event, TurnEnded):
            self._end_turn(event, envelope)
        elif isinstance(event, SessionOpened):
            self._script.cut_turns.update(self._turns.values())
            self._turns.clear()
        else:
            self._handle_job(envelope)

    def _handle_job(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TitleSet):
            self._script.jobs.setdefault("title", []).append(event.title)
        elif isinstance(event, ContextSummarized):
            self._script.jobs.setdefault("context-summary", []).append(event.text)
        elif isinstance(event, Compacted):
            asked, self._summaries = max(1, self._summaries), 0
            self._script.jobs.setdefault("compaction", []).extend([body_of(event.text)] * asked)

    def _add_usage(self, event: UsageRecorded, agent: str) -> None:
        """A long conversation is summarised in several steps, of which only the last is kept."""
        if event.purpose == "planner":
            self._usage[agent] = self._usage.get(agent, Usage()) + event.usage
        elif event.purpose == COMPACTION_JOB.name:
            self._summaries += 1

    def _add_speech(self, envelope: Envelope, speech: RecordedReply) -> None:
        agent = envelope.agent
        usage = self._usage.pop(agent, Usage())
        said = msgspec.structs.replace(speech, seq=envelope.seq, turn=self._turns.get(agent, agent), usage=usage)
        self._script.speeches.setdefault(agent, []).append(said)

    def _end_turn(self, event: TurnEnded, envelope: Envelope) -> None:
        """A turn that ended in a failure of the model: the last try is not in the log but in how it ended."""
        turn = self._turns.pop(envelope.agent, event.id)
        if event.reason in _CUT_REASONS:
            self._script.cut_turns.add(turn)
            return
        said = self._script.speeches.setdefault(envelope.agent, [])
        last = said[-1] if said and said[-1].turn == turn else None
        kind = _failure_of(event, last)
        if not kind:
            return
        if last is not None and last.is_unfinished:
            said[-1] = msgspec.structs.replace(last, is_unfinished=False, error=kind, error_text=event.error)
        else:
            usage = self._usage.pop(envelope.agent, Usage())
            said.append(RecordedReply(envelope.seq, turn, usage=usage, error=kind, error_text=event.error or kind))


def _failure_of(event: TurnEnded, last: RecordedReply | None) -> str:
    answered = last is not None and last.message is not None and not last.message.calls and not last.is_unfinished
    if event.reason == "end_turn" and not answered:
        return "EmptyReply"
    if event.reason == "max_tokens" and not answered and (last is None or not last.discard_reason):
        return "EmptyTruncation"
    if event.reason == "error":
        kind = getattr(errors, event.error_kind, None)
        return event.error_kind if isinstance(kind, type) and issubclass(kind, ProviderError) else ""
    return ""
