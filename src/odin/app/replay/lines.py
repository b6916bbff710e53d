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
from odin.core.job import COMPACTION
from odin.core.message import Usage
from odin.providers.recorded import Speech

_CUT = ("interrupted", "aborted")


class Script(msgspec.Struct):
    """Everything a recorded model needs: what it said, and in which turns it was cut off."""

    speeches: dict[str, list[Speech]] = msgspec.field(default_factory=dict[str, list[Speech]])
    tasks: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    cut: set[str] = msgspec.field(default_factory=set[str])
    jobs: dict[str, list[str]] = msgspec.field(default_factory=dict[str, list[str]])


def script_of(envelopes: Iterable[Envelope]) -> Script:
    return _Reader().read(envelopes)


class _Reader:
    def __init__(self) -> None:
        self._script = Script()
        self._turns: dict[str, str] = {}
        self._usage: dict[str, Usage] = {}
        self._summaries = 0

    def read(self, envelopes: Iterable[Envelope]) -> Script:
        for envelope in envelopes:
            self._hear(envelope)
        self._script.cut.update(self._turns.values())
        return self._script

    def _hear(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        if isinstance(event, TurnStarted):
            self._turns[agent] = event.id
        elif isinstance(event, AgentStarted):
            self._script.tasks[event.id] = event.task
        elif isinstance(event, UsageRecorded):
            self._spend(event, agent)
        elif isinstance(event, Replied):
            self._say(envelope, Speech(0, "", message=event.message, holds=event.message.interrupted))
        elif isinstance(event, ReplyDiscarded):
            self._say(envelope, Speech(0, "", discarded=event.reason))
        elif isinstance(event, RetryScheduled):
            self._say(envelope, Speech(0, "", error=event.error_kind, words=event.error))
        elif isinstance(event, TurnEnded):
            self._end(event, envelope)
        elif isinstance(event, SessionOpened):
            self._script.cut.update(self._turns.values())
            self._turns.clear()
        else:
            self._job(envelope)

    def _job(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TitleSet):
            self._script.jobs.setdefault("title", []).append(event.title)
        elif isinstance(event, ContextSummarized):
            self._script.jobs.setdefault("context-summary", []).append(event.text)
        elif isinstance(event, Compacted):
            asked, self._summaries = max(1, self._summaries), 0
            self._script.jobs.setdefault("compaction", []).extend([body_of(event.text)] * asked)

    def _spend(self, event: UsageRecorded, agent: str) -> None:
        """A long conversation is summarised in several steps, of which only the last is kept."""
        if event.purpose == "planner":
            self._usage[agent] = self._usage.get(agent, Usage()) + event.usage
        elif event.purpose == COMPACTION.name:
            self._summaries += 1

    def _say(self, envelope: Envelope, speech: Speech) -> None:
        agent = envelope.agent
        usage = self._usage.pop(agent, Usage())
        said = msgspec.structs.replace(speech, seq=envelope.seq, turn=self._turns.get(agent, agent), usage=usage)
        self._script.speeches.setdefault(agent, []).append(said)

    def _end(self, event: TurnEnded, envelope: Envelope) -> None:
        """A turn that ended in a failure of the model: the last try is not in the log but in how it ended."""
        turn = self._turns.pop(envelope.agent, event.id)
        if event.reason in _CUT:
            self._script.cut.add(turn)
            return
        said = self._script.speeches.setdefault(envelope.agent, [])
        last = said[-1] if said and said[-1].turn == turn else None
        kind = _failure_of(event, last)
        if not kind:
            return
        if last is not None and last.holds:
            said[-1] = msgspec.structs.replace(last, holds=False, error=kind, words=event.error)
        else:
            usage = self._usage.pop(envelope.agent, Usage())
            said.append(Speech(envelope.seq, turn, usage=usage, error=kind, words=event.error or kind))


def _failure_of(event: TurnEnded, last: Speech | None) -> str:
    answered = last is not None and last.message is not None and not last.message.calls and not last.holds
    if event.reason == "end_turn" and not answered:
        return "EmptyReply"
    if event.reason == "max_tokens" and not answered and (last is None or not last.discarded):
        return "EmptyTruncation"
    if event.reason == "error":
        kind = getattr(errors, event.error_kind, None)
        return event.error_kind if isinstance(kind, type) and issubclass(kind, ProviderError) else ""
    return ""
