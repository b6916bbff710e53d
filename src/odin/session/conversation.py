"""The turns of a session, each with the way back to before it.

The conversation with the main agent: what was said in it, and the way back to before each prompt.
"""

from collections.abc import Callable, Iterable
from sys import intern
from typing import Any

import msgspec

from odin.core.client import ContextItem, ToolUse, TurnRecord
from odin.core.errors import PromptBlocked
from odin.core.event import (
    AnyEvent,
    CachedFile,
    Compacted,
    ContextAdded,
    ContextSummarized,
    Envelope,
    ExitReason,
    FileCached,
    FileChange,
    MessageRemoved,
    Mode,
    NoteAdded,
    Redone,
    ResultsPruned,
    Rewound,
    SessionOpened,
    StatusUpdated,
    Todo,
    TodosChanged,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.text import join_some
from odin.session.history import find_paths_in_view
from odin.session.thread import Thread, ThreadMark, apply_thread_event


class RewindPoint(msgspec.Struct, frozen=True):
    """The conversation at one moment: what a rewind goes back to and what its redo brings back.

    `seq` is the number of the first event after it: the log up to there is the moment, whatever was forgotten since.
    """

    mark: ThreadMark
    seq: int
    todos: tuple[Todo, ...]
    context: tuple[ContextItem, ...]
    context_tokens: int


class PastTurn:
    """What is known of one prompt, and the moment before it, to which a rewind returns.

    `told` counts the context items that the conversation holds since.
    """

    __slots__ = (
        "_changed",
        "_tools",
        "_updates",
        "answer",
        "body",
        "change_count",
        "context_count",
        "id",
        "mode",
        "reason",
        "rewind_point",
        "started",
        "todos",
    )

    def __init__(self, event: TurnStarted, started: float, moment: RewindPoint, changes: int) -> None:
        self.rewind_point = moment
        self.change_count = changes
        self.context_count = len(moment.context)
        self.started = started
        self.id = event.id
        self.body = event.display_text or event.text
        self.mode: Mode = event.mode
        self.answer = ""
        self.todos: tuple[Todo, ...] = ()
        self.reason: ExitReason | None = None
        self._changed: set[str] | None = None
        self._tools: list[ToolUse] | tuple[ToolUse, ...] = ()
        self._updates: list[str] | None = None

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

    def end(self, answer: str, reason: ExitReason) -> None:
        """There are thousands of these in a long session: one that is over takes no more room than it needs."""
        self.answer = answer
        self.reason = reason
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
        )


class UndoneRewind(msgspec.Struct, frozen=True):
    """A rewind that can be taken back. `moment` and `thread` are None when it left the conversation alone.

    `context` counts the context items it left; those after them came later.
    """

    event: Rewound
    rewind_point: RewindPoint | None
    thread: Thread | None
    turns: tuple[PastTurn, ...]
    context_count: int


UNDO_NOTE = "The user took file changes back with undo. These files are as they were before; read them again first:"
REDO_NOTE = "The user put file changes back with redo. Read these files again before you rely on them:"
_MAX_NAMED_FILES = 20

ReadLog = Callable[[], Iterable[Envelope]]
"""Reads the log again from its beginning."""


