"""What a session has spent so far: all of it, by model and by agent.

The prompts of a session that wait, in the order in which they came.

Where loop mode stands, and what the calls of the round came to: nothing is kept of it while it is off.

What has begun and not ended: after a crash, what the dead process left open.

The state of a session: a fold over its events and nothing else.

Any prefix of any log folds, and at every point the history it gives is one that every provider accepts: each tool call
is followed by exactly one result, in the order of the calls.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from odin.core.client import LoopStatus, QueuedPrompt, Snapshot, SubAgentRecord, TurnRecord
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CachedFile,
    CallStatus,
    ContextAdded,
    Envelope,
    ExitReason,
    FilesChanged,
    InstructionsChanged,
    LoopChanged,
    Mode,
    ModelChanged,
    PermissionAnswered,
    PermissionAsked,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    QuestionsAnswered,
    QuestionsAsked,
    Rewound,
    SessionOpened,
    SpawnFinished,
    SpawnStarted,
    TitleSet,
    Todo,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.message import Message, Usage
from odin.core.policy import RuleAction
from odin.core.tool import CollectedItem
from odin.core.usage import UsageTotals
from odin.session.conversation import MainConversation, ReadLog
from odin.session.file_history import FileHistory, RecordedChange
from odin.session.history import results_of
from odin.session.permissions import Grants, SessionPermissions
from odin.session.thread import SubAgentThreads, Thread


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


class PromptQueueState:
    def __init__(self) -> None:
        self._prompts: dict[str, QueuedPrompt] = {}

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._prompts.values())

    def apply(self, envelope: Envelope) -> None:
        step = _QUEUE_HANDLERS.get(type(envelope.event))
        if step is not None:
            step(self, envelope.event, envelope)

    def _on_prompt_queued(self, event: PromptQueued, envelope: Envelope) -> None:
        self._prompts[event.id] = _queued_prompt_of(event, envelope.ts)

    def _on_prompt_changed(self, event: PromptChanged, envelope: Envelope) -> None:
        if (known := self._prompts.get(event.id)) is not None:
            self._prompts[event.id] = _queued_prompt_of(event, known.timestamp)

    def _on_prompt_removed(self, event: PromptDropped | PromptInjected, envelope: Envelope) -> None:
        self._prompts.pop(event.id, None)

    def _on_turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        if not envelope.agent:
            self._prompts.pop(event.id, None)


_QUEUE_HANDLERS: dict[type[AnyEvent], Callable[[PromptQueueState, Any, Envelope], None]] = {
    PromptQueued: PromptQueueState._on_prompt_queued,
    PromptChanged: PromptQueueState._on_prompt_changed,
    PromptDropped: PromptQueueState._on_prompt_removed,
    PromptInjected: PromptQueueState._on_prompt_removed,
    TurnStarted: PromptQueueState._on_turn_started,
}


def _queued_prompt_of(event: PromptQueued | PromptChanged, since: float) -> QueuedPrompt:
    """People see and change what was typed; what it stands for is kept beside it."""
    read = event.text if event.display_text else ""
    return QueuedPrompt(
        event.id, event.display_text or event.text, event.mode, since, event.delivery, read, event.attachments
    )


LOOP_ENDED_BY_RESUME = "The session ended while it was on, and it does not go on by itself."

_LOOP_OFF = LoopChanged("idle")


class LoopCall(Struct, frozen=True):
    """One call. Two with the same `digest` brought the same."""

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
    """`calls` and `changed` are of all agents, since the main agent's turn began or loop mode was switched on."""

    def __init__(self) -> None:
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
        if isinstance(event, LoopChanged):
            self._last = event
            if not self.is_active:
                self._clear()
        elif self._last is _LOOP_OFF or not self.is_active:
            return
        elif isinstance(event, SessionOpened):
            self._last = LoopChanged("idle", reason=LOOP_ENDED_BY_RESUME)
            self._clear()
        elif isinstance(event, TurnStarted):
            if not envelope.agent:
                self._clear()
        elif isinstance(event, ToolEnded):
            self.calls.append(LoopCall(event.name, event.status, hash((event.name, event.text))))
        elif isinstance(event, FilesChanged):
            self.has_file_changes = self.has_file_changes or bool(event.changes)

    def _clear(self) -> None:
        self.calls, self.has_file_changes = [], False


