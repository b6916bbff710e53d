"""The state of a session: a pure fold over its events.

Any prefix of any log can be folded, so a session that crashed is resumed from whatever its log holds. Each part of the
state lives in a class that applies the events it cares about.

The session's permissions are one part: permission mode, session rules and budget. A grant holds only in the project
where the user gave it: when a session is resumed in another project, allow rules and permissive modes are dropped; deny
and ask rules stay.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec import Struct

from odin.core.call_events import (
    RuleAdded,
    RuleRemoved,
    ToolEnded,
    UsageRecorded,
    UsageTotals,
)
from odin.core.client import LoopStatus, QueuedPrompt, Snapshot, SubAgentRecord, TurnRecord
from odin.core.event import (
    AgentEnded,
    BudgetSet,
    Envelope,
    FilesChanged,
    InstructionsChanged,
    LoopChanged,
    ModeChanged,
    ModelChanged,
    PermissionModeChanged,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    RoleChanged,
    RootAdded,
    RootRemoved,
    ScheduleChanged,
    ServersToggled,
    SessionOpened,
    SystemPromptChanged,
    TitleSet,
    ToolsChanged,
    TurnStarted,
)
from odin.core.event_values import DEFAULT_ROLE, CachedFile, CallStatus, ExitReason, Mode
from odin.core.format import clip
from odin.core.message import Message, Usage
from odin.core.op import BYPASS_PERMISSIONS
from odin.core.policy import SessionRule
from odin.core.prompt import copy_prompt
from odin.core.root import Root
from odin.core.schedule import SessionSchedule
from odin.core.text import to_valid_unicode
from odin.core.timeline import OpenWork
from odin.core.tool import CollectedItem
from odin.session.call_ids import CallIds
from odin.session.conversation import MainConversation, ReadLog, UsedSkills
from odin.session.history import FileHistory, RecordedChange, list_results
from odin.session.log import pause_collection
from odin.session.team import SubAgentThreads, TaskBoard
from odin.session.thread import Thread

_RESTRICTIVE_MODES = ("dontAsk",)
"""Modes that allow less than the default mode."""

_FORMER_MODES = {"plan": "default"}
"""Permission modes of older logs, and what they mean now: `plan` is only a mode."""

_UNMENTIONED_MODES = ("", "default", *_RESTRICTIVE_MODES)
"""Modes not mentioned on resume."""

_MAX_MENTIONED = 5


class Grants(Struct, frozen=True):
    """What the user granted. `permission` is the chosen mode, or ""; `budget_usd` the cost limit, or None.

    `roots` are the folders that were added to the project.
    """

    rules: tuple[SessionRule, ...] = ()
    permission: str = ""
    budget_usd: float | None = None
    roots: tuple[Root, ...] = ()

    def restrict_for_other_project(self) -> "Grants":
        """The grants that carry over to another project: deny and ask rules, and restrictive modes."""
        return Grants(
            tuple(rule for rule in self.rules if rule.action != "allow"),
            self.permission if self.permission in _RESTRICTIVE_MODES else "",
        )

    def describe_allowed(self) -> str:
        """A short list of everything these grants allow without asking; "" if nothing."""
        parts = list(self._list_allowed())
        more = [f"{len(parts) - _MAX_MENTIONED} more"] if len(parts) > _MAX_MENTIONED else []
        return ", ".join([*parts[:_MAX_MENTIONED], *more])

    def _list_allowed(self) -> Iterator[str]:
        if self.permission not in _UNMENTIONED_MODES:
            yield f"permission mode {self.permission}"
        yield from (f"folder {root.path} ({root.access_name})" for root in self.roots)
        for rule in self.rules:
            if rule.action == "allow":
                yield f"rule {rule.text}" + (f" (role {rule.role})" if rule.role not in ("", DEFAULT_ROLE) else "")


def describe_resumed_grants(earlier: Grants, current: Grants) -> str:
    """The notice shown on resume about grants that are still in force or were dropped; "" if there are none."""
    if current != earlier and (dropped := earlier.describe_allowed()):
        return f"This session comes from another project. Its permissions do not apply here: {dropped}."
    allowed = current.describe_allowed()
    return f"This session may act without asking, as you allowed earlier: {allowed}." if allowed else ""


class SessionPermissions:
    """`chosen_mode` is the mode the user chose in this session, or "" if the configuration decides.

    `previous_mode` holds again when bypassPermissions ends; until that is chosen, it is the mode itself.

    `roots` are the folders besides the project, `added_roots` those of them that the user added in the session.

    Grants hold in the project at `root`.
    """

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (SessionOpened, PermissionModeChanged, RuleAdded, RuleRemoved, BudgetSet, RootAdded, RootRemoved)
    )

    def __init__(self) -> None:
        self.root = ""
        self.mode = "default"
        self.chosen_mode = ""
        self.previous_mode = "default"
        self.rules: tuple[SessionRule, ...] = ()
        self.budget_usd: float | None = None
        self.added_roots: tuple[Root, ...] = ()
        self.roots: tuple[Root, ...] = ()

    @property
    def grants(self) -> Grants:
        return Grants(self.rules, self.chosen_mode, self.budget_usd, self.added_roots)

    def get_grants(self, root: str) -> Grants:
        """The grants that hold in the project at `root`."""
        return self.grants if root == self.root else self.grants.restrict_for_other_project()

    def list_roots(self, root: str) -> tuple[Root, ...]:
        """The folders besides the project for an agent that works in `root`: in a worktree they are read-only."""
        if not self.roots or to_valid_unicode(root) == self.root:
            return self.roots
        return tuple(msgspec.structs.replace(other, access="read") for other in self.roots)

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        match event:
            case SessionOpened():
                self._open(event)
            case PermissionModeChanged():
                self.mode = _FORMER_MODES.get(event.mode, event.mode)
                if self.mode != BYPASS_PERMISSIONS:
                    self.chosen_mode = self.previous_mode = self.mode
            case RuleAdded() if event.scope == "session":  # stays until removed, even after a rewind
                self.rules = (*self._list_rules_without(event), SessionRule(event.text, event.action, event.role))
            case RuleRemoved() if event.scope == "session":
                self.rules = self._list_rules_without(event)
            case BudgetSet():
                self.budget_usd = event.usd
            case RootAdded():
                self.added_roots = (*_leave_out(self.added_roots, event.root.path), event.root)
                self.roots = (*_leave_out(self.roots, event.root.path), event.root)
            case RootRemoved():
                self.added_roots = _leave_out(self.added_roots, event.path)
                self.roots = _leave_out(self.roots, event.path)
            case _:
                pass

    def _open(self, event: SessionOpened) -> None:
        grants = self.get_grants(event.root)
        self.rules, self.chosen_mode, self.budget_usd = grants.rules, grants.permission, grants.budget_usd
        self.root, self.added_roots, self.roots = event.root, grants.roots, event.roots
        configured = str(event.config.get("permission_mode") or "default")
        mode = event.permission_mode or self.chosen_mode or configured
        self.mode = _FORMER_MODES.get(mode, mode)
        self.previous_mode = self.mode if self.mode != BYPASS_PERMISSIONS else self.chosen_mode or "default"

    def _list_rules_without(self, event: RuleAdded | RuleRemoved) -> tuple[SessionRule, ...]:
        return tuple(rule for rule in self.rules if rule != SessionRule(event.text, event.action, event.role))


def _leave_out(roots: Iterable[Root], path: str) -> tuple[Root, ...]:
    return tuple(root for root in roots if root.path != path)


class SessionTotals:
    """Usage and cost of the session: in total, by model and by agent. The main agent's name is ""."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd = 0.0
        self.by_model: dict[str, UsageTotals] = {}
        self.by_agent: dict[str, UsageTotals] = {}
        self.last_requests: dict[str, UsageRecorded] = {}
        """The last request of each agent."""

    def add(self, event: UsageRecorded, agent: str) -> None:
        self.usage += event.usage
        self.cost_usd += event.cost_usd
        spent = UsageTotals.from_event(event)
        self.by_model[event.model] = self.by_model.get(event.model, UsageTotals()) + spent
        self.by_agent[agent] = self.by_agent.get(agent, UsageTotals()) + spent
        if event.sent is not None:
            self.last_requests[agent] = event


