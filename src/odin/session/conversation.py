"""The main agent's conversation: its turns, todos, context and known files, with a rewind point for each turn.

Also the skills that the agents have used.
"""

from collections.abc import Callable, Iterable
from sys import intern
from typing import ClassVar

import msgspec

from odin.core.call_events import FileCached, SkillUsed, StatusUpdated, TodosChanged, ToolEnded, UsageRecorded
from odin.core.client import ContextItem, ToolUse, TurnRecord
from odin.core.errors import PromptBlocked
from odin.core.event import (
    Compacted,
    ContextAdded,
    ContextSummarized,
    Envelope,
    MessageRemoved,
    NoteAdded,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    Redone,
    ResultsPruned,
    Rewound,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import CachedFile, ExitReason, FileChange, Mode, Todo
from odin.core.text import join_some
from odin.session.history import find_paths_in_view
from odin.session.thread import Thread, ThreadMark


class RewindPoint(msgspec.Struct, frozen=True):
    """The state of the conversation that a rewind or a redo restores.

    `seq` is the number of the first event after this point, so the state can be rebuilt from the log.
    """

    mark: ThreadMark
    seq: int
    todos: tuple[Todo, ...]
    context: tuple[ContextItem, ...]
    context_tokens: int


class PastTurn:
    """One turn, and the rewind point before it.

    `context_count` is the number of context items that messages already contain; later ones are still unsent.
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

    def __init__(self, event: TurnStarted, started: float, rewind_point: RewindPoint, changes: int) -> None:
        self.rewind_point = rewind_point
        self.change_count = changes
        self.context_count = len(rewind_point.context)
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
        """Record how the turn ended. A long session has thousands of turns, so free what only a running turn needs."""
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
    """A rewind that can be redone. `rewind_point` and `thread` are None if it changed only files.

    `context_count` is the number of context items right after the rewind; later ones survive the redo.
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
"""Reads the log from the beginning."""


class MainConversation:
    """The fold of the main agent's events; events of sub-agents are ignored.

    Messages replaced by a summary are dropped. A rewind to before the summary rebuilds them with `read_log`.
    `count_changes` returns the number of file changes so far. `tokens` of the context window (`limit`) were in use
    according to the last reply; `is_measured` is False if the conversation was shortened since.
    """

    EVENTS: ClassVar[frozenset[type]] = Thread.EVENTS | {
        ToolEnded,
        UsageRecorded,
        FileCached,
        StatusUpdated,
        TurnStarted,
        TurnEnded,
        NoteAdded,
        TodosChanged,
        ContextAdded,
        ContextSummarized,
        ResultsPruned,
        Compacted,
        Rewound,
        Redone,
        SessionOpened,
    }

    def __init__(self, read_log: ReadLog | None, count_changes: Callable[[], int]) -> None:
        self.thread = Thread()
        self.turns: list[PastTurn] = []
        self.todos: tuple[Todo, ...] = ()
        self.context: list[ContextItem] = []
        self.files: dict[str, CachedFile] = {}
        self.files_out_of_view: dict[str, str] = {}
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
        if isinstance(event, _SHORTENING_EVENTS):
            self.is_measured = False
        match event:
            case ToolEnded():
                self.thread.apply(event)
                if self.turns:
                    self.turns[-1].add_tool_use(ToolUse(intern(event.name), event.files, event.note))
            case UsageRecorded():
                if event.purpose == "main" and not event.estimated:
                    self.tokens, self.limit, self.is_measured = event.usage.total, event.context_window, True
            case FileCached():
                self.files[event.file.path] = event.file
                self.files_out_of_view.pop(event.file.path, None)
            case StatusUpdated():
                if self.turns and self.is_executing:
                    self.turns[-1].add_update(event.text)
            case TurnStarted():
                turn = PastTurn(event, envelope.ts, self._capture_rewind_point(envelope.seq), self._count_changes())
                self.thread.apply(event)
                self._undone_rewinds.clear()
                self.is_executing = True
                self.turns.append(turn)
            case TurnEnded():
                self._end_turn(event)
            case NoteAdded():
                self.thread.apply(event)
                if self.turns:
                    self.turns[-1].context_count += sum(item.note in event.text for item in self.unsent_context)
            case TodosChanged():
                self.todos = event.todos
                if self.turns:
                    self.turns[-1].todos = event.todos
            case ContextAdded():
                self.context.append(ContextItem(event.content, event.path, event.command))
            case ContextSummarized():
                self.thread.add_summary(event.calls, tuple(item.note for item in self.context_events))
                self.context = [ContextItem(event.text)]
            case ResultsPruned():
                self.thread.apply(event)
                self._drop_files_out_of_view()
            case Compacted():
                self.thread.apply(event)
                self._drop_files_out_of_view()
                self.tokens = event.tokens_after
            case Rewound():
                self._rewind(event, envelope.seq)
            case Redone():
                self._redo(event)
            case SessionOpened():
                self.is_executing = False
            case _:
                self.thread.apply(event)

    @property
    def redoable_rewind(self) -> Rewound | None:
        """The rewind that a redo would reverse."""
        return self._undone_rewinds[-1].event if self._undone_rewinds else None

    @property
    def context_events(self) -> tuple[ContextAdded, ...]:
        return tuple(_make_context_event(item) for item in self.context)

    @property
    def unsent_context(self) -> tuple[ContextAdded, ...]:
        """Context added after the last prompt, which no message contains yet."""
        sent = self.turns[-1].context_count if self.turns else 0
        return tuple(_make_context_event(item) for item in self.context[sent:])

    def find_turn(self, turn: str) -> PastTurn | None:
        index = self._find_turn_index(turn)
        return None if index is None else self.turns[index]

    def record_file_changes(self, changes: tuple[FileChange, ...]) -> None:
        """Count these changes, by any agent, as changes of the current turn."""
        if self.turns and changes:
            self.turns[-1].add_changed_paths(change.before.path for change in changes)

    def _find_turn_index(self, turn: str) -> int | None:
        indexes = [index for index, item in enumerate(self.turns) if item.id == turn]
        return indexes[-1] if indexes else None

    def _end_turn(self, event: TurnEnded) -> None:
        self.thread.apply(event)
        self.is_executing = False
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.id != event.id:  # a rewind removed the turn, or the log lost its start
            return
        if event.error_kind == PromptBlocked.__name__:
            self._rewind_to(self.turns.pop().rewind_point)
        else:
            turn.end(event.text, event.reason)

    def _drop_files_out_of_view(self) -> None:
        """Keep only the hash of files whose content left the conversation: the model does not see them any more."""
        if self.files:
            view = find_paths_in_view(self.thread.build_finished_history(), self.files)
            gone = [path for path in self.files if path not in view]
            self.files_out_of_view.update((path, self.files.pop(path).sha256) for path in gone)

    def _forget_files(self) -> None:
        self.files.clear()
        self.files_out_of_view.clear()

    def _rewind(self, event: Rewound, seq: int) -> None:
        """Keep everything a redo needs; the next prompt discards it. The model must read all files again."""
        self._forget_files()
        index = self._find_turn_index(event.turn)
        now, turns = self._capture_rewind_point(seq), tuple(self.turns)
        thread = self.thread.copy() if event.chat else None
        if event.chat and index is not None:
            self._rewind_to(turns[index].rewind_point)
            del self.turns[index:]
            self.is_executing = False
        else:
            self._note_file_changes(UNDO_NOTE, event.changes)
        self._undone_rewinds.append(UndoneRewind(event, now if event.chat else None, thread, turns, len(self.context)))

    def _redo(self, event: Redone) -> None:
        self._forget_files()
        undone = self._undone_rewinds.pop() if self._undone_rewinds else None
        if undone is None or undone.rewind_point is None or undone.thread is None:
            self._note_file_changes(REDO_NOTE, event.changes)
            return
        self._replace_thread(undone.thread)
        self._restore_fields(undone.rewind_point, tuple(self.context[undone.context_count :]))
        self.turns = list(undone.turns)

    def _note_file_changes(self, text: str, changes: tuple[FileChange, ...]) -> None:
        """Tell the model about file changes that the rest of the conversation does not show."""
        if changes and self.turns:
            names = [change.before.path for change in changes if change.after.kind != "folder"]
            self.thread.add_note(f"{text} {join_some(names, _MAX_NAMED_FILES)}")

    def _capture_rewind_point(self, seq: int) -> RewindPoint:
        return RewindPoint(self.thread.mark(), seq, self.todos, tuple(self.context), self.tokens)

    def _rewind_to(self, point: RewindPoint) -> None:
        if not self.thread.rewind_to(point.mark):
            # The thread before event `seq`, folded from the log; empty if there is no log.
            before = MainConversation(self._read_log, self._count_changes)
            for envelope in self._read_log() if self._read_log else ():
                if envelope.seq < point.seq:
                    before.apply(envelope)
            self._replace_thread(before.thread)
        self._restore_fields(point)

    def _restore_fields(self, point: RewindPoint, later_context: tuple[ContextItem, ...] = ()) -> None:
        self.todos, self.tokens = point.todos, point.context_tokens
        self.context = [*point.context, *later_context]

    def _replace_thread(self, thread: Thread) -> None:
        thread.lineage = self.thread.lineage + 1
        self.thread = thread


_SHORTENING_EVENTS = (Compacted, ContextSummarized, MessageRemoved, Redone, ResultsPruned, Rewound)
"""Events after which the size the model last reported no longer applies."""


def _make_context_event(item: ContextItem) -> ContextAdded:
    return ContextAdded(item.content, item.path, item.command)


class UsedSkills:
    """The skills that each agent has used, and those of its running turn, whose rules apply.

    A skill called as a slash command applies to the turn of its prompt, any other one to the turn in which it is used.
    """

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (SkillUsed, TurnStarted, PromptQueued, PromptInjected, PromptChanged, PromptDropped, TurnEnded)
    )

    def __init__(self) -> None:
        self.by_agent: dict[str, dict[str, None]] = {}
        self._in_use: dict[str, tuple[SkillUsed, ...]] = {}
        self._waiting: dict[str, SkillUsed] = {}
        self._texts: dict[str, str] = {}

    def apply(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        match event:
            case SkillUsed():
                self.by_agent.setdefault(agent, {})[event.name] = None
                if event.prompt:
                    self._waiting[event.prompt] = event
                else:
                    self._in_use[agent] = (*self.list_in_use(agent), event)
            case PromptQueued():
                self._texts[event.id] = event.text
            case PromptChanged() if event.text != self._texts.get(event.id):
                self._waiting.pop(event.id, None)  # if the new text calls a skill, that event follows
                self._texts[event.id] = event.text
            case TurnStarted():
                self._in_use[agent] = self._take(event.id)
            case PromptInjected():
                self._in_use[agent] = (*self.list_in_use(agent), *self._take(event.id))
            case PromptDropped():
                self._take(event.id)
            case TurnEnded():
                self._in_use.pop(agent, None)
            case _:
                pass

    def _take(self, prompt: str) -> tuple[SkillUsed, ...]:
        self._texts.pop(prompt, None)
        used = self._waiting.pop(prompt, None)
        return () if used is None else (used,)

    def list_in_use(self, agent: str) -> tuple[SkillUsed, ...]:
        """Return the skills of an agent's running turn."""
        return self._in_use.get(agent, ())
