"""What a program is told about sub-agents: the calls that started them, their tasks, reports and ends."""

from typing import Literal

from odin.core.event import AgentEnded, AgentStarted
from odin.core.event_values import Event
from odin.core.team import MailSent, TaskChanged, TaskState

EndStatus = Literal["completed", "failed", "stopped"]

_STATUSES: dict[TaskState, EndStatus] = {"completed": "completed", "failed": "failed"}
"""How a task has ended, in the words of SDK clients. Everything else is `stopped`."""


class AgentTracker:
    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._tasks: dict[str, str] = {}
        self._states: dict[str, TaskState] = {}

    def record(self, event: Event) -> MailSent | None:
        """Return the report to an owner that an event brings. That a task is completed is told by the agent's end."""
        mail = None
        if isinstance(event, AgentStarted):
            self._calls[event.id] = event.call_id or event.id
            self._tasks[event.id] = event.task_id
        elif isinstance(event, TaskChanged):
            self._states[event.id] = event.state
            mail = None if event.mail is None or event.mail.kind == "completed" else event.mail
        elif isinstance(event, MailSent):
            mail = event
        return None if mail is None or mail.kind == "message" else mail

    def get_call(self, agent: str) -> str:
        """Return the call that started an agent; of one that works since before the client was attached, its name."""
        return self._calls.get(agent, agent)

    def get_task(self, agent: str) -> str:
        """Return the task of an agent; of one without, its name."""
        return self._tasks.get(agent) or agent

    def get_end(self, ended: AgentEnded) -> tuple[EndStatus, str]:
        """Return how an agent ended, and the state of its task."""
        state = self._states.get(self._tasks.get(ended.id, ""))
        if state is not None:
            return _STATUSES.get(state, "stopped"), state
        is_stopped = ended.reason in ("interrupted", "aborted")
        status: EndStatus = "completed" if ended.reason == "end_turn" else "stopped" if is_stopped else "failed"
        return status, status
