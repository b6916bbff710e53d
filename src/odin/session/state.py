"""The state of a session: a fold over its events and nothing else.

Any prefix of any log folds, and at every point the history it gives is one that every provider accepts: each tool call
is followed by exactly one result, in the order of the calls.
"""

from collections.abc import Callable, Iterable
from sys import intern
from typing import Any

import msgspec

from odin.core.client import ContextItem, QueuedPrompt, Snapshot, SubAgentRecord, ToolUse, TurnRecord
from odin.core.errors import PromptBlocked
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    BudgetSet,
    CachedFile,
    CallDiscarded,
    CallSpeculated,
    Compacted,
    ContextAdded,
    ContextSummarized,
    Envelope,
    ExitReason,
    FileCached,
    FileChange,
    FilesLeft,
    FilesSaved,
    InstructionsChanged,
    MessageRemoved,
    Mode,
    ModelChanged,
    Noted,
    PermissionModeChanged,
    PromptChanged,
    PromptDropped,
    PromptJoined,
    PromptQueued,
    Redone,
    Replied,
    ReplyDiscarded,
    ResultsPruned,
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
from odin.core.some import some_of
from odin.core.spent import Spent
from odin.core.tool import Collected
from odin.session.files.changes import Change, FileHistory
from odin.session.grants import Grants
from odin.session.shrink import in_view
from odin.session.summary import results_of
from odin.session.thread import Thread
from odin.session.turns import Moment, PastTurn, Undone
from odin.session.unfinished import Unfinished

TAKEN_BACK = "The user took file changes back with undo. These files are as they were before; read them again first:"
PUT_BACK = "The user put file changes back with redo. Read these files again before you rely on them:"
_NAMED = 20

Past = Callable[[], Iterable[Envelope]]
"""Reads the log again from its beginning."""


