"""Every kind of interaction is shown and answered in every front end, from the same object."""

import io
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from mcp_types import ElicitResult

from odin.commands.mcp_serve import make_form, read_form
from odin.core.call_events import AskEvent, PermissionAsked, PlanAsked, QuestionsAsked
from odin.core.event_values import Option, Question
from odin.core.interaction import Interaction, TrustRequest, ask_for_trust, make_interaction, read_answer, record_answer
from odin.core.op import Answer, AnswerPermission, AnswerPlan, AnswerQuestions
from odin.ui.callbacks import Allow, decide
from odin.ui.plain.dialogs import ask_user
from odin.ui.stream_json.permissions import PermissionRequests
from odin.ui.terminal import TextPainter
from odin.ui.trust_prompt import ask_trust
from tests.tui.conftest import run_app
from tests.tui.key_cases import Scene

COLOR = (Question("Color", "Which color?", (Option("Red"), Option("Blue", "like the sea"))),)
ASKED: dict[str, AskEvent] = {
    "permission": PermissionAsked("a1", "c", "Bash", {"command": "make"}, "It may change things.", "make", ("Bash",)),
    "questions": QuestionsAsked("a1", "c", COLOR),
    "elicitation": QuestionsAsked("a1", "c", COLOR, "tiny"),
    "plan": PlanAsked("a1", "c", "/p/plan-001.md", "Rename it", "1. Rename it.", ("builder",)),
}
SHOWN = {"permission": "make", "questions": "Which color?", "elicitation": "Which color?", "plan": "Rename it"}
BLUE = (("Blue",),)
YES = {
    "permission": Answer("a1", "allow_once"),
    "questions": Answer("a1", "answer", answers=BLUE),
    "elicitation": Answer("a1", "answer", answers=BLUE),
    "plan": Answer("a1", "approve"),
}
"""The answer with which a user agrees, or chooses Blue."""

Front = Callable[[AskEvent], Awaitable[tuple[str, Any]]]
"""Shows what was asked, agrees, and returns what was shown and the op."""


class ScriptedTty:
    """A terminal on which the user types these lines."""

    painter = TextPainter(None)

    def __init__(self, *lines: str) -> None:
        self.shown = ""
        self._lines = list(lines)

    def get_columns(self) -> int:
        return 80

    def get_rows(self) -> int:
        return 24

    def write(self, text: str) -> None:
        self.shown += text

    async def ask_line(self, text: str) -> str:
        self.shown += text
        return self._lines.pop(0)


class RecordingClient:
    def __init__(self) -> None:
        self.submitted: list[Any] = []

    async def submit(self, op: object) -> bool:
        self.submitted.append(op)
        return True


async def answer_in_plain_mode(asked: AskEvent) -> tuple[str, Any]:
    typed = {"permission": "y\n", "plan": "1\n"}
    tty: Any = ScriptedTty(typed.get(make_interaction(asked).kind, "2\n"))
    client: Any = RecordingClient()
    answer = await ask_user(tty, make_interaction(asked), client)
    return tty.shown, answer


async def answer_over_stream_json(asked: AskEvent) -> tuple[str, Any]:
    client: Any = RecordingClient()
    sent: list[dict[str, Any]] = []

    async def update(_: object) -> None: ...

    requests = PermissionRequests(client, sent.append, update)
    requests.is_open = True
    requests.ask(make_interaction(asked))
    response = {"behavior": "allow", "updatedInput": {**sent[0]["request"]["input"], **_choose_blue(asked)}}
    await requests.take_answer({"subtype": "success", "request_id": "a1", "response": response})
    return str(sent), client.submitted[0]


def _choose_blue(asked: AskEvent) -> dict[str, Any]:
    return {"answers": {"Which color?": "Blue"}} if isinstance(asked, QuestionsAsked) else {}


async def answer_from_python(asked: AskEvent) -> tuple[str, Any]:
    seen: list[Any] = []

    def can_use_tool(name: str, args: dict[str, Any], request: object) -> Allow:
        seen.extend((name, args, request))
        return Allow({**args, **_choose_blue(asked)})

    answer = await decide(can_use_tool, asked)
    return str(seen), answer


async def answer_over_mcp(asked: AskEvent) -> tuple[str, Any]:
    form = make_form(make_interaction(asked))
    content: Any = {"decision": "allow"} if "decision" in form.requested_schema["properties"] else {"answer_1": "Blue"}
    answer = read_form(make_interaction(asked), ElicitResult(action="accept", content=content))
    return f"{form.message} {form.requested_schema}", answer


async def answer_in_the_app(asked: AskEvent) -> tuple[str, Any]:
    scene = Scene()
    async with run_app(scene.sessions) as stage:
        await scene.wait_until_loaded(stage)
        await scene.ask(asked)
        shown = stage.screen()
        await scene.dialog.run_action({"permission": "allow_once", "plan": "approve_plan"}.get(_kind(asked), "pick(1)"))
        await stage.until(lambda: any(isinstance(op, Answer) for op in scene.client.submitted))
        return shown, next(op for op in scene.client.submitted if isinstance(op, Answer))


def _kind(asked: AskEvent) -> str:
    return make_interaction(asked).kind