class MainConversation:
    """What the main agent and people said, planned and know of files. Sub-agents have no part in it.

    Messages that a summary has replaced are not kept. `past` is how they are found again when a rewind goes back
    behind the summary. `changes` counts what was done to files so far. `tokens` is what fills the window of `limit`
    tokens, as the model told last; `measured` says whether that was this very conversation.
    """

    def __init__(self, read_log: ReadLog | None, count_changes: Callable[[], int]) -> None:
        self.thread = Thread()
        self.turns: list[PastTurn] = []
        self.todos: tuple[Todo, ...] = ()
        self.context: list[ContextItem] = []
        self.files: dict[str, CachedFile] = {}
        self.is_executing = False
        self.tokens = 0
        self.limit = 0
        self.is_measured = False
        self._undone_rewinds: list[UndoneRewind] = []
        self._read_log = read_log
        self._count_changes = count_changes

    def apply(self, envelope: Envelope) -> None:
        if envelope.agent:
            return
        event = envelope.event
        if type(event) in _SHORTENING_EVENTS:
            self.is_measured = False
        step = _CONVERSATION_HANDLERS.get(type(event))
        if step is None:
            apply_thread_event(self.thread, event)
        else:
            step(self, event, envelope)

    @property
    def redoable_rewind(self) -> Rewound | None:
        """The rewind that a redo would take back."""
        return self._undone_rewinds[-1].event if self._undone_rewinds else None

    @property
    def context_events(self) -> tuple[ContextAdded, ...]:
        """The pieces of context, as they came."""
        return tuple(_context_event_of(item) for item in self.context)

    @property
    def unsent_context(self) -> tuple[ContextAdded, ...]:
        """Context that came after the last prompt, so that no message holds it yet."""
        told = self.turns[-1].context_count if self.turns else 0
        return tuple(_context_event_of(item) for item in self.context[told:])

    def find_turn(self, name: str) -> PastTurn | None:
        at = self._index_of_turn(name)
        return None if at is None else self.turns[at]

    def record_file_changes(self, changes: tuple[FileChange, ...]) -> None:
        """The turn changed these files, whichever of its agents did."""
        if self.turns and changes:
            self.turns[-1].add_changed_paths(change.before.path for change in changes)

    def _index_of_turn(self, turn: str) -> int | None:
        found = [number for number, item in enumerate(self.turns) if item.id == turn]
        return found[-1] if found else None

    # One small step per kind of event; those that only the thread hears of have none.

    def _on_session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self.is_executing = False

    def _on_turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        turn = PastTurn(event, envelope.ts, self._capture_rewind_point(envelope.seq), self._count_changes())
        apply_thread_event(self.thread, event)
        self._undone_rewinds.clear()
        self.is_executing = True
        self.turns.append(turn)

    def _on_turn_ended(self, event: TurnEnded, envelope: Envelope) -> None:
        apply_thread_event(self.thread, event)
        self.is_executing = False
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.id != event.id:  # a rewind has taken it back, or its beginning was lost
            return
        if event.error_kind == PromptBlocked.__name__:
            self._rewind_to(self.turns.pop().rewind_point)
        else:
            turn.end(event.text, event.reason)

    def _on_tool_ended(self, event: ToolEnded, envelope: Envelope) -> None:
        apply_thread_event(self.thread, event)
        if self.turns:
            self.turns[-1].add_tool_use(ToolUse(intern(event.name), event.files, event.note))

    def _on_noted(self, event: NoteAdded, envelope: Envelope) -> None:
        apply_thread_event(self.thread, event)
        if self.turns:
            self.turns[-1].context_count += sum(item.note in event.text for item in self.unsent_context)

    def _on_usage_recorded(self, event: UsageRecorded, envelope: Envelope) -> None:
        if event.purpose == "planner":
            self.tokens = event.usage.total
            self.limit = event.context_window
            self.is_measured = True

    def _on_todos_changed(self, event: TodosChanged, envelope: Envelope) -> None:
        self.todos = event.todos
        if self.turns:
            self.turns[-1].todos = event.todos

    def _on_updated(self, event: StatusUpdated, envelope: Envelope) -> None:
        if self.turns and self.is_executing:
            self.turns[-1].add_update(event.text)

    def _on_context_added(self, event: ContextAdded, envelope: Envelope) -> None:
        self.context.append(ContextItem(event.content, event.path, event.command))

    def _on_context_summarized(self, event: ContextSummarized, envelope: Envelope) -> None:
        self.thread.add_summary(event.calls, tuple(item.note for item in self.context_events))
        self.context = [ContextItem(event.text)]

    def _on_file_cached(self, event: FileCached, envelope: Envelope) -> None:
        """What the main agent knows; a sub-agent's knowledge ends with it."""
        self.files[event.file.path] = event.file

    def _on_results_pruned(self, event: ResultsPruned, envelope: Envelope) -> None:
        apply_thread_event(self.thread, event)
        self._drop_files_out_of_view()

    def _on_compacted(self, event: Compacted, envelope: Envelope) -> None:
        apply_thread_event(self.thread, event)
        self._drop_files_out_of_view()
        self.tokens = event.tokens_after

    def _drop_files_out_of_view(self) -> None:
        """What the model was shown and no longer is must be read again, also after a resume."""
        if self.files:
            view = find_paths_in_view(self.thread.build_finished_history(), self.files)
            self.files = {path: file for path, file in self.files.items() if path in view}

    def _on_rewound(self, event: Rewound, envelope: Envelope) -> None:
        """Nothing is forgotten until the next prompt: a redo brings it back. Of files the model now knows nothing."""
        self.files.clear()
        at = self._index_of_turn(event.turn)
        now, turns = self._capture_rewind_point(envelope.seq), tuple(self.turns)
        thread = self.thread.copy() if event.chat else None
        if event.chat and at is not None:
            self._rewind_to(turns[at].rewind_point)
            del self.turns[at:]
            self.is_executing = False
        else:
            self._note_file_changes(UNDO_NOTE, event.changes)
        self._undone_rewinds.append(UndoneRewind(event, now if event.chat else None, thread, turns, len(self.context)))

    def _on_redone(self, event: Redone, envelope: Envelope) -> None:
        self.files.clear()
        undone = self._undone_rewinds.pop() if self._undone_rewinds else None
        if undone is None or undone.rewind_point is None or undone.thread is None:
            self._note_file_changes(REDO_NOTE, event.changes)
            return
        self._replace_thread(undone.thread)
        self._restore_fields(undone.rewind_point, tuple(self.context[undone.context_count :]))
        self.turns = list(undone.turns)

    def _note_file_changes(self, text: str, changes: tuple[FileChange, ...]) -> None:
        """The conversation goes on as if nothing had happened, so the model must hear of it."""
        if changes and self.turns:
            names = [change.before.path for change in changes if change.after.kind != "folder"]
            self.thread.add_note(f"{text} {join_some(names, _MAX_NAMED_FILES)}")

    # Back to a moment.

    def _capture_rewind_point(self, seq: int) -> RewindPoint:
        return RewindPoint(self.thread.mark(), seq, self.todos, tuple(self.context), self.tokens)

    def _rewind_to(self, moment: RewindPoint) -> None:
        if not self.thread.rewind_to(moment.mark):
            self._replace_thread(self._rebuild_thread(moment.seq))
        self._restore_fields(moment)

    def _restore_fields(self, moment: RewindPoint, more: tuple[ContextItem, ...] = ()) -> None:
        self.todos, self.tokens = moment.todos, moment.context_tokens
        self.context = [*moment.context, *more]

    def _replace_thread(self, thread: Thread) -> None:
        thread.lineage = self.thread.lineage + 1
        self.thread = thread

    def _rebuild_thread(self, seq: int) -> Thread:
        """The thread before this event, from the log. Without one nothing is left of it."""
        before = MainConversation(self._read_log, self._count_changes)
        for envelope in self._read_log() if self._read_log else ():
            if envelope.seq < seq:
                before.apply(envelope)
        return before.thread


_SHORTENING_EVENTS = frozenset((Compacted, ContextSummarized, MessageRemoved, Redone, ResultsPruned, Rewound))
"""After these the conversation is not the one whose size the model told last."""

_CONVERSATION_HANDLERS: dict[type[AnyEvent], Callable[[MainConversation, Any, Envelope], None]] = {
    SessionOpened: MainConversation._on_session_opened,
    TurnStarted: MainConversation._on_turn_started,
    TurnEnded: MainConversation._on_turn_ended,
    ToolEnded: MainConversation._on_tool_ended,
    NoteAdded: MainConversation._on_noted,
    UsageRecorded: MainConversation._on_usage_recorded,
    TodosChanged: MainConversation._on_todos_changed,
    StatusUpdated: MainConversation._on_updated,
    ContextAdded: MainConversation._on_context_added,
    ContextSummarized: MainConversation._on_context_summarized,
    FileCached: MainConversation._on_file_cached,
    ResultsPruned: MainConversation._on_results_pruned,
    Compacted: MainConversation._on_compacted,
    Rewound: MainConversation._on_rewound,
    Redone: MainConversation._on_redone,
}


def _context_event_of(item: ContextItem) -> ContextAdded:
    return ContextAdded(item.content, item.path, item.command)
