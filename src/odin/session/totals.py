"""What a session has spent so far: all of it, by model and by agent."""

from odin.core.event import UsageRecorded
from odin.core.message import Usage
from odin.core.spent import Spent


class Totals:
    """The main agent has no name."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd = 0.0
        self.by_model: dict[str, Spent] = {}
        self.by_agent: dict[str, Spent] = {}

    def add(self, event: UsageRecorded, agent: str) -> None:
        self.usage += event.usage
        self.cost_usd += event.cost_usd
        spent = Spent.on(event)
        self.by_model[event.model] = self.by_model.get(event.model, Spent()) + spent
        self.by_agent[agent] = self.by_agent.get(agent, Spent()) + spent