FRONT_ENDS: dict[str, tuple[Front, str]] = {
    "app": (answer_in_the_app, "user"),
    "plain": (answer_in_plain_mode, "user"),
    "stream-json": (answer_over_stream_json, "sdk"),
    "python": (answer_from_python, "api"),
    "mcp": (answer_over_mcp, "mcp"),
}


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("name", FRONT_ENDS)
async def test_front_end_shows_and_answers(name: str, kind: str) -> None:
    front, by = FRONT_ENDS[name]
    shown, answer = await front(ASKED[kind])
    wanted = msgspec.structs.replace(YES[kind], by=by)
    if (name, kind) == ("mcp", "plan"):  # the plan is the result of the call and is not asked about
        wanted, shown = Answer("a1", "keep_planning", by="mcp"), SHOWN[kind]
    assert SHOWN[kind] in shown
    defaults = {"args": None, "plan": ""}  # a program sends the input back even if it is unchanged
    assert msgspec.structs.replace(answer, **defaults) == wanted
    make_interaction(ASKED[kind]).find_choice(answer.choice)


@pytest.mark.parametrize("kind", ASKED)
def test_interaction_is_the_same_over_json(kind: str) -> None:
    made = make_interaction(ASKED[kind], "agent-1")
    assert made.kind == kind
    assert made.agent == "agent-1"
    assert msgspec.json.decode(msgspec.json.encode(made), type=Interaction) == made
    assert made.default in [choice.key for choice in made.choices]
    names = {field.name for field in made.form}
    assert all(names.issuperset(choice.fields) for choice in made.choices)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("permission", AnswerPermission("a1", True)),
        ("questions", AnswerQuestions("a1", BLUE)),
        ("plan", AnswerPlan("a1", "approve")),
    ],
)
def test_ops_of_one_kind_and_recorded_answers_are_the_same_answer(kind: str, given: Any) -> None:
    assert read_answer(given) == YES[kind]
    assert read_answer(record_answer(ASKED[kind], YES[kind])) == YES[kind]


@pytest.mark.parametrize(("typed", "answer"), [("yes\n", "yes"), ("network\n", "network"), ("y\n", "no"), ("", "no")])
def test_trust_is_asked_in_a_terminal(typed: str, answer: str) -> None:
    request = TrustRequest("/p", starts=("a server",), servers=("a server",))
    made = ask_for_trust(request)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Interaction) == made
    screen = io.StringIO()
    assert ask_trust(request, io.StringIO(typed), screen) == answer
    assert made.title in screen.getvalue()
    made.find_choice(answer)


def test_settings_that_are_not_shown_as_a_whole_cannot_be_trusted() -> None:
    made = ask_for_trust(TrustRequest("/p", starts=("one\n  | two", *("a server",) * 200)))
    assert [choice.key for choice in made.choices] == ["no"]
    assert "odin trust" in made.effect
    assert next(detail.text for detail in made.details if detail.kind == "quote") == "one\\n  | two"
    assert "… and 1 more" in [detail.text for detail in made.details]


@pytest.mark.parametrize(
    ("limits", "words", "problem"),
    [
        ({"required": True}, (), "Enter a value."),
        ({}, (), ""),
        ({"minimum": 3}, ("ab",), "Enter at least 3 characters."),
        ({"type": "number", "maximum": 2.5}, ("3",), "Enter at most 2.5."),
        ({"type": "number"}, ("3e",), "Enter a number."),
        ({"type": "integer"}, ("3.5",), "Enter a whole number."),
        ({"type": "choice"}, ("Green",), "Choose one of the options."),
        ({"type": "choice", "multiple": True, "minimum": 2}, ("Red",), "Choose at least 2 options."),
        ({"type": "choice", "multiple": True, "maximum": 1}, ("Red", "Blue"), "Choose at most 1 option."),
        ({"type": "choice", "multiple": True, "minimum": 2}, ("Red", "Red"), "Choose at least 2 options."),
        ({"type": "integer", "options": COLOR[0].options}, ("Red",), ""),
        ({"type": "integer"}, ("1_000",), "Enter a whole number."),
        ({"type": "number"}, ("nan",), "Enter a number."),
        ({"minimum": 3}, (" ab ",), "Enter at least 3 characters."),
        ({"required": True}, ("  ",), "Enter a value."),
        ({"type": "email"}, ("ada",), "Enter an e-mail address."),
        ({"type": "date"}, ("2026-02-30",), "Enter a date like 2026-12-31."),
        ({"type": "date-time"}, ("2026-02-03",), "Enter a date and time like 2026-12-31T18:00:00Z."),
        ({"type": "uri"}, ("example.org",), "Enter an address like https://example.org."),
        ({"type": "uri"}, ("https://example.org",), ""),
    ],
)
def test_a_field_says_what_is_wrong_with_an_answer(limits: dict[str, Any], words: Any, problem: str) -> None:
    given: dict[str, Any] = {"options": COLOR[0].options if limits.get("type") == "choice" else (), **limits}
    field = make_interaction(QuestionsAsked("a1", "c", (Question("Color", "Which color?", **given),))).form[0]
    assert field.find_problem(words) == problem