class PromptQueueState:
    """The queued prompts, oldest first."""

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (PromptQueued, PromptChanged, PromptDropped, PromptInjected, TurnStarted)
    )

    def __init__(self) -> None:
        self._prompts: dict[str, QueuedPrompt] = {}

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._prompts.values())

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        match event:
            case PromptQueued():
                self._prompts[event.id] = copy_prompt(QueuedPrompt, event, timestamp=envelope.ts, agent=envelope.agent)
            case PromptChanged() if event.id in self._prompts:
                was = self._prompts[event.id]
                self._prompts[event.id] = copy_prompt(QueuedPrompt, event, timestamp=was.timestamp, agent=was.agent)
            case PromptDropped() | PromptInjected():
                self._prompts.pop(event.id, None)
            case TurnStarted() if event.id in self._prompts and self._prompts[event.id].agent == envelope.agent:
                del self._prompts[event.id]
            case _:
                pass


LOOP_ENDED_BY_RESUME = "The session ended while loop mode was on. Loop mode does not restart by itself."

_LOOP_OFF = LoopChanged("idle")


class LoopCall(Struct, frozen=True):
    """One tool call. Equal fingerprints mean the same tool returned the same result."""

    name: str
    status: CallStatus
    fingerprint: int

    @property
    def is_success(self) -> bool:
        return self.status == "success"

    @property
    def has_run(self) -> bool:
        return self.status in ("success", "error")


