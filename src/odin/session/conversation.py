"""The main agent's conversation: its turns, todos, context and known files, with a rewind point for each turn.

Also the skills that the agents have used.
"""

from collections.abc import Callable, Iterable
from sys import intern
from typing import ClassVar

import msgspec

from odin.core.call_events import FileCached, SkillUsed, StatusUpdated, TodosChanged, ToolEnded, UsageRecorded
from odin.core.client import ContextItem, ToolUse
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
from odin.core.event_values import CachedFile, FileChange, Todo
from odin.core.text import join_some
from odin.core.timeline import LoggedTurn, Timeline
from odin.session.history import find_paths_in_view
from odin.session.thread import Thread, ThreadMark


class RewindPoint(msgspec.Struct, frozen=True, gc=False):
    """The state of the conversation that a rewind, a blocked prompt or a redo restores.

    `thread` is a mark in the current thread, or for a redo the thread that the rewind left. `seq` is the number of the
    first event after this point, so the thread can be rebuilt from the log. `sent_count` is the number of context items
    that messages already contain, `change_count` that of the file changes before this point. Items after the first
    `kept_count` were added after the rewind and survive the redo.
    """

    thread: ThreadMark | Thread
    seq: int
    todos: tuple[Todo, ...]
    context: tuple[ContextItem, ...]
    sent_count: int
    context_tokens: int
    change_count: int
    kept_count: int = 0


UNDO_NOTE = "The user took file changes back with undo. These files are as they were before; read them again first:"
REDO_NOTE = "The user put file changes back with redo. Read these files again before you rely on them:"
_MAX_NAMED_FILES = 20

ReadLog = Callable[[], Iterable[Envelope]]
"""Reads the log from the beginning."""


class MainConversation:
    """The fold of the main agent's events; events of sub-agents are ignored.

    Messages replaced by a summary are dropped. A rewind to before the summary rebuilds them with `read_log`.
    `count_changes` returns the number of file changes so far. `tokens` of the context window (`limit`) were in use
    according to the last reply; `is_measured` is False if the conversation was shortened since. The `timeline` decides
    which turns count.
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
        self.timeline = Timeline(self._capture, self._swap)
        self.todos: tuple[Todo, ...] = ()
        self.context: list[ContextItem] = []
        self.files: dict[str, CachedFile] = {}
        self.files_out_of_view: dict[str, str] = {}
        self.tokens = 0
        self.limit = 0
        self.is_measured = False
        self._sent_count = 0
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
                if self.timeline.running is not None:
                    self.timeline.running.add_update(event.text)
            case TurnStarted():
                self.timeline.apply(envelope)
                self.thread.apply(event)
                self._sent_count = len(self.context)
            case TurnEnded():
                self.thread.apply(event)
                for turn in self.timeline.apply(envelope):
                    turn.finish(event.text)
            case NoteAdded():
                self.thread.apply(event)
                if self.turns:
                    self._sent_count += sum(item.note in event.text for item in self.unsent_context)
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
            case Rewound() | Redone():
                # The model must read all files again. A turn that stays does not show what happened to them.
                self.files.clear()
                self.files_out_of_view.clear()
                if not self.timeline.apply(envelope) and event.changes and self.turns:
                    names = [change.before.path for change in event.changes if change.after.kind != "folder"]
                    text = UNDO_NOTE if isinstance(event, Rewound) else REDO_NOTE
                    self.thread.add_note(f"{text} {join_some(names, _MAX_NAMED_FILES)}")
            case SessionOpened():
                self.timeline.apply(envelope)
            case _:
                self.thread.apply(event)

    @property
    def turns(self) -> list[LoggedTurn[RewindPoint]]:
        return self.timeline.turns

    @property
    def is_executing(self) -> bool:
        return self.timeline.running is not None

    @property
    def context_events(self) -> tuple[ContextAdded, ...]:
        return tuple(_make_context_event(item) for item in self.context)

    @property
    def unsent_context(self) -> tuple[ContextAdded, ...]:
        """Context added after the last prompt, which no message contains yet."""
        return tuple(_make_context_event(item) for item in self.context[self._sent_count :])

    def record_file_changes(self, changes: tuple[FileChange, ...]) -> None:
        """Count these changes, by any agent, as changes of the current turn."""
        if self.turns and changes:
            self.turns[-1].add_changed_paths(change.before.path for change in changes)

    def _drop_files_out_of_view(self) -> None:
        """Keep only the hash of files whose content left the conversation: the model does not see them any more."""
        if self.files:
            view = find_paths_in_view(self.thread.build_finished_history(), self.files)
            gone = [path for path in self.files if path not in view]
            self.files_out_of_view.update((path, self.files.pop(path).sha256) for path in gone)

    def _capture(self, seq: int) -> RewindPoint:
        mark, context = self.thread.mark(), tuple(self.context)
        return RewindPoint(mark, seq, self.todos, context, self._sent_count, self.tokens, self._count_changes())

    def _swap(self, point: RewindPoint) -> RewindPoint:
        """Restore that point and return the present one, which the next prompt discards."""
        left = msgspec.structs.replace(self._capture(0), thread=self.thread, kept_count=len(point.context))
        later_context: list[ContextItem] = []
        if isinstance(point.thread, Thread):
            later_context = self.context[point.kept_count :]
            self._replace_thread(point.thread)
        else:
            self.thread = self.thread.copy()
            if not self.thread.rewind_to(point.thread):
                # The thread before event `seq`, folded from the log; empty if there is no log.
                before = MainConversation(self._read_log, self._count_changes)
                for envelope in self._read_log() if self._read_log else ():
                    if envelope.seq < point.seq:
                        before.apply(envelope)
                self._replace_thread(before.thread)
        self.todos, self.tokens, self._sent_count = point.todos, point.context_tokens, point.sent_count
        self.context = [*point.context, *later_context]
        return left

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