class OpenWork:
    """`turns` and `agents` map the name of an agent to what it is doing, the others an id to how it began."""

    def __init__(self) -> None:
        self.turns: dict[str, str] = {}
        self.agents: dict[str, AgentStarted] = {}
        self.questions: dict[str, tuple[PermissionAsked | QuestionsAsked, str]] = {}
        self.spawns: dict[str, tuple[SpawnStarted, str]] = {}

    def __bool__(self) -> bool:
        return bool(self.turns or self.agents or self.questions or self.spawns)

    def apply(self, event: AnyEvent, agent: str) -> None:
        step = _OPEN_WORK_HANDLERS.get(type(event))
        if step is not None:
            step(self, event, agent)

    def _on_turn_started(self, event: TurnStarted, agent: str) -> None:
        self.turns[agent] = event.id

    def _on_turn_ended(self, event: TurnEnded, agent: str) -> None:
        self.turns.pop(agent, None)

    def _on_agent_started(self, event: AgentStarted, agent: str) -> None:
        self.agents[event.id] = event

    def _on_agent_ended(self, event: AgentEnded, agent: str) -> None:
        self.agents.pop(event.id, None)

    def _on_asked(self, event: PermissionAsked | QuestionsAsked, agent: str) -> None:
        self.questions[event.ask_id] = event, agent

    def _on_answered(self, event: PermissionAnswered | QuestionsAnswered, agent: str) -> None:
        self.questions.pop(event.ask_id, None)

    def _on_spawn_started(self, event: SpawnStarted, agent: str) -> None:
        self.spawns[event.id] = event, agent

    def _on_spawn_finished(self, event: SpawnFinished, agent: str) -> None:
        self.spawns.pop(event.id, None)


_OPEN_WORK_HANDLERS: dict[type[AnyEvent], Callable[[OpenWork, Any, str], None]] = {
    TurnStarted: OpenWork._on_turn_started,
    TurnEnded: OpenWork._on_turn_ended,
    AgentStarted: OpenWork._on_agent_started,
    AgentEnded: OpenWork._on_agent_ended,
    PermissionAsked: OpenWork._on_asked,
    PermissionAnswered: OpenWork._on_answered,
    QuestionsAsked: OpenWork._on_asked,
    QuestionsAnswered: OpenWork._on_answered,
    SpawnStarted: OpenWork._on_spawn_started,
    SpawnFinished: OpenWork._on_spawn_finished,
}