class LoopModeState:
    """Where loop mode of one agent stands. Nothing is collected while it is off.

    `calls` and `has_file_changes` cover the time since the agent's turn or loop mode started: the agent's own, or for
    the main agent those of all agents.
    """

    EVENTS: ClassVar[frozenset[type]] = frozenset((LoopChanged, SessionOpened, TurnStarted, ToolEnded, FilesChanged))

    def __init__(self, agent: str = "") -> None:
        self._agent = agent
        self._last = _LOOP_OFF
        self.calls: list[LoopCall] = []
        self.has_file_changes = False

    @property
    def status(self) -> LoopStatus:
        last = self._last
        return LoopStatus(last.state, last.goal, last.iteration, last.limit, last.reason)

    @property
    def is_active(self) -> bool:
        return self.status.is_active

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        is_own = envelope.agent == self._agent
        if isinstance(event, LoopChanged):
            if is_own:
                self._last = event
                if not self.is_active:
                    self._clear()
        elif self._last is _LOOP_OFF or not self.is_active:  # the identity check is cheap and enough for most events
            return
        elif isinstance(event, SessionOpened):
            self._last = LoopChanged("idle", reason=LOOP_ENDED_BY_RESUME)
            self._clear()
        elif isinstance(event, TurnStarted):
            if is_own:
                self._clear()
        elif self._agent and not is_own:
            return
        elif isinstance(event, ToolEnded):
            self.calls.append(LoopCall(event.name, event.status, hash((event.name, event.text))))
        elif isinstance(event, FilesChanged):
            self.has_file_changes = self.has_file_changes or bool(event.changes)

    def _clear(self) -> None:
        self.calls, self.has_file_changes = [], False


class StatePart(Protocol):
    """A part of the state. `EVENTS` are the events that change it."""

    EVENTS: ClassVar[frozenset[type]]

    def apply(self, envelope: Envelope) -> None: ...


