"""The turns of an agent, folded from its events: which of them are part of the conversation, and which are no longer.

What a rewind, a redo, a blocked prompt or a new prompt after a rewind means is decided here; every reader of the log
(conversation, messages, session list, preview, export, transcript, side panel, replay) takes it from here. The status
of a turn:

- `current`: part of the conversation.
- `rewound`: the user went back to before it. A redo makes it `current` again.
- `discarded`: it was rewound, and the next prompt made that final.
- `blocked`: a hook blocked its prompt, so the model has not seen it.

A reader that collects something on the way, such as messages or todos, says how to `capture` what it has, and how to
`swap` it for something captured earlier. The timeline captures before each turn, goes back with a rewind or a blocked
prompt, and goes forward again with a redo: to the moment of the rewind, without what came in between. A prompt that was
injected, and everything else between two prompts, belongs to the turn before it.

The timeline itself keeps the current turns and those that can be redone, so it stays small however long the log is.

`OpenWork` is what has started and not ended: turns, sub-agents, questions and processes.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, Literal, TypeVar

from msgspec import Struct

from odin.core.call_events import (
    AskEvent,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    Replied,
    ReplyDrafted,
    SpawnFinished,
    SpawnStarted,
)
from odin.core.client import ToolUse, TurnRecord
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Envelope,
    PromptInjected,
    Redone,
    Rewound,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import ExitReason, Mode, Todo
from odin.core.interaction import Interaction, make_interaction
from odin.core.message import Attachment
from odin.core.prompt import PromptSource

TurnStatus = Literal["current", "rewound", "blocked", "discarded"]

PROCESS_END_SUFFIX = "-ended"
LOOP_PREFIX = "loop-"
"""Mark the ids of prompts that tell the end of a background process, and of those of loop mode: logs of earlier
versions do not name the source of a prompt."""

Captured = TypeVar("Captured")
Item = TypeVar("Item")


def get_source(event: TurnStarted | PromptInjected) -> PromptSource:
    """Return who wrote a prompt, in logs of earlier versions, too."""
    if event.source != "user" or isinstance(event, PromptInjected):
        return event.source
    if event.id in event.mail or event.id.endswith(PROCESS_END_SUFFIX):
        return "mail"
    return "schedule" if event.id.startswith(LOOP_PREFIX) else "user"


class LoggedTurn(Struct, Generic[Captured], eq=False):
    """`body` is the prompt as people see it, `first` the number of the turn's first event, `reason` how it ended.

    `source` is who wrote the prompt. `before` is what the reader captured before the turn. The
    conversation adds the turn's answer, todos, tool calls, status updates and changed files.
    """

    id: str
    body: str
    mode: Mode
    source: PromptSource
    started: float
    first: int
    before: Captured
    status: TurnStatus = "current"
    reason: ExitReason | None = None
    answer: str = ""
    todos: tuple[Todo, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    _changed: set[str] | None = None
    _tools: list[ToolUse] | tuple[ToolUse, ...] = ()
    _updates: list[str] | None = None

    def add_tool_use(self, tool: ToolUse) -> None:
        if isinstance(self._tools, tuple):
            self._tools = list(self._tools)
        self._tools.append(tool)

    def add_update(self, update: str) -> None:
        if self._updates is None:
            self._updates = []
        self._updates.append(update)

    def add_changed_paths(self, paths: Iterable[str]) -> None:
        if self._changed is None:
            self._changed = set()
        self._changed.update(paths)

    def finish(self, answer: str) -> None:
        """Keep the answer. A long session has thousands of turns, so free what only a running turn needs."""
        self.answer = answer
        self._tools = tuple(self._tools)
        self._updates = None

    def to_record(self) -> TurnRecord:
        return TurnRecord(
            self.id,
            self.body,
            self.mode,
            self.answer,
            self.todos,
            tuple(self._tools),
            tuple(self._updates or ()),
            self.reason,
            self.started,
            len(self._changed or ()),
            self.source,
            self.attachments,
        )


class RewoundTurns(Struct, Generic[Captured], frozen=True):
    """A rewind that can be redone: the turns that it removed, and what it left. Both are empty if it left nothing."""

    event: Rewound
    turns: tuple[LoggedTurn[Captured], ...]
    left: tuple[Captured, ...]


_EVENTS = frozenset((TurnStarted, TurnEnded, Rewound, Redone, SessionOpened))


class Timeline(Generic[Captured]):
    """Folds the events of one agent. Events of others must not be passed to it.

    `turns` are the current ones, `running` is the one that has not ended. `rewinds` can be redone, the last one first.
    `capture` gets the number of the event before which it is called; `swap` returns what it replaces. A log that is not
    read from its beginning needs an `origin`: what was captured before the first event that is read.
    """

    def __init__(
        self,
        capture: Callable[[int], Captured],
        swap: Callable[[Captured], Captured],
        origin: Captured | None = None,
    ) -> None:
        self.turns: list[LoggedTurn[Captured]] = []
        self.running: LoggedTurn[Captured] | None = None
        self.rewinds: list[RewoundTurns[Captured]] = []
        self._capture = capture
        self._swap = swap
        self._origin = origin

    def apply(self, envelope: Envelope) -> tuple[LoggedTurn[Captured], ...]:
        """Return the turns that the event started, ended, removed or brought back."""
        event = envelope.event
        if type(event) not in _EVENTS:  # most events of a log
            return ()
        match event:
            case TurnStarted():
                while self.rewinds:
                    for turn in self.rewinds.pop().turns:
                        turn.status = "discarded"
                seq, source = envelope.seq, get_source(event)
                turn = LoggedTurn(event.id, event.body, event.mode, source, envelope.ts, seq, self._capture(seq))
                turn.attachments = event.attachments
                self.turns.append(turn)
                self.running = turn
                return (turn,)
            case TurnEnded():
                return self._end_turn(event)
            case Rewound():
                turns, left = self._go_back(event.turn, "rewound") if event.chat else ((), ())
                self.rewinds.append(RewoundTurns(event, turns, left))
                return turns
            case Redone():
                if self.rewinds:
                    rewind = self.rewinds.pop()
                    for left in rewind.left:
                        self._swap(left)
                    for turn in rewind.turns:
                        turn.status = "current"
                    self.turns.extend(rewind.turns)
                    return rewind.turns
                if self._origin is not None:
                    self._swap(self._origin)
            case SessionOpened():
                self.running = None
            case _:
                pass
        return ()

    def find(self, turn: str) -> LoggedTurn[Captured] | None:
        """The current turn with this id; the last one if several have it."""
        return next((item for item in reversed(self.turns) if item.id == turn), None)

    def _end_turn(self, event: TurnEnded) -> tuple[LoggedTurn[Captured], ...]:
        self.running = None
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.id != event.id:  # a rewind removed the turn, or its start was not read
            if event.is_blocked and self._origin is not None:
                self._swap(self._origin)
            return ()
        turn.reason = event.reason
        if event.is_blocked:
            self._go_back(turn.id, "blocked")
        return (turn,)

    def _go_back(self, turn: str, status: TurnStatus) -> tuple[tuple[LoggedTurn[Captured], ...], tuple[Captured, ...]]:
        """Remove this turn and all after it. Return them and what was left; nothing if there is no such turn."""
        found = self.find(turn)
        if found is not None:
            index, before = self.turns.index(found), found.before
        elif self._origin is not None:
            index, before = 0, self._origin
        else:
            return (), ()
        removed = tuple(self.turns[index:])
        del self.turns[index:]
        for item in removed:
            item.status = status
        self.running = None
        return removed, (self._swap(before),)


def follow_turns() -> Timeline[None]:
    """A timeline for a reader that needs only the turns."""
    return Timeline(lambda _: None, lambda _: None)


class TurnItems(Generic[Item]):
    """What a reader collects of the current turns. `is_tail`: the log is not read from its beginning."""

    def __init__(self, *, is_tail: bool = False) -> None:
        self.items: list[Item] = []
        self.timeline = Timeline[int | list[Item]](lambda _: len(self.items), self._swap, 0 if is_tail else None)

    def _swap(self, kept: int | list[Item]) -> int | list[Item]:
        left = self.items
        self.items = left[:kept] if isinstance(kept, int) else kept
        return left


class OpenWork:
    """Work that has started and not ended. After a crash, this is what the dead process left dangling.

    `turns` maps an agent to its running turn, `drafts` to the text of the reply that streams. The other dicts map an id
    to its starting event.
    """

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (
            TurnStarted,
            TurnEnded,
            Replied,
            ReplyDrafted,
            AgentStarted,
            AgentEnded,
            PermissionAsked,
            QuestionsAsked,
            PlanAsked,
            PermissionAnswered,
            QuestionsAnswered,
            PlanAnswered,
            SpawnStarted,
            SpawnFinished,
        )
    )

    def __init__(self) -> None:
        self.turns: dict[str, str] = {}
        self.drafts: dict[str, str] = {}
        self.agents: dict[str, AgentStarted] = {}
        self.asks: dict[str, tuple[AskEvent, str]] = {}
        self.spawns: dict[str, tuple[SpawnStarted, str]] = {}

    def __bool__(self) -> bool:
        return bool(self.turns or self.agents or self.asks or self.spawns)

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What waits for an answer, in the order in which it was asked."""
        return tuple(make_interaction(asked, agent) for asked, agent in self.asks.values())

    def apply(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        match event:
            case TurnStarted():
                self.turns[agent] = event.id
            case TurnEnded():
                self.turns.pop(agent, None)
                self.drafts.pop(agent, None)
            case ReplyDrafted():
                self.drafts[agent] = self.drafts.get(agent, "")[: event.start] + event.text
            case Replied():
                self.drafts.pop(agent, None)
            case AgentStarted():
                self.agents[event.id] = event
            case AgentEnded():
                self.agents.pop(event.id, None)
            case PermissionAsked() | QuestionsAsked() | PlanAsked():
                self.asks[event.ask_id] = event, agent
            case PermissionAnswered() | QuestionsAnswered() | PlanAnswered():
                self.asks.pop(event.ask_id, None)
            case SpawnStarted():
                self.spawns[event.id] = event, agent
            case SpawnFinished():
                self.spawns.pop(event.id, None)
            case _:
                pass
