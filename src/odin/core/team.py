"""Delegated tasks and the mail between agents: their values, their events, and what tools need of the team.

A task is given to a sub-agent by its owner, which is the main agent ("") or another sub-agent. The task outlives the
agents that work on it: a later agent can continue it. Mail is delivered by the event that shows it to the model
(`TurnStarted.mail`, `NoteAdded.mail`), so delivering and acknowledging are one step.
"""

from typing import Literal, Protocol

from msgspec import Struct

from odin.core.event_values import Event, Mode
from odin.core.write_scope import WriteScope

TaskState = Literal["running", "waiting_main", "waiting_descendant", "completed", "failed", "cancelled", "idle"]
"""`waiting_main`: the agent has escalated and waits for its owner. `waiting_descendant`: it is done but its own tasks
are not. `idle`: no agent works on it now, and it can be continued."""

ENDED_STATES: frozenset[TaskState] = frozenset({"completed", "failed", "cancelled"})

ACTIVE_STATES: frozenset[TaskState] = frozenset({"running", "waiting_descendant"})
"""States in which an agent works for the task. Only these count for the limit of running agents."""

STATE_WORDS: dict[TaskState, str] = {
    "running": "working",
    "waiting_main": "waits for main",
    "waiting_descendant": "waits for its agents",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "idle": "idle",
}
"""The states as people read them."""


def get_state_after(state: TaskState) -> TaskState:
    """Return the state of a task after the end of its agent: one that was at work is idle."""
    return "idle" if state in ACTIVE_STATES else state


MailKind = Literal[
    "progress", "completed", "blocked", "decision_required", "risk_alert", "direction_change_request", "message"
]
"""What a sub-agent reports to its owner; `message` is what an owner writes to its task."""

MailPriority = Literal["notify", "urgent", "interrupt"]

ReportKind = Literal["progress", "blocked", "decision_required", "risk_alert", "direction_change_request"]
"""What a sub-agent may report with Notify while it works."""


class TaskReport(Struct, frozen=True, omit_defaults=True):
    """What a sub-agent says about its finished task."""

    summary: str
    files_changed: tuple[str, ...] = ()
    verification_run: tuple[str, ...] = ()
    remaining_limitations: tuple[str, ...] = ()
    known_risks: tuple[str, ...] = ()
    follow_up_recommended: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()

    def describe(self) -> str:
        lists = {
            "Files changed": self.files_changed,
            "Verified with": self.verification_run,
            "Limitations": self.remaining_limitations,
            "Risks": self.known_risks,
            "Recommended next": self.follow_up_recommended,
            "Artifacts": self.artifacts,
        }
        lines = [f"{title}: {'; '.join(items)}" for title, items in lists.items() if items]
        return "\n".join([self.summary, *lines])


class TaskCreated(Event, frozen=True, omit_defaults=True):
    """A task was delegated with the tool call `call_id`. `key` identifies the work, so that it is not given out twice.

    `joined`: the owner is not done before this task is. `owner_task` is the task that the owner itself works on.
    """

    id: str
    agent_type: str
    description: str
    mode: Mode
    owner: str = ""
    owner_task: str = ""
    call_id: str = ""
    plan_task: str = ""
    key: str = ""
    scope: WriteScope = WriteScope()
    depth: int = 1
    joined: bool = True
    isolation: str = ""


class MailSent(Event, frozen=True, omit_defaults=True):
    """An agent wrote to another one. `artifact` is the file with the whole text if `text` is only its beginning.

    `in_reply_to` is the mail that this one answers. `needs_reply`: the sender waits for an answer. `mode` is the mode
    in which the recipient works on the message: the stricter of that of its task and that of the turn that wrote it.
    """

    id: str
    sender: str
    recipient: str
    kind: MailKind
    text: str
    priority: MailPriority = "notify"
    task_id: str = ""
    artifact: str = ""
    in_reply_to: str = ""
    needs_reply: bool = False
    mode: Mode | None = None


class TaskChanged(Event, frozen=True, omit_defaults=True):
    """A task has a new state or a new agent. `reason` explains the state; `stall` why it may be stalled.

    `mail` tells the owner, or the new agent what to do. It is sent with this event, so that no crash can come between
    the two.
    """

    id: str
    state: TaskState
    agent: str = ""
    summary: str = ""
    reason: str = ""
    stall: str = ""
    completion: TaskReport | None = None
    mail: MailSent | None = None


