"""The turns of a session, each with the way back to before it."""

import msgspec

from odin.core.client import ContextItem, ToolUse, TurnRecord
from odin.core.event import ExitReason, Mode, Rewound, Todo, TurnStarted
from odin.session.thread import Mark, Thread


class Moment(msgspec.Struct, frozen=True):
    """The conversation at one moment: what a rewind goes back to and what its redo brings back.

    `seq` is the number of the first event after it: the log up to there is the moment, whatever was forgotten since.
    """

    mark: Mark
    seq: int
    todos: tuple[Todo, ...]
    context: tuple[ContextItem, ...]
    context_tokens: int


class PastTurn:
    """What is known of one prompt, and the moment before it, to which a rewind returns.

    `told` counts the context items that the conversation holds since.
    """

    def __init__(self, event: TurnStarted, started: float, moment: Moment, changes: int) -> None:
        self.moment = moment
        self.changes = changes
        self.told = len(moment.context)
        self.started = started
        self.changed: set[str] = set()
        self.id = event.id
        self.body = event.text
        self.mode: Mode = event.mode
        self.answer = ""
        self.todos: tuple[Todo, ...] = ()
        self.tools: list[ToolUse] = []
        self.updates: list[str] = []
        self.reason: ExitReason | None = None

    def record(self) -> TurnRecord:
        return TurnRecord(
            self.id,
            self.body,
            self.mode,
            self.answer,
            self.todos,
            tuple(self.tools),
            tuple(self.updates),
            self.reason,
            self.started,
            len(self.changed),
        )


class Undone(msgspec.Struct, frozen=True):
    """A rewind that can be taken back. `moment` and `thread` are None when it left the conversation alone.

    `context` counts the context items it left; those after them came later.
    """

    event: Rewound
    moment: Moment | None
    thread: Thread | None
    turns: tuple[PastTurn, ...]
    context: int
