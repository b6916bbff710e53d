"""The conversation with the main agent: what was said in it, and the way back to before each prompt."""

from collections.abc import Callable, Iterable
from sys import intern
from typing import Any

from odin.core.client import ContextItem, ToolUse
from odin.core.errors import PromptBlocked
from odin.core.event import (
    AnyEvent,
    CachedFile,
    Compacted,
    ContextAdded,
    ContextSummarized,
    Envelope,
    FileCached,
    FileChange,
    MessageRemoved,
    Noted,
    Redone,
    ResultsPruned,
    Rewound,
    SessionOpened,
    Todo,
    TodosChanged,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    Updated,
    UsageRecorded,
)
from odin.core.some import some_of
from odin.session.hearing import hear
from odin.session.shrink import in_view
from odin.session.thread import Thread
from odin.session.turns import Moment, PastTurn, Undone

TAKEN_BACK = "The user took file changes back with undo. These files are as they were before; read them again first:"
PUT_BACK = "The user put file changes back with redo. Read these files again before you rely on them:"
_NAMED = 20

Past = Callable[[], Iterable[Envelope]]
"""Reads the log again from its beginning."""


class Conversation:
    """What the main agent and people said, planned and know of files. Sub-agents have no part in it.

    Messages that a summary has replaced are not kept. `past` is how they are found again when a rewind goes back
    behind the summary. `changes` counts what was done to files so far. `tokens` is what fills the window of `limit`
    tokens, as the model told last; `measured` says whether that was this very conversation.
    """

    def __init__(self, past: Past | None, changes: Callable[[], int]) -> None:
        self.thread = Thread()
        self.turns: list[PastTurn] = []
        self.todos: tuple[Todo, ...] = ()
        self.context: list[ContextItem] = []
        self.files: dict[str, CachedFile] = {}
        self.executing = False
        self.tokens = 0
        self.limit = 0
        self.measured = False
        self._undone: list[Undone] = []
        self._past = past
        self._changes = changes

    def apply(self, envelope: Envelope) -> None:
        if envelope.agent:
            return
        event = envelope.event
        if type(event) in _SHORTENING:
            self.measured = False
        step = _STEPS.get(type(event))
        if step is None:
            hear(self.thread, event)
        else:
            step(self, event, envelope)

    @property
    def undone(self) -> Rewound | None:
        """The rewind that a redo would take back."""
        return self._undone[-1].event if self._undone else None

    @property
    def added(self) -> tuple[ContextAdded, ...]:
        """The pieces of context, as they came."""
        return tuple(_added(item) for item in self.context)

    @property
    def untold(self) -> tuple[ContextAdded, ...]:
        """Context that came after the last prompt, so that no message holds it yet."""
        told = self.turns[-1].told if self.turns else 0
        return tuple(_added(item) for item in self.context[told:])

    def turn(self, name: str) -> PastTurn | None:
        at = self._position(name)
        return None if at is None else self.turns[at]

    def wrote(self, changes: tuple[FileChange, ...]) -> None:
        """The turn changed these files, whichever of its agents did."""
        if self.turns and changes:
            self.turns[-1].wrote(change.before.path for change in changes)

    def _position(self, turn: str) -> int | None:
        found = [number for number, item in enumerate(self.turns) if item.id == turn]
        return found[-1] if found else None

    # One small step per kind of event; those that only the thread hears of have none.

    def _session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self.executing = False

    def _turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        turn = PastTurn(event, envelope.ts, self._moment(envelope.seq), self._changes())
        hear(self.thread, event)
        self._undone.clear()
        self.executing = True
        self.turns.append(turn)

    def _turn_ended(self, event: TurnEnded, envelope: Envelope) -> None:
        hear(self.thread, event)
        self.executing = False
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.id != event.id:  # a rewind has taken it back, or its beginning was lost
            return
        if event.error_kind == PromptBlocked.__name__:
            self._return_to(self.turns.pop().moment)
        else:
            turn.end(event.text, event.reason)

    def _tool_ended(self, event: ToolEnded, envelope: Envelope) -> None:
        hear(self.thread, event)
        if self.turns:
            self.turns[-1].used(ToolUse(intern(event.name), event.files, event.note))

    def _noted(self, event: Noted, envelope: Envelope) -> None:
        hear(self.thread, event)
        if self.turns:
            self.turns[-1].told += sum(item.note in event.text for item in self.untold)

    def _usage_recorded(self, event: UsageRecorded, envelope: Envelope) -> None:
        if event.purpose == "planner":
            self.tokens = event.usage.total
            self.limit = event.context
            self.measured = True

    def _todos_changed(self, event: TodosChanged, envelope: Envelope) -> None:
        self.todos = event.todos
        if self.turns:
            self.turns[-1].todos = event.todos

    def _updated(self, event: Updated, envelope: Envelope) -> None:
        if self.turns and self.executing:
            self.turns[-1].told_of(event.text)

    def _context_added(self, event: ContextAdded, envelope: Envelope) -> None:
        self.context.append(ContextItem(event.content, event.path, event.command))

    def _context_summarized(self, event: ContextSummarized, envelope: Envelope) -> None:
        self.thread.summarise(event.calls, tuple(item.note for item in self.added))
        self.context = [ContextItem(event.text)]

    def _file_cached(self, event: FileCached, envelope: Envelope) -> None:
        """What the main agent knows; a sub-agent's knowledge ends with it."""
        self.files[event.file.path] = event.file

    def _results_pruned(self, event: ResultsPruned, envelope: Envelope) -> None:
        hear(self.thread, event)
        self._out_of_view()

    def _compacted(self, event: Compacted, envelope: Envelope) -> None:
        hear(self.thread, event)
        self._out_of_view()
        self.tokens = event.tokens_after

    def _out_of_view(self) -> None:
        """What the model was shown and no longer is must be read again, also after a resume."""
        if self.files:
            view = in_view(self.thread.finished(), self.files)
            self.files = {path: file for path, file in self.files.items() if path in view}

    def _rewound(self, event: Rewound, envelope: Envelope) -> None:
        """Nothing is forgotten until the next prompt: a redo brings it back. Of files the model now knows nothing."""
        self.files.clear()
        at = self._position(event.turn)
        now, turns = self._moment(envelope.seq), tuple(self.turns)
        thread = self.thread.copy() if event.chat else None
        if event.chat and at is not None:
            self._return_to(turns[at].moment)
            del self.turns[at:]
            self.executing = False
        else:
            self._tell(TAKEN_BACK, event.changes)
        self._undone.append(Undone(event, now if event.chat else None, thread, turns, len(self.context)))

    def _redone(self, event: Redone, envelope: Envelope) -> None:
        self.files.clear()
        undone = self._undone.pop() if self._undone else None
        if undone is None or undone.moment is None or undone.thread is None:
            self._tell(PUT_BACK, event.changes)
            return
        self._take_up(undone.thread)
        self._as_in(undone.moment, tuple(self.context[undone.context :]))
        self.turns = list(undone.turns)

    def _tell(self, text: str, changes: tuple[FileChange, ...]) -> None:
        """The conversation goes on as if nothing had happened, so the model must hear of it."""
        if changes and self.turns:
            names = [change.before.path for change in changes if change.after.kind != "folder"]
            self.thread.note(f"{text} {some_of(names, _NAMED)}")

    # Back to a moment.

    def _moment(self, seq: int) -> Moment:
        return Moment(self.thread.mark(), seq, self.todos, tuple(self.context), self.tokens)

    def _return_to(self, moment: Moment) -> None:
        if not self.thread.back(moment.mark):
            self._take_up(self._recalled(moment.seq))
        self._as_in(moment)

    def _as_in(self, moment: Moment, more: tuple[ContextItem, ...] = ()) -> None:
        self.todos, self.tokens = moment.todos, moment.context_tokens
        self.context = [*moment.context, *more]

    def _take_up(self, thread: Thread) -> None:
        thread.lineage = self.thread.lineage + 1
        self.thread = thread

    def _recalled(self, seq: int) -> Thread:
        """The thread before this event, from the log. Without one nothing is left of it."""
        before = Conversation(self._past, self._changes)
        for envelope in self._past() if self._past else ():
            if envelope.seq < seq:
                before.apply(envelope)
        return before.thread


_SHORTENING = frozenset((Compacted, ContextSummarized, MessageRemoved, Redone, ResultsPruned, Rewound))
"""After these the conversation is not the one whose size the model told last."""

_STEPS: dict[type[AnyEvent], Callable[[Conversation, Any, Envelope], None]] = {
    SessionOpened: Conversation._session_opened,
    TurnStarted: Conversation._turn_started,
    TurnEnded: Conversation._turn_ended,
    ToolEnded: Conversation._tool_ended,
    Noted: Conversation._noted,
    UsageRecorded: Conversation._usage_recorded,
    TodosChanged: Conversation._todos_changed,
    Updated: Conversation._updated,
    ContextAdded: Conversation._context_added,
    ContextSummarized: Conversation._context_summarized,
    FileCached: Conversation._file_cached,
    ResultsPruned: Conversation._results_pruned,
    Compacted: Conversation._compacted,
    Rewound: Conversation._rewound,
    Redone: Conversation._redone,
}


def _added(item: ContextItem) -> ContextAdded:
    return ContextAdded(item.content, item.path, item.command)
