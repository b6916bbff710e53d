"""The sub-agents that work in a session, each with its thread, and which numbers are taken for new ones."""

from collections.abc import Callable
from typing import Any

from odin.core.client import SubAgentRecord
from odin.core.event import AgentEnded, AgentStarted, AnyEvent, Envelope, SessionOpened, SpawnStarted, TodosChanged
from odin.session.hearing import apply_thread_event, is_thread_event
from odin.session.thread import Thread


class SubAgentThreads:
    """`count` is the highest number of an agent so far, `spawn_count` that of a background process."""

    def __init__(self) -> None:
        self.agent_count = 0
        self.spawn_count = 0
        self.threads: dict[str, Thread] = {}
        self._records: dict[str, SubAgentRecord] = {}

    @property
    def records(self) -> tuple[SubAgentRecord, ...]:
        return tuple(self._records.values())

    def thread_of(self, agent: str) -> Thread:
        found = self.threads.get(agent)
        if found is None:
            found = self.threads[agent] = Thread()
        return found

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if envelope.agent:
            self.agent_count = max(self.agent_count, _number_of(envelope.agent))
            if is_thread_event(event):
                apply_thread_event(self.thread_of(envelope.agent), event)
        step = _SUB_AGENT_HANDLERS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    def _on_session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self._records.clear()

    def _on_agent_started(self, event: AgentStarted, envelope: Envelope) -> None:
        self.agent_count = max(self.agent_count + 1, _number_of(event.id))
        self._records[event.id] = SubAgentRecord(event.id, event.task, event.mode)

    def _on_agent_ended(self, event: AgentEnded, envelope: Envelope) -> None:
        self._records.pop(event.id, None)
        self.threads.pop(event.id, None)

    def _on_todos_changed(self, event: TodosChanged, envelope: Envelope) -> None:
        known = self._records.get(envelope.agent) if envelope.agent else None
        if known is not None:
            self._records[envelope.agent] = SubAgentRecord(known.id, known.task, known.mode, event.todos)

    def _on_spawn_started(self, event: SpawnStarted, envelope: Envelope) -> None:
        self.spawn_count = max(self.spawn_count, _number_of(event.id))


_SUB_AGENT_HANDLERS: dict[type[AnyEvent], Callable[[SubAgentThreads, Any, Envelope], None]] = {
    SessionOpened: SubAgentThreads._on_session_opened,
    AgentStarted: SubAgentThreads._on_agent_started,
    AgentEnded: SubAgentThreads._on_agent_ended,
    TodosChanged: SubAgentThreads._on_todos_changed,
    SpawnStarted: SubAgentThreads._on_spawn_started,
}


def _number_of(name: str) -> int:
    """The number at the end of an id, so that new ids go past it also when the log has lost a line."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
