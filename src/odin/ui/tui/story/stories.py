"""The stories of all agents of a session: each has its own, and the main one shows how the others get on."""

from odin.core.event import Envelope, Replied, ToolStarted
from odin.ui.tui.story.story import Story

_SHOWN = 120


class Stories(dict[str, Story]):
    """By the name of the agent; "" is the main one. The order is that in which they began."""

    def __init__(self) -> None:
        super().__init__({"": Story()})

    def see(self, envelope: Envelope) -> None:
        agent = envelope.agent
        if agent not in self:
            self[agent] = Story()
        self[agent].see(envelope)
        if agent:
            self._tell(agent, envelope)

    def _tell(self, agent: str, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, ToolStarted):
            self[""].agent_did(agent, f"{event.name} {event.description}".strip()[:_SHOWN], calls=1)
        elif isinstance(event, Replied) and event.message.text.strip():
            self[""].agent_did(agent, event.message.text.strip().split("\n")[0][:_SHOWN])

    def after(self, agent: str) -> str:
        """The next agent to look at, round and round."""
        names = list(self)
        return names[(names.index(agent) + 1) % len(names)] if agent in names else ""
