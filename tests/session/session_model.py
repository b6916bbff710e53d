"""A log of random prompts, rewinds and redos, and what of it should still count, tracked in the simplest way."""

from copy import deepcopy
from typing import Literal

from odin.core.call_events import Replied, TodosChanged, ToolEnded, UsageRecorded
from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextAdded,
    Envelope,
    FilesChanged,
    PromptInjected,
    Redone,
    Rewound,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import FileChange, FileState, Todo
from odin.core.message import ReplyMessage, Text, ToolCall, Usage
from odin.core.timeline import TurnStatus
from tests.session.logs import opened

Move = Literal[
    "ask", "ask and inject", "be cut off", "continue", "be blocked", "inject", "compact", "reopen", "add context",
    "run a sub-agent", "go back", "take files back", "redo",
]  # fmt: skip


class SessionModel:
    """`turns` are the current ones with their prompts, `shown` the prompts that the transcript shows."""

    def __init__(self) -> None:
        self.log: list[Envelope] = []
        self.statuses: dict[str, TurnStatus] = {}
        self.turns: list[tuple[str, list[str]]] = []
        self.shown: list[str] = []
        self.undone: list[tuple[str, list[tuple[str, list[str]]], list[str]]] = []
        self._count = 0
        self._cut_off = ""
        self.emit(opened())

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.turns]

    @property
    def prompts(self) -> list[str]:
        return [prompt for _, prompts in self.turns for prompt in prompts]

    def emit(self, event: AnyEvent, agent: str = "") -> None:
        self.log.append(Envelope(len(self.log), 1000.0 + len(self.log), "s", event, agent))

    def move(self, move: Move, number: int = 1) -> None:
        """Make this move if it is possible. `number` says how many turns to go back, modulo those there are."""
        self._count += 1
        name = f"p{self._count}"
        if move in ("ask", "ask and inject", "be cut off", "continue", "be blocked"):
            self._ask(name, move)
        elif move == "inject" and self.prompts and not self.undone:
            self._inject(name, "")
        elif move == "compact" and self.turns:
            self.emit(Compacted("What happened.", kept_messages=1000))
        elif move == "reopen":
            self.emit(opened())
        elif move == "add context":
            self.emit(ContextAdded("more", path=f"/{name}"))
        elif move == "run a sub-agent":
            self.emit(TurnStarted("task", "task", "edit_mode"), "a-1")
            self.emit(TurnEnded("task", "error", error_kind="PromptBlocked"), "a-1")
        elif move in ("go back", "take files back") and self.turns:
            self._go_back(name, 1 + number % len(self.turns), chat=move == "go back")
        elif move == "redo" and self.undone:
            rewind, turns, shown = self.undone.pop()
            self.emit(Redone(rewind))
            if len(turns) > len(self.turns):
                self.turns, self.shown = turns, shown
                self.statuses |= dict.fromkeys(self.names, "current")

    def _ask(self, name: str, move: Move) -> None:
        call = ToolCall(f"c{name}", "WriteFile", {})
        text = "" if move == "continue" else name
        if self._cut_off:  # its end is recorded late, maybe after it was rewound
            self.emit(TurnEnded(self._cut_off, "aborted"))
            self._cut_off = ""
        self.emit(TurnStarted(name, text, "edit_mode", continues=move == "continue"))
        for _, turns, _ in self.undone:
            gone = [turn for turn, _ in turns if self.statuses[turn] == "rewound"]
            self.statuses |= dict.fromkeys(gone, "discarded")
        self.undone.clear()
        self.shown.append(name)
        if move == "be blocked":
            self.emit(TurnEnded(name, "error", error_kind="PromptBlocked"))
            self.statuses[name] = "blocked"
            return
        self.statuses[name] = "current"
        self.turns.append((name, [text] if text else []))
        self.emit(UsageRecorded("test/model", Usage(10, 5), 0.25))
        self.emit(TodosChanged((Todo(name, name, "pending"),)))
        self.emit(Replied(ReplyMessage((Text("on it"), call))))
        change = FileChange(FileState(f"/{name}", "absent"), FileState(f"/{name}", "file", "0" * 64))
        self.emit(FilesChanged(call.id, (change,)))
        if move == "be cut off":
            self.emit(opened())
            self._cut_off = name
            return
        self.emit(ToolEnded(call.id, "WriteFile", "success", "written"))
        if move == "ask and inject":
            self._inject(f"{name}i", name)
        self.emit(Replied(ReplyMessage((Text("done"),))))
        self.emit(TurnEnded(name, "end_turn", "done"))

    def _inject(self, name: str, turn: str) -> None:
        self.emit(PromptInjected(name, name, "edit_mode", turn=turn))
        self.turns[-1][1].append(name)
        self.shown.append(name)

    def _go_back(self, name: str, number: int, *, chat: bool) -> None:
        turn = self.names[-number]
        self.emit(Rewound(name, turn, files=True, chat=chat))
        self.undone.append((name, deepcopy(self.turns), list(self.shown)))
        if chat:
            self.statuses |= dict.fromkeys(self.names[-number:], "rewound")
            del self.turns[-number:]
            del self.shown[self.shown.index(turn) :]
