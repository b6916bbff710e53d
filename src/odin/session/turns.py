"""The turns of a session, each with the way back to before it."""

from collections.abc import Iterable

import msgspec

from odin.core.client import ContextItem, ToolUse, TurnRecord
from odin.core.event import ExitReason, Mode, Rewound, Todo, TurnStarted
from odin.session.thread import Thread, ThreadMark


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