class SessionState:
    """Everything the engine and front ends know about a session. Only `apply` changes it."""

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (
            UsageRecorded,
            AgentEnded,
            TurnStarted,
            ModeChanged,
            SessionOpened,
            TitleSet,
            InstructionsChanged,
            ModelChanged,
            RoleChanged,
            SystemPromptChanged,
            ToolsChanged,
            ServersToggled,
            ScheduleChanged,
        )
    )

    def __init__(self, session: str = "", read_log: ReadLog | None = None) -> None:
        self.session = session
        self.seq = -1
        self.cwd = ""
        self.model = ""
        self.title = ""
        self.mode: Mode = "edit_mode"
        self.role = DEFAULT_ROLE
        self.system_prompt: str | None = None
        self.tools: tuple[str, ...] | None = None
        self.enabled_servers: set[str] = set()
        self.instructions = ""
        self.config: dict[str, Any] = {}
        self.file_history = FileHistory()
        self.open_work = OpenWork()
        self.loop = LoopModeState()
        self._agent_loops: dict[str, LoopModeState] = {}
        self.conversation = MainConversation(read_log, self.file_history.mark)
        self.sub_agents = SubAgentThreads(read_log)
        self.board = TaskBoard()
        self.schedules: dict[str, SessionSchedule] = {}
        self.schedule_count = 0
        self.permissions = SessionPermissions()
        self.totals = SessionTotals()
        self._queued_prompts = PromptQueueState()
        self.skills = UsedSkills()
        self.call_ids = CallIds()
        self._parts: tuple[StatePart, ...] = (
            self.open_work,
            self.conversation,
            self.board,
            self._queued_prompts,
            self.permissions,
            self.skills,
            self.call_ids,
            self.loop,
        )
        self._parts_by_event: dict[type, tuple[Callable[[Envelope], None], ...]] = {}

    @classmethod
    def fold(cls, envelopes: Iterable[Envelope], session: str = "", read_log: ReadLog | None = None) -> "SessionState":
        """Fold the events. `read_log` reads them again; it is not needed if `envelopes` is a list or tuple."""
        in_memory = envelopes if isinstance(envelopes, list | tuple) else None
        read_again = read_log if in_memory is None else lambda: in_memory
        state = cls(session, read_log or read_again)
        with pause_collection(), state.sub_agents.load_late(read_again):
            for envelope in envelopes:
                state.apply(envelope)
        return state

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if event.durable:
            self.seq = max(self.seq, envelope.seq)
        self.session = self.session or envelope.session
        kind = type(event)
        parts = self._parts_by_event.get(kind)
        if parts is None:
            parts = self._parts_by_event[kind] = tuple(part.apply for part in self._parts if kind in part.EVENTS)
        for apply in parts:
            apply(envelope)
        if kind in FileHistory.EVENTS:
            self.conversation.record_file_changes(self.file_history.apply(envelope))
        if envelope.agent or kind in SubAgentThreads.EVENTS:
            self.sub_agents.apply(envelope)
        if envelope.agent and isinstance(event, LoopChanged):
            self.get_loop(envelope.agent)
        for loop in self._agent_loops.values():
            loop.apply(envelope)
        if kind in self.EVENTS:
            self._apply_own(envelope)

    def _apply_own(self, envelope: Envelope) -> None:
        event = envelope.event
        match event:
            case UsageRecorded():
                self.totals.add(event, envelope.agent)
            case AgentEnded():
                self._agent_loops.pop(event.id, None)
            case TurnStarted() | ModeChanged() if not envelope.agent:
                self.mode = event.mode
            case SessionOpened():
                self.cwd = event.cwd
                self.model = event.model
                self.instructions = event.instructions
                self.config = dict(event.config)
                self.role = event.role or DEFAULT_ROLE
            case TitleSet():
                self.title = event.title
            case InstructionsChanged():
                self.instructions = event.instructions
            case ModelChanged() if not envelope.agent:
                self.model = event.model
            case RoleChanged():
                self.role = event.role
            case SystemPromptChanged() if not envelope.agent:
                self.system_prompt = event.text
            case ToolsChanged() if not envelope.agent:
                self.tools = event.tools
            case ScheduleChanged():
                if event.is_on:
                    self.schedule_count += event.schedule.id not in self.schedules
                    self.schedules[event.schedule.id] = event.schedule
                else:
                    self.schedules.pop(event.schedule.id, None)
            case ServersToggled(names=names, enabled=enabled):
                self.enabled_servers = (self.enabled_servers - {*names}) | ({*names} if enabled else set[str]())
            case _:
                pass

    def get_loop(self, agent: str) -> LoopModeState:
        """The state of an agent's loop mode."""
        return self._agent_loops.setdefault(agent, LoopModeState(agent)) if agent else self.loop

    def get_thread(self, agent: str = "") -> Thread:
        return self.sub_agents.get_thread(agent) if agent else self.conversation.thread

    @property
    def open_threads(self) -> tuple[str, ...]:
        """The agents that have tool calls without a result."""
        threads = {"": self.conversation.thread, **self.sub_agents.threads}
        return tuple(name for name, thread in threads.items() if thread.open_calls)

    def build_history(self, agent: str = "") -> tuple[Message, ...]:
        """A copy of the messages to send to the model, valid for every provider."""
        return self.get_thread(agent).build_history()

    def list_collected(self, agent: str = "") -> tuple[CollectedItem, ...]:
        """The context (main agent only) and the tool results that an agent has collected."""
        added = () if agent else self.conversation.context_events
        context = (CollectedItem(item.source, item.content) for item in added)
        return (*context, *list_results(self.get_thread(agent).build_finished_history()))

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        return tuple(turn.to_record() for turn in self.conversation.turns)

    @property
    def last_reason(self) -> ExitReason | None:
        """How the latest turn ended; None if there is none or it has not ended."""
        turns = self.conversation.turns
        return turns[-1].reason if turns else None

    @property
    def files(self) -> tuple[CachedFile, ...]:
        return tuple(self.conversation.files.values())

    @property
    def queue(self) -> tuple[QueuedPrompt, ...]:
        return self._queued_prompts.prompts

    def list_changes_since(self, turn: str) -> tuple[RecordedChange, ...] | None:
        """The file changes since that turn started; None if there is no such turn."""
        past = self.conversation.timeline.find(turn)
        return None if past is None else self.file_history.list_since(past.before.change_count)

    def snapshot(self) -> Snapshot:
        conversation, totals = self.conversation, self.totals
        title = clip((conversation.turns[0].body if conversation.turns else "").strip().split("\n", 1)[0], 60)
        return Snapshot(
            session=self.session,
            seq=self.seq,
            cwd=self.cwd,
            model=self.model,
            title=self.title or title,
            agent_mode=self.mode,
            permission_mode=self.permissions.mode,
            executing=conversation.is_executing,
            messages=self.turns,
            queue=self.queue,
            sub_agents=tuple(self._describe_sub_agent(record) for record in self.sub_agents.records),
            context=tuple(conversation.context),
            custom_instructions=self.instructions,
            config=msgspec.to_builtins(self.config),
            files=self.files,
            todos=conversation.todos,
            usage=totals.usage,
            cost_usd=totals.cost_usd,
            usage_by_model={model: spent.usage for model, spent in totals.by_model.items()},
            usage_by_agent={agent: spent.usage for agent, spent in totals.by_agent.items()},
            spent_by_model=dict(totals.by_model),
            spent_by_agent=dict(totals.by_agent),
            context_tokens=conversation.tokens,
            context_limit=conversation.limit,
            message_count=len(self.build_history()) if conversation.turns else -1,
            role=self.role,
            tasks=tuple(self.board.tasks.values()),
            unread_messages=len(self.board.list_messages("")),
            used_skills={agent: tuple(names) for agent, names in self.skills.by_agent.items()},
            interactions=self.open_work.interactions,
            schedules=tuple(self.schedules.values()),
        )

    def _describe_sub_agent(self, record: SubAgentRecord) -> SubAgentRecord:
        mail = self.board.list_messages(record.id)
        record = msgspec.structs.replace(
            record,
            message_count=len(self.build_history(record.id)),
            unread=len(mail),
            urgent=sum(item.priority != "notify" for item in mail),
        )
        task = self.board.tasks.get(record.task_id)
        if task is None:
            return record
        return msgspec.structs.replace(
            record,
            state=task.state,
            state_changed_at=task.state_changed_at,
            summary=task.summary,
            artifact=task.artifacts[-1] if task.artifacts else "",
        )