class TaskRecord(Struct, frozen=True):
    """Everything that is known about a task. Times are those of the events; turns are ids of the main agent's turns.

    `agents` are the ids of all agents that have worked on it; `agent` is the latest. `last_mail` is the newest mail of
    its agents, `last_reply` the newest one to them. `resume_policy` says how it can be continued.
    """

    id: str
    type: str
    description: str
    mode: Mode
    state: TaskState = "running"
    owner: str = ""
    owner_task: str = ""
    call_id: str = ""
    plan_task: str = ""
    key: str = ""
    scope: WriteScope = WriteScope()
    depth: int = 1
    joined: bool = True
    isolation: str = ""
    agent: str = ""
    agents: tuple[str, ...] = ()
    summary: str = ""
    last_mail: str = ""
    last_reply: str = ""
    last_reply_to: str = ""
    last_reply_kind: str = ""
    last_reply_summary: str = ""
    artifacts: tuple[str, ...] = ()
    completion: TaskReport | None = None
    stall: str = ""
    closed_reason: str = ""
    created_turn: str = ""
    updated_turn: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    state_changed_at: float = 0.0

    @property
    def resume_policy(self) -> str:
        if self.state in ("failed", "cancelled"):
            return "never"
        return "new_agent" if self.state == "completed" else "notify"

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES


class DelegationLimits(Struct, frozen=True):
    """How an agent may delegate. `max_children`: how many open tasks it may have.

    `max_depth`: how deep its tasks may be nested below the main agent; an agent at this depth cannot delegate.
    `child_join`: it is not done before its tasks are.
    """

    max_children: int
    max_depth: int
    child_join: bool = True


class TeamLimits(Struct, frozen=True):
    """`agents`: how many may run at once. `children`: how many open tasks one owner may have.

    `depth`: how deep tasks may be nested; 1: only the main agent delegates. An agent that stops without Complete gets a
    reminder after `idle_s` seconds, at most `reminders` times.
    """

    agents: int
    children: int
    depth: int
    idle_s: float
    reminders: int = 3


class AgentSpec(Struct, frozen=True):
    """A sub-agent to make. `depth` counts the owners above it, `continues` is an ended agent it takes over from."""

    name: str
    task: str
    mode: Mode
    description: str = ""
    type: str = ""
    task_id: str = ""
    owner: str = ""
    call_id: str = ""
    depth: int = 1
    scope: WriteScope = WriteScope()
    isolation: str = ""
    continues: str = ""


class TaskRequest(Struct, frozen=True):
    """A task to delegate. The last four are its write scope as the model named it."""

    description: str
    type: str
    mode: Mode
    call_id: str = ""
    plan_task: str = ""
    key: str = ""
    files: tuple[str, ...] = ()
    path_prefixes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    read_only: bool = False


class TaskHandle(Struct, frozen=True, omit_defaults=True):
    """The answer to a tool call about a task. `status` is a task state or a refusal such as `scope_conflict`."""

    status: str
    task_id: str = ""
    agent_id: str = ""
    message: str = ""


class Delegation(Protocol):
    """What the delegation tools of one agent need of the team. Refusals raise UsageError."""

    def describe_types(self) -> str:
        """Return the types of sub-agents for a tool's description: names, or one line each with what it is for."""
        ...

    def can_delegate(self) -> bool:
        """True if the agent may give out tasks at its depth."""
        ...

    async def delegate(self, request: TaskRequest) -> TaskHandle: ...

    def has_tasks(self) -> bool:
        """True if the agent has delegated something in this session."""
        ...

    def has_worktrees(self) -> bool:
        """True if one of the agent's tasks works in a worktree of its own."""
        ...

    def find_apply_problem(self, task_id: str) -> str:
        """Return why the work of a task cannot be merged into the project, or ""."""
        ...

    def list_work(self, task_id: str) -> tuple[str, ...]:
        """Return the files of the project that the work of a completed task changes."""
        ...

    async def preview_work(self, task_id: str) -> str:
        """Return the diff of the work of a task, for the permission request."""
        ...

    async def apply_work(self, task_id: str) -> str:
        """Merge the worktree of a task, as it was last shown, into the project; return what happened."""
        ...

    async def notify(self, task_id: str, message: str, mode: Mode) -> TaskHandle:
        """Write to one of the agent's own tasks, in a turn of this mode."""
        ...

    def report(self, message: str, kind: ReportKind) -> TaskHandle:
        """Write to the agent's owner."""
        ...

    async def cancel(self, task_id: str, reason: str) -> TaskHandle: ...

    def complete(self, completion: TaskReport) -> TaskHandle: ...

    def ask_owner(self, question: str) -> TaskHandle: ...
