"""The agents that work for the main one: what each does, and which of them waits for a person."""

from dataclasses import dataclass

from odin.core.event import AgentEnded, AgentStarted, Envelope, TurnEnded
from odin.ui.tui.panels.doing import AgentActivity

MAX_ENDED = 5
"""Agents that are over and still listed."""


@dataclass(slots=True)
class AgentStatus:
    """`number` chooses its colour and stays the same; `over` is how it ended."""

    id: str
    task: str
    number: int
    activity: AgentActivity
    end_reason: str = ""

    @property
    def is_asking(self) -> bool:
        return bool(self.activity.questions)


class AgentList:
    """`all` by id. The activity of the main agent is `main`."""

    def __init__(self) -> None:
        self.all: dict[str, AgentStatus] = {}
        self.main = AgentActivity()
        self._count = 0

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, AgentStarted):
            self.all[event.id] = AgentStatus(event.id, event.task, self._count, AgentActivity())
            self._count += 1
        elif isinstance(event, AgentEnded) and event.id in self.all:
            line = self.all[event.id]
            line.end_reason, line.activity = event.reason, AgentActivity()
        elif not envelope.agent:
            self.main.apply(envelope)
            if isinstance(event, TurnEnded):
                self._prune_ended()
        elif envelope.agent in self.all:
            self.all[envelope.agent].activity.apply(envelope)

    def _prune_ended(self) -> None:
        over = [line.id for line in self.all.values() if line.end_reason]
        for name in over[:-MAX_ENDED]:
            del self.all[name]

    def activity_of(self, agent: str) -> AgentActivity:
        """What this agent does; "" is the main one."""
        return self.all[agent].activity if agent in self.all else self.main

    @property
    def running(self) -> list[AgentStatus]:
        return [line for line in self.all.values() if not line.end_reason]

    @property
    def asking(self) -> list[AgentStatus]:
        return [line for line in self.running if line.is_asking]

    @property
    def busy(self) -> bool:
        """Whether anything goes on of which the time is shown."""
        return self.main.busy or any(line.activity.busy for line in self.running)
