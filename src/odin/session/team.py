"""The sub-agents of a session with their threads, the delegated tasks, and the mail that is not delivered yet."""

from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import ClassVar

from msgspec.structs import replace

from odin.core.call_events import (
    SpawnStarted,
    TodosChanged,
    UsageRecorded,
)
from odin.core.client import SubAgentRecord
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Envelope,
    ModeChanged,
    ModelChanged,
    NoteAdded,
    SessionOpened,
    TurnStarted,
)
from odin.core.team import ACTIVE_STATES, MailSent, TaskChanged, TaskCreated, TaskRecord
from odin.core.text import join_some
from odin.session.conversation import ReadLog
from odin.session.thread import Thread

_MAX_NAMED = 10

_CUT_OFF = "The session ended while an agent worked on it."


class SubAgentThreads:
    """The live sub-agents with their threads. The thread of an ended one is read from the log if it is continued.

    `agent_count` and `spawn_count` are the highest numbers used for sub-agents and background processes, for new ids.
    """

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (
            SessionOpened,
            AgentStarted,
            AgentEnded,
            TurnStarted,
            ModeChanged,
            TodosChanged,
            UsageRecorded,
            ModelChanged,
            SpawnStarted,
        )
    )

    def __init__(self, read_log: ReadLog | None = None) -> None:
        self.agent_count = 0
        self.spawn_count = 0
        self.threads: dict[str, Thread] = {}
        self._records: dict[str, SubAgentRecord] = {}
        self._read_log = read_log
        self._continued: dict[str, str] = {}
        self._unloaded: set[str] = set()
        self._is_loading_late = False

    @property
    def records(self) -> tuple[SubAgentRecord, ...]:
        return tuple(self._records.values())

    def get(self, agent: str) -> SubAgentRecord | None:
        return self._records.get(agent)

    def get_thread(self, agent: str) -> Thread:
        thread = self.threads.get(agent)
        if thread is None:
            thread = self.threads[agent] = Thread()
        return thread

    @contextmanager
    def load_late(self, read_log: ReadLog | None) -> Generator[None]:
        """While a log is folded, load the threads that continue others at its end: once, and only if still needed."""
        self._is_loading_late = read_log is not None
        yield
        self._is_loading_late = False
        if self._unloaded:
            self.threads |= self._load_threads(self._unloaded, read_log)
            self._unloaded.clear()

    def apply(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        if agent:
            self.agent_count = max(self.agent_count, _parse_number(agent))
            if type(event) in Thread.EVENTS and agent not in self._unloaded:
                self.get_thread(agent).apply(event)
        match event:
            case SessionOpened():
                self._records.clear()
            case AgentStarted():
                self._start(event, envelope.ts)
            case AgentEnded():
                self._records.pop(event.id, None)
                self.threads.pop(event.id, None)
                self._unloaded.discard(event.id)
            case TodosChanged() if agent in self._records:
                self._records[agent] = replace(self._records[agent], todos=event.todos)
            case UsageRecorded() if agent in self._records and event.purpose == "main" and not event.estimated:
                self._records[agent] = replace(
                    self._records[agent],
                    context_tokens=event.usage.total,
                    context_limit=event.context_window,
                    model=event.model,
                )
            case TurnStarted() | ModeChanged() if agent in self._records:
                self._records[agent] = replace(self._records[agent], mode=event.mode)
            case ModelChanged() if agent in self._records:
                self._records[agent] = replace(
                    self._records[agent], model=event.model, selected_model=event.selected or event.model
                )
            case SpawnStarted():
                self.spawn_count = max(self.spawn_count, _parse_number(event.id))
            case _:
                pass

    def _start(self, event: AgentStarted, started: float) -> None:
        self.agent_count = max(self.agent_count + 1, _parse_number(event.id))
        if event.continues:
            self._continued[event.id] = event.continues
            if self._is_loading_late:
                self._unloaded.add(event.id)
            else:
                loaded = self._load_threads((event.continues,), self._read_log)
                self.threads[event.id] = loaded[event.continues]
        self._records[event.id] = SubAgentRecord(
            event.id,
            event.task,
            event.mode,
            description=event.description,
            owner=event.owner,
            type=event.agent_type,
            task_id=event.task_id,
            call_id=event.call_id,
            model=event.model,
            selected_model=event.model,
            state_changed_at=started,
            color=event.color,
        )

    def _load_threads(self, agents: Iterable[str], read_log: ReadLog | None) -> dict[str, Thread]:
        """Return the threads of these agents, folded from the log. Each begins with what it continues."""
        threads = {agent: Thread() for agent in agents}
        threads_by_source: defaultdict[str, list[Thread]] = defaultdict(list)
        for agent, thread in threads.items():
            for source in self._list_sources(agent):
                threads_by_source[source].append(thread)
        for envelope in () if read_log is None else read_log():
            if envelope.agent in threads_by_source and type(envelope.event) in Thread.EVENTS:
                for thread in threads_by_source[envelope.agent]:
                    thread.apply(envelope.event)
        return threads

    def _list_sources(self, agent: str) -> list[str]:
        """Return the agent, the one it continues, and so on. Agents continue each other only in a damaged log."""
        sources: list[str] = []
        while agent and agent not in sources:
            sources.append(agent)
            agent = self._continued.get(agent, "")
        return sources


def _parse_number(name: str) -> int:
    """The number at the end of an id. Counting by it keeps new ids unique even if the log lost a line."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


class TaskBoard:
    """The delegated tasks, and the mail that has not been delivered. Counts are the highest numbers used, for new ids.

    A task whose agent was cut off by the end of the session is idle: its owner can continue it. Mail outlives its
    recipient: the next agent of the task gets it. When a task has ended, unread reports to its agent go to the task's
    owner.
    """

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (TurnStarted, NoteAdded, TaskCreated, TaskChanged, MailSent, AgentEnded, SessionOpened)
    )

    def __init__(self) -> None:
        self.tasks: dict[str, TaskRecord] = {}
        self.messages: dict[str, MailSent] = {}
        self.task_count = 0
        self.message_count = 0
        self._turn = ""

    def list_messages(self, recipient: str) -> list[MailSent]:
        """Return the undelivered mail for this agent, oldest first."""
        return [mail for mail in self.messages.values() if mail.recipient == recipient]

    def list_children(self, owner: str, owner_task: str) -> list[TaskRecord]:
        """Return the tasks of this owner. A sub-agent owns those of its task, whichever agent worked on it."""
        return [
            task
            for task in self.tasks.values()
            if (task.owner_task == owner_task if owner_task else not task.owner_task and task.owner == owner)
        ]

    def list_owned(self, owner: str, owner_task: str) -> list[TaskRecord]:
        """Return the tasks of this owner, and those whose own owner has ended its task before them."""
        children = self.list_children(owner, owner_task)
        return [
            *children,
            *(below for task in children if task.is_ended for below in self.list_owned(task.agent, task.id)),
        ]

    def describe_left(self) -> str:
        """Return the note to the main agent about tasks that an earlier run of the session left open, or ""."""
        left = [task for task in self.tasks.values() if not task.is_ended and not task.owner_task]
        if not left:
            return ""
        names = join_some((f"{task.id} ({task.state})" for task in left), _MAX_NAMED)
        why = "No agent works on these tasks since the session was closed"
        return f"{why}: {names}. Use the Notify tool to continue one of them."

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        match event:
            case TurnStarted():
                if not envelope.agent:
                    self._turn = event.id
                self._deliver(event.mail)
            case NoteAdded():
                self._deliver(event.mail)
            case TaskCreated():
                self._create(event, envelope.ts)
            case TaskChanged() if event.id in self.tasks:
                self._change(event, envelope.ts)
            case MailSent():
                self._send(event, envelope.ts)
            case AgentEnded():
                self.cut_off(envelope.ts, event.id)
                # When a task has ended, unread reports to its agent go to the task's owner.
                task = next((task for task in self.tasks.values() if task.agent == event.id and task.is_ended), None)
                if task is not None:
                    owner = self.tasks.get(task.owner_task)
                    to = owner.agent if owner is not None and not owner.is_ended else ""
                    for mail in [mail for mail in self.list_messages(event.id) if mail.kind != "message"]:
                        self.messages[mail.id] = replace(mail, recipient=to)
            case SessionOpened():
                self.cut_off(envelope.ts)
            case _:
                pass

    def _deliver(self, ids: Iterable[str]) -> None:
        for mail in ids:
            self.messages.pop(mail, None)

    def _create(self, event: TaskCreated, now: float) -> None:
        self.task_count = max(self.task_count, _parse_number(event.id))
        self.tasks[event.id] = TaskRecord(
            event.id,
            event.agent_type,
            event.description,
            event.mode,
            owner=event.owner,
            owner_task=event.owner_task,
            call_id=event.call_id,
            plan_task=event.plan_task,
            key=event.key,
            scope=event.scope,
            depth=event.depth,
            joined=event.joined,
            isolation=event.isolation,
            created_turn=self._turn,
            updated_turn=self._turn,
            created_at=now,
            updated_at=now,
            state_changed_at=now,
        )

    def _change(self, event: TaskChanged, now: float) -> None:
        task = self.tasks[event.id]
        agents = task.agents if not event.agent or event.agent in task.agents else (*task.agents, event.agent)
        if event.agent and event.agent not in task.agents:
            for mail in [mail for mail in self.messages.values() if mail.recipient in task.agents]:
                self.messages[mail.id] = replace(mail, recipient=event.agent)
        if event.mail is not None:
            self._send(event.mail, now)
            task = self.tasks[event.id]
        self.tasks[event.id] = replace(
            task,
            state=event.state,
            agent=event.agent or task.agent,
            agents=agents,
            summary=event.summary or task.summary,
            completion=event.completion or (task.completion if event.state != "running" else None),
            artifacts=event.completion.artifacts if event.completion else task.artifacts,
            stall=event.stall,
            closed_reason=event.reason if event.state in ("completed", "failed", "cancelled") else "",
            updated_turn=self._turn,
            updated_at=now,
            state_changed_at=now if event.state != task.state else task.state_changed_at,
        )

    def _send(self, event: MailSent, now: float) -> None:
        self.message_count = max(self.message_count, _parse_number(event.id))
        if event.kind == "progress":
            for old in [old for old in self.list_messages(event.recipient) if old.kind == "progress"]:
                if old.sender == event.sender:
                    del self.messages[old.id]
        self.messages[event.id] = event
        task = self.tasks.get(event.task_id)
        if task is None:
            return
        if event.kind == "message":
            task = replace(
                task,
                last_reply=event.id,
                last_reply_to=event.in_reply_to,
                last_reply_kind=event.kind,
                last_reply_summary=event.text[:REPLY_SUMMARY_CHARS],
            )
        else:
            artifacts = (*task.artifacts, event.artifact) if event.artifact else task.artifacts
            task = replace(task, last_mail=event.id, artifacts=artifacts)
        self.tasks[task.id] = replace(task, updated_turn=self._turn, updated_at=now)

    def cut_off(self, now: float = 0.0, agent: str = "") -> None:
        """Make the task of this agent, which has ended, idle if it was at work; without a name all tasks."""
        for task in self.tasks.values():
            if task.state in ACTIVE_STATES and agent in ("", task.agent):
                at = now or task.updated_at
                self.tasks[task.id] = replace(task, state="idle", stall=_CUT_OFF, updated_at=at, state_changed_at=at)


REPLY_SUMMARY_CHARS = 240
"""Characters of an owner's reply that the task record keeps."""