class State:
    """Everything a front end or the engine may know of a session. Only `apply` changes it.

    Messages that a summary has replaced are not kept. `past` is how they are found again when a rewind goes back
    behind the summary.
    """

    def __init__(self, session: str = "", past: Past | None = None) -> None:
        self.session = session
        self._past = past
        self.seq = -1
        self.cwd = ""
        self.root = ""
        self.model = ""
        self.title = ""
        self.mode: Mode = "edit_mode"
        self.permission_mode = "default"
        self.permission_chosen = ""
        """What a person chose in this session; "" when it is what the configuration says."""
        self.instructions = ""
        self.config: dict[str, Any] = {}
        self.usage = Usage()
        self.cost_usd = 0.0
        self.budget_usd: float | None = None
        self.context_tokens = 0
        self.context_limit = 0
        self.context_measured = False
        self.executing = False
        self.todos: tuple[Todo, ...] = ()
        self.agent_count = 0
        self.spawn_count = 0
        self.rules: tuple[tuple[str, Action], ...] = ()
        self.changes = FileHistory()
        self.unfinished = Unfinished()
        self._undone: list[Undone] = []
        self._threads: dict[str, Thread] = {}
        self._turns: list[PastTurn] = []
        self._queue: dict[str, QueuedPrompt] = {}
        self._agents: dict[str, SubAgentRecord] = {}
        self._context: list[ContextItem] = []
        self._files: dict[str, CachedFile] = {}
        self._by_model: dict[str, Spent] = {}
        self._by_agent: dict[str, Spent] = {}

    @classmethod
    def fold(cls, envelopes: Iterable[Envelope], session: str = "", past: Past | None = None) -> "State":
        """`past` reads the same log again; events that are all in memory are their own past."""
        kept = envelopes if isinstance(envelopes, list | tuple) else None
        state = cls(session, past or (None if kept is None else lambda: kept))
        for envelope in envelopes:
            state.apply(envelope)
        return state

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if event.durable:
            self.seq = max(self.seq, envelope.seq)
        self.session = self.session or envelope.session
        if type(event) in _SHORTENING and not envelope.agent:
            self.context_measured = False
        self.unfinished.apply(event, envelope.agent)
        if envelope.agent:
            self.agent_count = max(self.agent_count, _number(envelope.agent))
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    def thread(self, agent: str = "") -> Thread:
        found = self._threads.get(agent)
        if found is None:
            found = self._threads[agent] = Thread()
        return found

    @property
    def open_threads(self) -> tuple[str, ...]:
        """The agents that have called something and have no result yet."""
        return tuple(name for name, thread in self._threads.items() if thread.open_calls)

    def grants(self, root: str) -> Grants:
        """What a person allowed in this session, as far as it holds for work in that project."""
        had = Grants(self.rules, self.permission_chosen, self.budget_usd)
        return had if root == self.root else had.elsewhere()

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
        told = self._turns[-1].told if self._turns else 0
        return tuple(ContextAdded(item.content, item.path, item.command) for item in self._context[told:])

    @property
    def last_reason(self) -> ExitReason | None:
        """How the newest turn ended; None when there is none or it did not end."""
        return self._turns[-1].reason if self._turns else None

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
    def agents(self) -> tuple[SubAgentRecord, ...]:
        return tuple(self._agents.values())

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
            usage_by_model={model: spent.usage for model, spent in self._by_model.items()},
            usage_by_agent={agent: spent.usage for agent, spent in self._by_agent.items()},
            spent_by_model=dict(self._by_model),
            spent_by_agent=dict(self._by_agent),
            context_tokens=self.context_tokens,
            context_limit=self.context_limit,
            message_count=len(self.history()) if self._turns else -1,
        )

    # One small step per kind of event.

    def _session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        left = self.grants(event.root)
        self.rules, self.permission_chosen, self.budget_usd = left.rules, left.permission, left.budget_usd
        self.root = event.root
        self.cwd = event.cwd
        self.model = event.model
        self.instructions = event.instructions
        self.config = dict(event.config)
        self.executing = False
        self._agents.clear()
        if self.permission_chosen == "bypassPermissions":
            self.permission_chosen = ""
        usual = str(event.config.get("permission_mode") or "default")
        self.permission_mode = event.permission_mode or self.permission_chosen or usual

    def _turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        if envelope.agent:
            self.thread(envelope.agent).start(event)
            return
        turn = PastTurn(event, envelope.ts, self._moment(envelope.seq), self.changes.mark())
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
        turn = self._turns[-1] if self._turns else None
        if turn is None or turn.id != event.id:  # a rewind has taken it back, or its beginning was lost
            return
        if event.error_kind == PromptBlocked.__name__:
            self._return_to(self._turns.pop().moment)
        else:
            turn.end(event.text, event.reason)

    def _replied(self, event: Replied, envelope: Envelope) -> None:
        self.thread(envelope.agent).reply(event.message)

    def _tool_started(self, event: ToolStarted, envelope: Envelope) -> None:
        self.thread(envelope.agent).begin(event.call_id)
        self._changed(self.changes.counts(envelope.agent, event.call_id))

    def _tool_ended(self, event: ToolEnded, envelope: Envelope) -> None:
        self.thread(envelope.agent).result(event)
        if self._turns and not envelope.agent:
            self._turns[-1].used(ToolUse(intern(event.name), event.files, event.note))

    def _noted(self, event: Noted, envelope: Envelope) -> None:
        self.thread(envelope.agent).note(event.text)
        if self._turns and not envelope.agent:
            self._turns[-1].told += sum(item.note in event.text for item in self.untold)

    def _reply_discarded(self, event: ReplyDiscarded, envelope: Envelope) -> None:
        self.thread(envelope.agent).seal()

    def _usage_recorded(self, event: UsageRecorded, envelope: Envelope) -> None:
        self.usage += event.usage
        self.cost_usd += event.cost_usd
        spent = Spent.on(event)
        self._by_model[event.model] = self._by_model.get(event.model, Spent()) + spent
        self._by_agent[envelope.agent] = self._by_agent.get(envelope.agent, Spent()) + spent
        if event.purpose == "planner" and not envelope.agent:
            self.context_tokens = event.usage.total
            self.context_limit = event.context
            self.context_measured = True

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
            self._turns[-1].told_of(event.text)

    def _prompt_queued(self, event: PromptQueued, envelope: Envelope) -> None:
        self._queue[event.id] = QueuedPrompt(event.id, event.text, event.mode, envelope.ts, event.lane)

    def _prompt_changed(self, event: PromptChanged, envelope: Envelope) -> None:
        if (known := self._queue.get(event.id)) is not None:
            self._queue[event.id] = QueuedPrompt(event.id, event.text, event.mode, known.timestamp, event.lane)

    def _prompt_joined(self, event: PromptJoined, envelope: Envelope) -> None:
        self._queue.pop(event.id, None)
        self.thread(envelope.agent).join(event.text)

    def _message_removed(self, event: MessageRemoved, envelope: Envelope) -> None:
        self.thread(envelope.agent).remove_last()

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
        self.changes.saved(event, envelope.agent, envelope.ts)

    def _files_left(self, event: FilesLeft, envelope: Envelope) -> None:
        self._changed(self.changes.left(event, envelope.agent))

    def _changed(self, changes: tuple[FileChange, ...]) -> None:
        if self._turns and changes:
            self._turns[-1].wrote(change.before.path for change in changes)

    def _call_speculated(self, event: CallSpeculated, envelope: Envelope) -> None:
        self.changes.speculated(event, envelope.agent, envelope.seq)

    def _call_discarded(self, event: CallDiscarded, envelope: Envelope) -> None:
        self.changes.discarded(event, envelope.agent)

    def _results_pruned(self, event: ResultsPruned, envelope: Envelope) -> None:
        self.thread(envelope.agent).prune(event)
        self._out_of_view(envelope.agent)

    def _compacted(self, event: Compacted, envelope: Envelope) -> None:
        self.thread(envelope.agent).compact(event)
        self._out_of_view(envelope.agent)
        if not envelope.agent:
            self.context_tokens = event.tokens_after

    def _out_of_view(self, agent: str) -> None:
        """What the model was shown and no longer is must be read again, also after a resume."""
        if not agent and self._files:
            view = in_view(self.thread().finished(), self._files)
            self._files = {path: file for path, file in self._files.items() if path in view}

    def _moment(self, seq: int) -> Moment:
        return Moment(self.thread().mark(), seq, self.todos, tuple(self._context), self.context_tokens)

    def _return_to(self, moment: Moment, more: tuple[ContextItem, ...] = ()) -> None:
        if not self.thread().back(moment.mark):
            self._recall(moment.seq)
        self._as_in(moment, more)

    def _as_in(self, moment: Moment, more: tuple[ContextItem, ...] = ()) -> None:
        self.todos, self.context_tokens = moment.todos, moment.context_tokens
        self._context = [*moment.context, *more]

    def _recall(self, seq: int) -> None:
        """The conversation before this event, from the log. Without one nothing is left of it."""
        before = (envelope for envelope in (self._past() if self._past else ()) if envelope.seq < seq)
        thread = State.fold(before, self.session, self._past).thread()
        thread.lineage = self.thread().lineage + 1
        self._threads[""] = thread

    def _rewound(self, event: Rewound, envelope: Envelope) -> None:
        """Nothing is forgotten until the next prompt: a redo brings it back. Of files the model now knows nothing."""
        self.changes.went(event.id, event.changes)
        self._files.clear()
        at = self._position(event.turn)
        now, turns = self._moment(envelope.seq), tuple(self._turns)
        thread = self.thread().copy() if event.chat else None
        if event.chat and at is not None:
            self._return_to(turns[at].moment)
            del self._turns[at:]
            self.executing = False
        else:
            self._tell(TAKEN_BACK, event.changes)
        self._undone.append(Undone(event, now if event.chat else None, thread, turns, len(self._context)))

    def _redone(self, event: Redone, envelope: Envelope) -> None:
        self.changes.went(event.id, event.changes)
        self._files.clear()
        undone = self._undone.pop() if self._undone else None
        if undone is None or undone.moment is None or undone.thread is None:
            self._tell(PUT_BACK, event.changes)
            return
        undone.thread.lineage = self.thread().lineage + 1
        self._threads[""] = undone.thread
        self._as_in(undone.moment, tuple(self._context[undone.context :]))
        self._turns = list(undone.turns)

    def _tell(self, text: str, changes: tuple[FileChange, ...]) -> None:
        """The conversation goes on as if nothing had happened, so the model must hear of it."""
        if changes and self._turns:
            names = [change.before.path for change in changes if change.after.kind != "folder"]
            self.thread().note(f"{text} {some_of(names, _NAMED)}")

    def _agent_started(self, event: AgentStarted, envelope: Envelope) -> None:
        self.agent_count = max(self.agent_count + 1, _number(event.id))
        self._agents[event.id] = SubAgentRecord(event.id, event.task, event.mode)

    def _agent_ended(self, event: AgentEnded, envelope: Envelope) -> None:
        self._agents.pop(event.id, None)
        self._threads.pop(event.id, None)

    def _spawn_started(self, event: SpawnStarted, envelope: Envelope) -> None:
        self.spawn_count = max(self.spawn_count, _number(event.id))

    def _rule_added(self, event: RuleAdded, envelope: Envelope) -> None:
        """What a person allowed for this session stays allowed until it is taken back, also after a rewind."""
        if event.scope == "session":
            self.rules = (*self._rules_without(event), (event.text, event.action))

    def _rule_removed(self, event: RuleRemoved, envelope: Envelope) -> None:
        if event.scope == "session":
            self.rules = self._rules_without(event)

    def _rules_without(self, event: RuleAdded | RuleRemoved) -> tuple[tuple[str, Action], ...]:
        return tuple(rule for rule in self.rules if rule != (event.text, event.action))

    def _instructions_changed(self, event: InstructionsChanged, envelope: Envelope) -> None:
        self.instructions = event.instructions

    def _title_set(self, event: TitleSet, envelope: Envelope) -> None:
        self.title = event.title

    def _model_changed(self, event: ModelChanged, envelope: Envelope) -> None:
        self.model = event.model

    def _permission_mode_changed(self, event: PermissionModeChanged, envelope: Envelope) -> None:
        self.permission_mode = self.permission_chosen = event.mode

    def _budget_set(self, event: BudgetSet, envelope: Envelope) -> None:
        self.budget_usd = event.usd


_SHORTENING = frozenset((Compacted, ContextSummarized, MessageRemoved, Redone, ResultsPruned, Rewound))
"""After these the conversation is not the one whose size the model told last."""

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
    PromptChanged: State._prompt_changed,
    PromptDropped: State._prompt_dropped,
    PromptJoined: State._prompt_joined,
    MessageRemoved: State._message_removed,
    ContextAdded: State._context_added,
    ContextSummarized: State._context_summarized,
    ResultsPruned: State._results_pruned,
    Compacted: State._compacted,
    FileCached: State._file_cached,
    CallSpeculated: State._call_speculated,
    CallDiscarded: State._call_discarded,
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
    InstructionsChanged: State._instructions_changed,
    ModelChanged: State._model_changed,
    PermissionModeChanged: State._permission_mode_changed,
    BudgetSet: State._budget_set,
}


def _number(name: str) -> int:
    """The number at the end of an id, so that new ids go past it also when the log has lost a line."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _added(item: ContextItem) -> ContextAdded:
    return ContextAdded(item.content, item.path, item.command)


def _first_line(text: str, limit: int = 60) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"
