"""State after any sequence of prompts, rewinds and redos."""

from hypothesis import given
from hypothesis import strategies as st

from odin.core.call_events import Replied, TodosChanged, ToolEnded
from odin.core.event import AnyEvent, Envelope, FilesChanged, Redone, Rewound, TurnEnded, TurnStarted
from odin.core.event_values import FileChange, FileState, Todo
from odin.core.message import PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage
from odin.session.state import SessionState

Moves = st.lists(
    st.one_of(
        st.just(("ask", 0)),
        st.just(("ask", 0)),
        st.tuples(st.just("cut off"), st.just(0)),
        st.tuples(st.sampled_from(["back", "files back"]), st.integers(1, 4)),
        st.just(("forward", 0)),
    ),
    max_size=25,
)


class SessionModel:
    """Writes a log, and tracks the expected turns and redo steps in the simplest way."""

    def __init__(self) -> None:
        self.log: list[Envelope] = []
        self.turns: list[str] = []
        self.undone: list[list[str] | None] = []
        self._count = 0

    def emit(self, event: AnyEvent) -> None:
        self.log.append(Envelope(len(self.log), 1.0, "s", event))

    def move(self, kind: str, number: int) -> None:
        if kind in ("ask", "cut off"):
            self.ask(finish=kind == "ask")
        elif kind == "forward":
            if self.undone:
                turns = self.undone.pop()
                self.turns = self.turns if turns is None else turns
                self.emit(Redone("r"))
        elif number <= len(self.turns):
            chat = kind == "back"
            self.emit(Rewound("r", self.turns[-number], files=True, chat=chat))
            self.undone.append(list(self.turns) if chat else None)
            self.turns = self.turns[:-number] if chat else self.turns

    def ask(self, finish: bool) -> None:
        self._count += 1
        name = f"p{self._count}"
        call = ToolCall(f"c{self._count}", "WriteFile", {})
        self.emit(TurnStarted(name, name, "edit_mode"))
        self.emit(TodosChanged((Todo(name, name, "pending"),)))
        self.emit(Replied(ReplyMessage((Text("on it"), call))))
        change = FileChange(FileState(f"/{name}", "absent"), FileState(f"/{name}", "file", "0" * 64))
        self.emit(FilesChanged(call.id, (change,)))
        if finish:
            self.emit(ToolEnded(call.id, "WriteFile", "success", "written"))
            self.emit(Replied(ReplyMessage((Text("done"),))))
            self.emit(TurnEnded(name, "end_turn", "done"))
        self.turns.append(name)
        self.undone.clear()


@given(Moves)
def test_any_sequence_leaves_the_turns_that_were_not_rewound(moves: list[tuple[str, int]]) -> None:
    session = SessionModel()
    for kind, number in moves:
        session.move(kind, number)
    state = SessionState.fold(session.log, "s")
    assert [turn.id for turn in state.turns] == session.turns
    assert [turn.files for turn in state.turns] == [1] * len(session.turns)
    assert [todo.id for todo in state.conversation.todos] == session.turns[-1:]
    history = state.build_history()
    assert [message.text for message in history if isinstance(message, PromptMessage)] == session.turns
    asked = [call.id for message in history if isinstance(message, ReplyMessage) for call in message.calls]
    given_back = [
        result.call_id for message in history if isinstance(message, ToolMessage) for result in message.results
    ]
    assert asked == given_back == [name.replace("p", "c") for name in session.turns]
    assert (state.conversation.redoable_rewind is not None) == bool(session.undone)
    for name in session.turns:
        assert f"/{name}" in [change.change.before.path for change in state.list_changes_since(name) or ()]
