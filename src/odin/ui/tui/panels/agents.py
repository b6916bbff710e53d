"""The agents that work for the main one: what each does, and which of them waits for a person."""

from dataclasses import dataclass

from odin.core.event import AgentEnded, AgentStarted, Envelope, TurnEnded
from odin.ui.tui.panels.doing import Doing

KEPT_OVER = 5
"""Agents that are over and still listed."""


@dataclass(slots=True)
class AgentLine:
    """`number` chooses its colour and stays the same; `over` is how it ended."""

    id: str
    task: str
    number: int
    doing: Doing
    over: str = ""

    @property
    def asks(self) -> bool:
        return bool(self.doing.asks)


class Agents:
    """`all` by id. The activity of the main agent is `main`."""

    def __init__(self) -> None:
        self.all: dict[str, AgentLine] = {}
        self.main = Doing()
        self._count = 0

    def see(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, AgentStarted):
            self.all[event.id] = AgentLine(event.id, event.task, self._count, Doing())
            self._count += 1
        elif isinstance(event, AgentEnded) and event.id in self.all:
            line = self.all[event.id]
            line.over, line.doing = event.reason, Doing()
        elif not envelope.agent:
            self.main.see(envelope)
            if isinstance(event, TurnEnded):
                self._forget()
        elif envelope.agent in self.all:
            self.all[envelope.agent].doing.see(envelope)

    def _forget(self) -> None:
        over = [line.id for line in self.all.values() if line.over]
        for name in over[:-KEPT_OVER]:
            del self.all[name]

    def of(self, agent: str) -> Doing:
        """What this agent does; "" is the main one."""
        return self.all[agent].doing if agent in self.all else self.main

    @property
    def working(self) -> list[AgentLine]:
        return [line for line in self.all.values() if not line.over]

    @property
    def asking(self) -> list[AgentLine]:
        return [line for line in self.working if line.asks]

    @property
    def busy(self) -> bool:
        """Whether anything goes on of which the time is shown."""
        return self.main.busy or any(line.doing.busy for line in self.working)