class SessionState:
    """Everything a front end or the engine may know of a session. Only `apply` changes it.

    What belongs together is kept together, in a part of its own that knows what each event means to it.
    """

    def __init__(self, session: str = "", read_log: ReadLog | None = None) -> None:
        self.session = session
        self.seq = -1
        self.cwd = ""
        self.model = ""
        self.title = ""
        self.mode: Mode = "edit_mode"
        self.instructions = ""
        self.config: dict[str, Any] = {}
        self.file_history = FileHistory()
        self.open_work = OpenWork()
        self.loop = LoopModeState()
        self._conversation = MainConversation(read_log, self.file_history.mark)
        self._sub_agents = SubAgentThreads()
        self._queued_prompts = PromptQueueState()
        self._permissions = SessionPermissions()
        self._totals = SessionTotals()

    @classmethod
    def fold(cls, envelopes: Iterable[Envelope], session: str = "", read_log: ReadLog | None = None) -> "SessionState":
        """`past` reads the same log again; events that are all in memory are their own past."""
        kept = envelopes if isinstance(envelopes, list | tuple) else None
        state = cls(session, read_log or (None if kept is None else lambda: kept))
        for envelope in envelopes:
            state.apply(envelope)
        return state

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if event.durable:
            self.seq = max(self.seq, envelope.seq)
        self.session = self.session or envelope.session
        self.open_work.apply(event, envelope.agent)
        self._conversation.apply(envelope)
        self._conversation.record_file_changes(self.file_history.apply(envelope))
        self._sub_agents.apply(envelope)
        self._queued_prompts.apply(envelope)
        self._permissions.apply(event)
        self.loop.apply(envelope)
        step = _STATE_HANDLERS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    # The conversation, and the threads of all agents.

    def thread_of(self, agent: str = "") -> Thread:
        return self._sub_agents.thread_of(agent) if agent else self._conversation.thread

    @property
    def open_threads(self) -> tuple[str, ...]:
        """The agents that have called something and have no result yet."""
        threads = {"": self._conversation.thread, **self._sub_agents.threads}
        return tuple(name for name, thread in threads.items() if thread.open_calls)

    def build_history(self, agent: str = "") -> tuple[Message, ...]:
        """The messages to send to the model: a copy, valid for every provider."""
        return self.thread_of(agent).build_history()

    def list_collected(self, agent: str = "") -> tuple[CollectedItem, ...]:
        """What an agent has gathered: the pieces of context, which are the main agent's, and its results so far."""
        added = () if agent else self._conversation.context_events
        context = (CollectedItem(item.source, item.content) for item in added)
        return (*context, *results_of(self.thread_of(agent).build_finished_history()))

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        return tuple(turn.to_record() for turn in self._conversation.turns)

    @property
    def turn_count(self) -> int:
        return len(self._conversation.turns)

    @property
    def is_executing(self) -> bool:
        return self._conversation.is_executing

    @property
    def last_reason(self) -> ExitReason | None:
        """How the newest turn ended; None when there is none or it did not end."""
        turns = self._conversation.turns
        return turns[-1].reason if turns else None

    @property
    def redoable_rewind(self) -> Rewound | None:
        """The rewind that a redo would take back."""
        return self._conversation.redoable_rewind

    @property
    def unsent_context(self) -> tuple[ContextAdded, ...]:
        """Context that came after the last prompt, so that no message holds it yet."""
        return self._conversation.unsent_context

    @property
    def todos(self) -> tuple[Todo, ...]:
        return self._conversation.todos

    @property
    def files(self) -> tuple[CachedFile, ...]:
        return tuple(self._conversation.files.values())

    @property
    def context_tokens(self) -> int:
        return self._conversation.tokens

    @property
    def is_context_measured(self) -> bool:
        """Whether the model itself told the size of the conversation as it is now."""
        return self._conversation.is_measured

    def list_changes_since(self, turn: str) -> tuple[RecordedChange, ...] | None:
        """What was done to files since that prompt began; None when there is no such prompt."""
        found = self._conversation.find_turn(turn)
        return None if found is None else self.file_history.list_since(found.change_count)

    # What waits, who works, what is allowed and what was spent.

    @property
    def queue(self) -> tuple[QueuedPrompt, ...]:
        return self._queued_prompts.prompts

    @property
    def agents(self) -> tuple[SubAgentRecord, ...]:
        return self._sub_agents.records

    @property
    def agent_count(self) -> int:
        return self._sub_agents.agent_count

    @property
    def spawn_count(self) -> int:
        return self._sub_agents.spawn_count

    def get_grants(self, root: str) -> Grants:
        """What a person allowed in this session, as far as it holds for work in that project."""
        return self._permissions.get_grants(root)

    @property
    def rules(self) -> tuple[tuple[str, RuleAction], ...]:
        return self._permissions.rules

    @property
    def permission_mode(self) -> str:
        return self._permissions.mode

    @property
    def chosen_permission_mode(self) -> str:
        """What a person chose in this session; "" when it is what the configuration says."""
        return self._permissions.chosen_mode

    @property
    def budget_usd(self) -> float | None:
        return self._permissions.budget_usd

    @property
    def usage(self) -> Usage:
        return self._totals.usage

    @property
    def cost_usd(self) -> float:
        return self._totals.cost_usd

    def snapshot(self) -> Snapshot:
        told, totals = self._conversation, self._totals
        return Snapshot(
            session=self.session,
            seq=self.seq,
            cwd=self.cwd,
            model=self.model,
            title=self.title or _first_line_of(told.turns[0].body if told.turns else ""),
            agent_mode=self.mode,
            permission_mode=self.permission_mode,
            executing=told.is_executing,
            messages=self.turns,
            queue=self.queue,
            sub_agents=self.agents,
            context=tuple(told.context),
            custom_instructions=self.instructions,
            config=msgspec.to_builtins(self.config),
            files=self.files,
            todos=told.todos,
            usage=totals.usage,
            cost_usd=totals.cost_usd,
            usage_by_model={model: spent.usage for model, spent in totals.by_model.items()},
            usage_by_agent={agent: spent.usage for agent, spent in totals.by_agent.items()},
            spent_by_model=dict(totals.by_model),
            spent_by_agent=dict(totals.by_agent),
            context_tokens=told.tokens,
            context_limit=told.limit,
            message_count=len(self.build_history()) if told.turns else -1,
        )

    # One small step per kind of event that concerns the session as a whole.

    def _on_session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self.cwd = event.cwd
        self.model = event.model
        self.instructions = event.instructions
        self.config = dict(event.config)

    def _on_turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        if not envelope.agent:
            self.mode = event.mode

    def _on_usage_recorded(self, event: UsageRecorded, envelope: Envelope) -> None:
        self._totals.add(event, envelope.agent)

    def _on_title_set(self, event: TitleSet, envelope: Envelope) -> None:
        self.title = event.title

    def _on_instructions_changed(self, event: InstructionsChanged, envelope: Envelope) -> None:
        self.instructions = event.instructions

    def _on_model_changed(self, event: ModelChanged, envelope: Envelope) -> None:
        self.model = event.model


_STATE_HANDLERS: dict[type[AnyEvent], Callable[[SessionState, Any, Envelope], None]] = {
    SessionOpened: SessionState._on_session_opened,
    TurnStarted: SessionState._on_turn_started,
    UsageRecorded: SessionState._on_usage_recorded,
    TitleSet: SessionState._on_title_set,
    InstructionsChanged: SessionState._on_instructions_changed,
    ModelChanged: SessionState._on_model_changed,
}


def _first_line_of(text: str, limit: int = 60) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"
