"""Messages about sub-agents: that one has started, what it reports to its owner, and how it has ended.

The first and the last are the task messages of SDK clients, with Odin's name of the event in `event`.
"""

from collections.abc import Iterator
from typing import Any

from odin.core.client import Client
from odin.core.event import AgentEnded, AgentStarted
from odin.core.event_values import Event
from odin.core.team import MailSent
from odin.ui.agent_tracker import AgentTracker

Raw = dict[str, Any]


async def list_agent_types(client: Client) -> tuple[str, ...]:
    return tuple(item.name for item in await client.list_agents() if item.use != "main")


class AgentMessages:
    def __init__(self) -> None:
        self._tracker = AgentTracker()

    def get_parent(self, agent: str) -> str | None:
        """Return the call that started an agent; None for the main agent."""
        return self._tracker.get_call(agent) or None

    def translate(self, event: Event) -> Iterator[tuple[str, Raw]]:
        """Yield the subtype and the fields of the messages for an event, often none."""
        report = self._tracker.record(event)
        if isinstance(event, AgentStarted):
            yield "task_started", self._start(event)
        elif isinstance(event, AgentEnded):
            yield "task_notification", self._end(event)
        elif report is not None:
            yield "agent_notify", self._notify(report)

    def _start(self, event: AgentStarted) -> Raw:
        return {
            **self._identify(event.id),
            "event": "agent_started",
            "description": event.description or event.task,
            "task_type": event.agent_type or "general",
            "owner": event.owner,
        }

    def _end(self, event: AgentEnded) -> Raw:
        status, state = self._tracker.get_end(event)
        return {
            **self._identify(event.id),
            "event": "agent_done",
            "status": status,
            "state": state,
            "summary": event.text,
            "output_file": "",
        }

    def _notify(self, mail: MailSent) -> Raw:
        return {
            **self._identify(mail.sender),
            "kind": mail.kind,
            "priority": mail.priority,
            "text": mail.text,
            "recipient": mail.recipient,
            "needs_reply": mail.needs_reply,
        }

    def _identify(self, agent: str) -> Raw:
        return {
            "agent_id": agent,
            "task_id": self._tracker.get_task(agent),
            "tool_use_id": self._tracker.get_call(agent),
        }
