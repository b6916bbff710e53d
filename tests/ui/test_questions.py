"""Questions of the Question tool: in a terminal, and the meaning of typed answers and those of SDK clients."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import QuestionsAsked
from odin.core.event_values import Option, Question
from odin.core.interaction import FormField, make_interaction
from odin.core.op import Answer
from odin.testing import ScriptedServer, Turn, call, reply, say
from odin.ui.callbacks import make_sdk_answer, parse_choice
from odin.ui.plain.dialogs import ask_user, format_field
from tests.table import each
from tests.ui.pseudo_terminal import open_terminal

ONE = Question("Colour", "Which?", (Option("Red"), Option("Dark blue"), Option("Green")))
MANY = Question("Colour", "Which?", ONE.options, multiple=True)
OPEN = Question("Name", "What name?")


@each(
    ("question", "typed", "answer"),
    [
        (ONE, "2\n", ("Dark blue",)),
        (ONE, " dark BLUE \n", ("Dark blue",)),
        (ONE, "\n", ()),
        (ONE, "none, they are ugly", ("none, they are ugly",)),
        (ONE, "7", ("7",)),
        (ONE, "1,3", None),
        (ONE, "red, green", None),
        (MANY, "1,3", ("Red", "Green")),
        (MANY, "3 1", ("Green", "Red")),
        (MANY, "1, dark blue", ("Red", "Dark blue")),
        (MANY, "1,1", ("Red",)),
        (MANY, "1, purple", ("1, purple",)),
        (MANY, "1,9", ("1,9",)),
        (OPEN, "Mimir, the old one\n", ("Mimir, the old one",)),
        (OPEN, "3", ("3",)),
        (OPEN, "\n", ()),
    ],
)
def test_typed_answer_is_parsed(question: Question, typed: str, answer: tuple[str, ...] | None) -> None:
    assert parse_choice(question, typed) == answer


def answer_as_sdk(question: Question, changed: Any) -> object:
    asked = make_interaction(QuestionsAsked("a", "c", (question,)))
    return make_sdk_answer(asked, "sdk", allow=True, message="", changed=changed, interrupt=False)


@pytest.mark.parametrize(
    ("question", "given", "answer"),
    [
        (ONE, "Red", ("Red",)),
        (MANY, "Red, Green", ("Red", "Green")),
        (MANY, ["Red", "Green"], ("Red", "Green")),
        (MANY, "Red, or Green", ("Red, or Green",)),
        (ONE, "", ()),
        (ONE, None, ()),
        (ONE, 3, ("3",)),
    ],
)
def test_answers_of_an_sdk_client_are_parsed(question: Question, given: Any, answer: tuple[str, ...]) -> None:
    assert answer_as_sdk(question, {"answers": {"Which?": given}}) == Answer("a", "answer", answers=(answer,), by="sdk")


@pytest.mark.parametrize("changed", [None, {}, {"answers": []}, {"answers": {"Other?": "x"}}, "text"])
def test_missing_answers_of_an_sdk_client_are_the_defaults(changed: Any) -> None:
    assert answer_as_sdk(ONE, changed) == Answer("a", "answer", answers=((),), by="sdk")


def test_control_characters_of_a_question_are_escaped() -> None:
    text = format_field(FormField("answers", "h\x1b[2J", "one\ntwo\r", options=(Option("a\x07", "b\u202e"),)))
    assert not set(text) & set("\x1b\r\x07\u202e")
    assert "one\n  two" in text


ASK = call(
    "Question",
    {
        "questions": [
            {"header": "Colour", "text": "Which?", "options": [{"label": "Red"}, {"label": "Blue", "detail": "dark"}]},
            {"header": "Name", "text": "What name?"},
        ]
    },
    id="q1",
)


def test_questions_are_asked_one_after_the_other(workspace: Path) -> None:
    with (
        ScriptedServer([ASK, say("Done.")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        shown = terminal.see("Ctrl-D cancels): ")
        assert "What name?" not in shown
        terminal.type("1,2\n")
        terminal.see("Choose only one: ")
        terminal.type("2\n")
        terminal.see("→ Blue")
        terminal.see("(2 of 2): Name: What name?")
        terminal.type("Mimir\n")
        assert terminal.wait_for_exit() == (0, "Done.\n")
        assert server.requests[1].results["q1"] == "The user answered:\nColour: Blue\nName: Mimir"
    assert "(1 of 2): Colour: Which?\r\n  1. Red\r\n  2. Blue (dark)\r\n" in shown


def test_enter_takes_the_default_and_ctrl_d_cancels(workspace: Path) -> None:
    with (
        ScriptedServer([ASK, say("As you like.")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see("Ctrl-D cancels): ")
        terminal.type("\n")
        terminal.see("→ Red")
        terminal.see("Answer (Ctrl-D cancels): ")
        terminal.type("\x04")
        assert terminal.wait_for_exit() == (0, "As you like.\n")
        assert server.requests[1].results["q1"] == "cancelled by user"


def test_ctrl_c_at_a_question_ends_the_turn(workspace: Path) -> None:
    with (
        ScriptedServer([ASK, say("never said")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see("Ctrl-D cancels): ")
        terminal.type("\x03")
        code, _ = terminal.wait_for_exit()
        assert len(server.requests) == 1
    assert code == 130


@pytest.mark.parametrize(
    "asked", [ASK, call("ExecuteCommand", {"command": "touch made"}, id="w")], ids=["question", "permission"]
)
def test_chat_continues_after_ctrl_c_at_a_question(workspace: Path, asked: Turn) -> None:
    with (
        ScriptedServer([asked, say("Still here.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("Go.\n")
        terminal.see("cancels): " if asked is ASK else "say why not: ")
        terminal.type("\x03")
        terminal.see("Interrupted.\r\nedit> ")
        terminal.type("Are you there?\n")
        terminal.see("Still here.")
        terminal.see("edit> ")
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 0
        assert len(server.requests) == 2


def test_question_and_permission_request_are_asked_one_after_the_other(workspace: Path) -> None:
    write = call("ExecuteCommand", {"command": "touch made"}, id="w")
    with (
        ScriptedServer([reply("", [ASK, write]), say("All done.")]) as server,
        open_terminal(
            "--commands-ask", "before", cwd=workspace, env=server.env("anthropic"), with_stdout=True
        ) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("Go.\n")
        terminal.see("say why not: ")
        terminal.type("y\n")
        terminal.see("Which?")
        terminal.see("Ctrl-D cancels): ")
        terminal.type("blue\n")
        terminal.see("Answer (Ctrl-D cancels): ")
        terminal.type("Mimir\n")
        terminal.see("All done.")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert "Colour: Blue\nName: Mimir" in server.requests[1].results["q1"]
    assert (workspace / "made").exists()


def test_question_tool_is_not_offered_without_a_terminal(workspace: Path, run_odin: Any) -> None:
    with ScriptedServer([ASK, say("I chose.")]) as server:
        ran = run_odin("-p", "Go.", "--permission-prompt-tool", "stdio", env=server.env("anthropic"))
        assert "No user can be asked" in server.requests[1].results["q1"]
        assert "Question" not in server.requests[0].tool_names
    assert ran.stdout == "I chose.\n"


class TypedLines:
    """A terminal at which these lines are typed, one for each question."""

    def __init__(self, *lines: str) -> None:
        self.shown = ""
        self._lines = iter(lines)

    def write(self, text: str) -> None:
        self.shown += text

    async def ask_line(self, text: str) -> str:
        self.write(text)
        return next(self._lines)


async def test_a_form_is_asked_again_until_its_values_fit() -> None:
    age = Question("Age", "How old?", type="integer", required=True, minimum=18, maximum=99)
    size = Question("Size", "Which?", (Option("S"), Option("L")), type="choice")
    terminal: Any = TypedLines("\n", "old\n", "7\n", "42\n", "huge\n", "2\n")
    answer = await ask_user(terminal, make_interaction(QuestionsAsked("a", "c", (age, size), "tiny")), None)  # pyright: ignore[reportArgumentType]
    assert answer == Answer("a", "answer", answers=(("42",), ("L",)))
    for said in ("Enter a value: ", "Enter a whole number: ", "Enter at least 18: ", "Choose one of the options: "):
        assert said in terminal.shown
