"""What a session has spent so far: all of it, by model and by agent."""

from odin.core.event import UsageRecorded
from odin.core.message import Usage
from odin.core.spent import UsageTotals


class SessionTotals:
    """The main agent has no name."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd = 0.0
        self.by_model: dict[str, UsageTotals] = {}
        self.by_agent: dict[str, UsageTotals] = {}

    def add(self, event: UsageRecorded, agent: str) -> None:
        self.usage += event.usage
        self.cost_usd += event.cost_usd
        spent = UsageTotals.from_event(event)
        self.by_model[event.model] = self.by_model.get(event.model, UsageTotals()) + spent
        self.by_agent[agent] = self.by_agent.get(agent, UsageTotals()) + spent
