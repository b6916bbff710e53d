"""The sub-agents that work in a session, each with its thread, and which numbers are taken for new ones."""

from collections.abc import Callable
from typing import Any

from odin.core.client import SubAgentRecord
from odin.core.event import AgentEnded, AgentStarted, AnyEvent, Envelope, SessionOpened, SpawnStarted, TodosChanged
from odin.session.hearing import hear, heard
from odin.session.thread import Thread


class Roster:
    """`count` is the highest number of an agent so far, `spawn_count` that of a background process."""

    def __init__(self) -> None:
        self.count = 0
        self.spawn_count = 0
        self.threads: dict[str, Thread] = {}
        self._records: dict[str, SubAgentRecord] = {}

    @property
    def records(self) -> tuple[SubAgentRecord, ...]:
        return tuple(self._records.values())

    def thread(self, agent: str) -> Thread:
        found = self.threads.get(agent)
        if found is None:
            found = self.threads[agent] = Thread()
        return found

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if envelope.agent:
            self.count = max(self.count, _number(envelope.agent))
            if heard(event):
                hear(self.thread(envelope.agent), event)
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    def _session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self._records.clear()

    def _started(self, event: AgentStarted, envelope: Envelope) -> None:
        self.count = max(self.count + 1, _number(event.id))
        self._records[event.id] = SubAgentRecord(event.id, event.task, event.mode)

    def _ended(self, event: AgentEnded, envelope: Envelope) -> None:
        self._records.pop(event.id, None)
        self.threads.pop(event.id, None)

    def _todos_changed(self, event: TodosChanged, envelope: Envelope) -> None:
        known = self._records.get(envelope.agent) if envelope.agent else None
        if known is not None:
            self._records[envelope.agent] = SubAgentRecord(known.id, known.task, known.mode, event.todos)

    def _spawn_started(self, event: SpawnStarted, envelope: Envelope) -> None:
        self.spawn_count = max(self.spawn_count, _number(event.id))


_STEPS: dict[type[AnyEvent], Callable[[Roster, Any, Envelope], None]] = {
    SessionOpened: Roster._session_opened,
    AgentStarted: Roster._started,
    AgentEnded: Roster._ended,
    TodosChanged: Roster._todos_changed,
    SpawnStarted: Roster._spawn_started,
}


def _number(name: str) -> int:
    """The number at the end of an id, so that new ids go past it also when the log has lost a line."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
