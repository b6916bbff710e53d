"""The state of a session: a fold over its events and nothing else.

Any prefix of any log folds, and at every point the history it gives is one that every provider accepts: each tool call
is followed by exactly one result, in the order of the calls.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from odin.core.client import ContextItem, QueuedPrompt, Snapshot, SubAgentRecord, ToolUse, TurnRecord
from odin.core.errors import PromptBlocked
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CachedFile,
    ContextAdded,
    ContextSummarized,
    Envelope,
    FileCached,
    FileChange,
    FilesLeft,
    FilesSaved,
    Mode,
    ModelChanged,
    Noted,
    PermissionModeChanged,
    PromptDropped,
    PromptQueued,
    Redone,
    Replied,
    ReplyDiscarded,
    Rewound,
    RuleAdded,
    RuleRemoved,
    SessionOpened,
    SpawnStarted,
    TitleSet,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Updated,
    UsageRecorded,
)
from odin.core.message import Message, Usage
from odin.core.rule import Action
from odin.core.tool import Collected
from odin.session.changes import Change, FileHistory
from odin.session.summary import results_of
from odin.session.thread import Thread
from odin.session.turns import Moment, PastTurn, Undone

TAKEN_BACK = "The user took file changes back with undo. These files are as they were before; read them again first:"
PUT_BACK = "The user put file changes back with redo. Read these files again before you rely on them:"
_NAMED = 20


class State:
    """Everything a front end or the engine may know of a session. Only `apply` changes it."""

    def __init__(self, session: str = "") -> None:
        self.session = session
        self.seq = -1
        self.cwd = ""
        self.model = ""
        self.title = ""
        self.mode: Mode = "edit_mode"
        self.permission_mode = "default"
        self.instructions = ""
        self.config: dict[str, Any] = {}
        self.usage = Usage()
        self.cost_usd = 0.0
        self.context_tokens = 0
        self.context_limit = 0
        self.executing = False
        self.todos: tuple[Todo, ...] = ()
        self.agent_count = 0
        self.spawn_count = 0
        self.rules: tuple[tuple[str, Action], ...] = ()
        self.changes = FileHistory()
        self._undone: list[Undone] = []
        self._threads: dict[str, Thread] = {}
        self._turns: list[PastTurn] = []
        self._queue: dict[str, QueuedPrompt] = {}
        self._agents: dict[str, SubAgentRecord] = {}
        self._context: list[ContextItem] = []
        self._files: dict[str, CachedFile] = {}
        self._by_model: dict[str, Usage] = {}
        self._by_agent: dict[str, Usage] = {}

    @classmethod
    def fold(cls, envelopes: Iterable[Envelope], session: str = "") -> "State":
        state = cls(session)
        for envelope in envelopes:
            state.apply(envelope)
        return state

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if event.durable:
            self.seq = max(self.seq, envelope.seq)
        self.session = self.session or envelope.session
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    def thread(self, agent: str = "") -> Thread:
        return self._threads.setdefault(agent, Thread())

    def history(self, agent: str = "") -> tuple[Message, ...]:
        """The messages to send to the model: a copy, valid for every provider."""
        return self.thread(agent).history()

    def collected(self, agent: str = "") -> tuple[Collected, ...]:
        """What an agent has gathered: the pieces of context, which are the main agent's, and its results so far."""
        context = () if agent else tuple(Collected(_added(item).source, item.content) for item in self._context)
        return (*context, *results_of(self.thread(agent).finished()))

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        return tuple(turn.record() for turn in self._turns)

    @property
    def turn_count(self) -> int:
        return len(self._turns)

    @property
    def undone(self) -> Rewound | None:
        """The rewind that a redo would take back."""
        return self._undone[-1].event if self._undone else None

    @property
    def untold(self) -> tuple[ContextAdded, ...]:
        """Context that came after the last prompt, so that no message holds it yet."""
        told = len(self._turns[-1].moment.context) if self._turns else 0
        return tuple(ContextAdded(item.content, item.path, item.command) for item in self._context[told:])

    def changes_since(self, turn: str) -> tuple[Change, ...] | None:
        """What was done to files since that prompt began; None when there is no such prompt."""
        at = self._position(turn)
        return None if at is None else self.changes.since(self._turns[at].changes)

    def _position(self, turn: str) -> int | None:
        found = [number for number, item in enumerate(self._turns) if item.id == turn]
        return found[-1] if found else None

    @property
    def queue(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._queue.values())

    @property
    def files(self) -> tuple[CachedFile, ...]:
        return tuple(self._files.values())

    def snapshot(self) -> Snapshot:
        return Snapshot(
            session=self.session,
            seq=self.seq,
            cwd=self.cwd,
            model=self.model,
            title=self.title or _first_line(self._turns[0].body if self._turns else ""),
            agent_mode=self.mode,
            permission_mode=self.permission_mode,
            executing=self.executing,
            messages=self.turns,
            queue=self.queue,
            sub_agents=tuple(self._agents.values()),
            context=tuple(self._context),
            custom_instructions=self.instructions,
            config=msgspec.to_builtins(self.config),
            files=self.files,
            todos=self.todos,
            usage=self.usage,
            cost_usd=self.cost_usd,
            usage_by_model=dict(self._by_model),
            usage_by_agent=dict(self._by_agent),
            context_tokens=self.context_tokens,
            context_limit=self.context_limit,
            message_count=len(self.history()) if self._turns else -1,
        )

    # One small step per kind of event.

    def _session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self.cwd = event.cwd
        self.model = event.model
        self.instructions = event.instructions
        self.config = dict(event.config)
        self.executing = False
        self._agents.clear()
        self._queue.clear()

    def _turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        if envelope.agent:
            self.thread(envelope.agent).start(event)
            return
        turn = PastTurn(event, envelope.ts, self._moment(), self.changes.mark())
        self.thread().start(event)
        self._undone.clear()
        self._queue.pop(event.id, None)
        self.executing = True
        self.mode = event.mode
        self._turns.append(turn)

    def _turn_ended(self, event: TurnEnded, envelope: Envelope) -> None:
        self.thread(envelope.agent)._close()
        if envelope.agent:
            return
        self.executing = False
        if self._turns and event.error_kind == PromptBlocked.__name__:
            self._return_to(self._turns.pop().moment)
        elif self._turns:
            turn = self._turns[-1]
            turn.answer = event.text
            turn.reason = event.reason
            turn.updates.clear()

    def _replied(self, event: Replied, envelope: Envelope) -> None:
        self.thread(envelope.agent).reply(event.message)

    def _tool_started(self, event: ToolStarted, envelope: Envelope) -> None:
        self.thread(envelope.agent).begin(event.call_id)

    def _tool_ended(self, event: ToolEnded, envelope: Envelope) -> None:
        self.thread(envelope.agent).result(event)
        if self._turns and not envelope.agent:
            self._turns[-1].tools.append(ToolUse(event.name, event.files, event.note))

    def _noted(self, event: Noted, envelope: Envelope) -> None:
        self.thread(envelope.agent).note(event.text)

    def _reply_discarded(self, event: ReplyDiscarded, envelope: Envelope) -> None:
        self.thread(envelope.agent).seal()

    def _usage_recorded(self, event: UsageRecorded, envelope: Envelope) -> None:
        self.usage += event.usage
        self.cost_usd += event.cost_usd
        self._by_model[event.model] = self._by_model.get(event.model, Usage()) + event.usage
        self._by_agent[envelope.agent] = self._by_agent.get(envelope.agent, Usage()) + event.usage
        if event.purpose == "planner" and not envelope.agent:
            self.context_tokens = event.usage.total
            self.context_limit = event.context

    def _todos_changed(self, event: TodosChanged, envelope: Envelope) -> None:
        if envelope.agent:
            known = self._agents.get(envelope.agent)
            if known is not None:
                self._agents[envelope.agent] = SubAgentRecord(known.id, known.task, known.mode, event.todos)
            return
        self.todos = event.todos
        if self._turns:
            self._turns[-1].todos = event.todos

    def _updated(self, event: Updated, envelope: Envelope) -> None:
        if self._turns and self.executing and not envelope.agent:
            self._turns[-1].updates.append(event.text)

    def _prompt_queued(self, event: PromptQueued, envelope: Envelope) -> None:
        self._queue[event.id] = QueuedPrompt(event.id, event.text, event.mode, envelope.ts)

    def _prompt_dropped(self, event: PromptDropped, envelope: Envelope) -> None:
        self._queue.pop(event.id, None)

    def _context_added(self, event: ContextAdded, envelope: Envelope) -> None:
        self._context.append(ContextItem(event.content, event.path, event.command))

    def _context_summarized(self, event: ContextSummarized, envelope: Envelope) -> None:
        notes = () if envelope.agent else tuple(_added(item).note for item in self._context)
        self.thread(envelope.agent).summarise(event.calls, notes)
        if not envelope.agent:
            self._context = [ContextItem(event.text)]

    def _file_cached(self, event: FileCached, envelope: Envelope) -> None:
        """What the main agent knows; a sub-agent's knowledge ends with it."""
        if not envelope.agent:
            self._files[event.file.path] = event.file

    def _files_saved(self, event: FilesSaved, envelope: Envelope) -> None:
        self.changes.saved(event)

    def _files_left(self, event: FilesLeft, envelope: Envelope) -> None:
        self.changes.left(event)
        if self._turns:
            self._turns[-1].changed.update(change.before.path for change in event.changes)

    def _moment(self) -> Moment:
        return Moment(self.thread().mark(), self.todos, tuple(self._context), self.context_tokens)

    def _return_to(self, moment: Moment, more: tuple[ContextItem, ...] = ()) -> None:
        self.thread().back(moment.mark)
        self.todos, self.context_tokens = moment.todos, moment.context_tokens
        self._context = [*moment.context, *more]

    def _rewound(self, event: Rewound, envelope: Envelope) -> None:
        """Nothing is forgotten until the next prompt: a redo brings it back. Of files the model now knows nothing."""
        self.changes.went(event.id, event.changes)
        self._files.clear()
        at = self._position(event.turn)
        now, turns = self._moment(), tuple(self._turns)
        if event.chat and at is not None:
            self._return_to(turns[at].moment)
            del self._turns[at:]
            self.executing = False
        else:
            self._tell(TAKEN_BACK, event.changes)
        self._undone.append(Undone(event, now if event.chat else None, turns, len(self._context)))

    def _redone(self, event: Redone, envelope: Envelope) -> None:
        self.changes.went(event.id, event.changes)
        self._files.clear()
        undone = self._undone.pop() if self._undone else None
        if undone is None or undone.moment is None:
            self._tell(PUT_BACK, event.changes)
            return
        self._return_to(undone.moment, tuple(self._context[undone.context :]))
        self._turns = list(undone.turns)

    def _tell(self, text: str, changes: tuple[FileChange, ...]) -> None:
        """The conversation goes on as if nothing had happened, so the model must hear of it."""
        if changes and self._turns:
            names = [change.before.path for change in changes if change.after.kind != "folder"]
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            self.thread().note(f"{text} {', '.join(names[:_NAMED])}{more}")

    def _agent_started(self, event: AgentStarted, envelope: Envelope) -> None:
        self.agent_count += 1
        self._agents[event.id] = SubAgentRecord(event.id, event.task, event.mode)

    def _agent_ended(self, event: AgentEnded, envelope: Envelope) -> None:
        self._agents.pop(event.id, None)

    def _spawn_started(self, event: SpawnStarted, envelope: Envelope) -> None:
        number = event.id.rpartition("-")[2]
        self.spawn_count = max(self.spawn_count, int(number) if number.isdecimal() else 0)

    def _rule_added(self, event: RuleAdded, envelope: Envelope) -> None:
        """What a person allowed for this session stays allowed until it is taken back, also after a rewind."""
        if event.scope == "session":
            self.rules = (*self._rules_without(event), (event.text, event.action))

    def _rule_removed(self, event: RuleRemoved, envelope: Envelope) -> None:
        if event.scope == "session":
            self.rules = self._rules_without(event)

    def _rules_without(self, event: RuleAdded | RuleRemoved) -> tuple[tuple[str, Action], ...]:
        return tuple(rule for rule in self.rules if rule != (event.text, event.action))

    def _title_set(self, event: TitleSet, envelope: Envelope) -> None:
        self.title = event.title

    def _model_changed(self, event: ModelChanged, envelope: Envelope) -> None:
        self.model = event.model

    def _permission_mode_changed(self, event: PermissionModeChanged, envelope: Envelope) -> None:
        self.permission_mode = event.mode


