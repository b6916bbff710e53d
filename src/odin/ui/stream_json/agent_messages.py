"""Messages about sub-agents: that one has started, what it reports to its owner, and how it has ended.

The first and the last are the task messages of SDK clients, with Odin's name of the event in `event`.
"""

from collections.abc import Iterator
from typing import Any

from odin.core.client import Client
from odin.core.event import AgentEnded, AgentStarted
from odin.core.event_values import Event
from odin.core.team import MailSent, TaskChanged, TaskState

Raw = dict[str, Any]

_STATUSES: dict[TaskState, str] = {"completed": "completed", "failed": "failed"}
"""How a task has ended, in the words of SDK clients. Everything else is `stopped`."""


async def list_agent_types(client: Client) -> tuple[str, ...]:
    return tuple(item.name for item in await client.list_agents() if item.use != "main")


class AgentMessages:
    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._tasks: dict[str, str] = {}
        self._states: dict[str, TaskState] = {}

    def get_parent(self, agent: str) -> str | None:
        """Return the call that started an agent; of one that works since before the client was attached, its name."""
        return self._parents.get(agent, agent) or None

    def translate(self, event: Event) -> Iterator[tuple[str, Raw]]:
        """Yield the subtype and the fields of the messages for an event, often none."""
        match event:
            case AgentStarted():
                yield "task_started", self._start(event)
            case AgentEnded():
                yield "task_notification", self._end(event)
            case TaskChanged():
                self._states[event.id] = event.state
                if event.mail is not None and event.mail.kind != "completed":
                    yield from self.translate(event.mail)
            case MailSent() if event.kind != "message":
                yield "agent_notify", self._notify(event)
            case _:
                return

    def _start(self, event: AgentStarted) -> Raw:
        self._parents[event.id] = event.call_id or event.id
        self._tasks[event.id] = event.task_id
        return {
            **self._identify(event.id),
            "event": "agent_started",
            "description": event.description or event.task,
            "task_type": event.agent_type or "general",
            "owner": event.owner,
        }

    def _end(self, event: AgentEnded) -> Raw:
        state = self._states.get(self._tasks.get(event.id, ""))
        if state is None:
            is_stopped = event.reason in ("interrupted", "aborted")
            status = "completed" if event.reason == "end_turn" else "stopped" if is_stopped else "failed"
        else:
            status = _STATUSES.get(state, "stopped")
        return {
            **self._identify(event.id),
            "event": "agent_done",
            "status": status,
            "state": state or status,
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
        task = self._tasks.get(agent) or agent
        return {"agent_id": agent, "task_id": task, "tool_use_id": self.get_parent(agent)}
