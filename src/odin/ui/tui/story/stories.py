"""The stories of all agents of a session: each has its own, and the main one shows how the others get on."""

from odin.core.event import Envelope, Replied, ToolStarted
from odin.ui.tui.story.story import TranscriptModel

_MAX_SUMMARY = 120


class TranscriptModels(dict[str, TranscriptModel]):
    """By the name of the agent; "" is the main one. The order is that in which they began."""

    def __init__(self) -> None:
        super().__init__({"": TranscriptModel()})

    def apply(self, envelope: Envelope) -> None:
        agent = envelope.agent
        if agent not in self:
            self[agent] = TranscriptModel()
        self[agent].apply(envelope)
        if agent:
            self._record_agent(agent, envelope)

    def _record_agent(self, agent: str, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, ToolStarted):
            self[""].record_agent(agent, f"{event.name} {event.description}".strip()[:_MAX_SUMMARY], calls=1)
        elif isinstance(event, Replied) and event.message.text.strip():
            self[""].record_agent(agent, event.message.text.strip().split("\n")[0][:_MAX_SUMMARY])

    def find_next(self, agent: str) -> str:
        """The next agent to look at, round and round."""
        names = list(self)
        return names[(names.index(agent) + 1) % len(names)] if agent in names else ""