_STEPS: dict[type[AnyEvent], Callable[[State, Any, Envelope], None]] = {
    SessionOpened: State._session_opened,
    TurnStarted: State._turn_started,
    TurnEnded: State._turn_ended,
    Replied: State._replied,
    ToolStarted: State._tool_started,
    ToolEnded: State._tool_ended,
    Noted: State._noted,
    ReplyDiscarded: State._reply_discarded,
    UsageRecorded: State._usage_recorded,
    TodosChanged: State._todos_changed,
    Updated: State._updated,
    PromptQueued: State._prompt_queued,
    PromptDropped: State._prompt_dropped,
    ContextAdded: State._context_added,
    ContextSummarized: State._context_summarized,
    FileCached: State._file_cached,
    FilesSaved: State._files_saved,
    FilesLeft: State._files_left,
    Rewound: State._rewound,
    Redone: State._redone,
    AgentStarted: State._agent_started,
    AgentEnded: State._agent_ended,
    SpawnStarted: State._spawn_started,
    RuleAdded: State._rule_added,
    RuleRemoved: State._rule_removed,
    TitleSet: State._title_set,
    ModelChanged: State._model_changed,
    PermissionModeChanged: State._permission_mode_changed,
}


def _added(item: ContextItem) -> ContextAdded:
    return ContextAdded(item.content, item.path, item.command)


def _first_line(text: str, limit: int = 60) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"
