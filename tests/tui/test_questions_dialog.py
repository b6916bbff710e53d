"""The questions dialog over real sessions: the model reads the chosen answers."""

import json
from typing import Any

import pytest

from odin.core.op import AnswerQuestions
from odin.testing import call, say
from odin.ui.tui.dialogs.dialog import RequestDialog
from tests.mcp_client.test_session import call_tiny, make_server_settings
from tests.tui.conftest import OpenApp, Stage
from tests.tui.test_permission_dialog import click_text, list_last_results, wait_for_request, wait_until_closed

ONE = {
    "questions": [
        {
            "header": "Colour",
            "question": "Which colour?",
            "options": [
                {"label": "Red", "description": "like a rose"},
                {"label": "Blue", "description": "like the sea"},
            ],
        }
    ]
}
THREE = {
    "questions": [
        *ONE["questions"],
        {
            "header": "Sizes",
            "question": "Which sizes?",
            "options": [{"label": "S"}, {"label": "M"}],
            "multiSelect": True,
        },
        {"header": "Name", "question": "What is its name?", "options": [{"label": "Ann"}, {"label": "Bob"}]},
    ]
}


def script_with(args: dict[str, Any]) -> list[Any]:
    return [call("Question", args, id="q1"), say("Done.")]


async def wait_for_result(stage: Stage) -> str:
    await stage.shows("Done.")
    await wait_until_closed(stage)
    return list_last_results(stage)["q1"]


async def test_enter_takes_the_first_option(open_app: OpenApp) -> None:
    async with open_app(script_with(ONE)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage, "Odin asks: Colour", "Which colour?", "Red (default)", "like a rose", "Blue")
        await stage.press("enter")
        found = await wait_for_result(stage)
        assert "Red" in found
        assert "Blue" not in found


async def test_arrows_and_numbers_choose_an_option(open_app: OpenApp) -> None:
    for keys in (("down", "enter"), ("2",), ("j", "space", "enter"), ("up", "up", "enter")):
        async with open_app(script_with(ONE)) as stage:
            await stage.send("Ask me.")
            await wait_for_request(stage)
            await stage.press(*keys)
            assert "Blue" in await wait_for_result(stage)


@pytest.mark.slow
async def test_a_free_text_answer(open_app: OpenApp) -> None:
    async with open_app(script_with(ONE)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage)
        await stage.press("o")
        await stage.type("Greenish")
        await stage.press("escape")
        await stage.shows("Greenish", "Which colour?")
        await stage.press("o", "enter")
        assert "Greenish" in await wait_for_result(stage)


async def test_several_questions_with_back_and_review(open_app: OpenApp) -> None:
    async with open_app(script_with(THREE)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage, "Odin asks (1 of 3): Colour")
        await stage.press("2")
        await stage.shows("(2 of 3): Sizes", "[ ] S")
        await stage.press("space", "down", "space")
        await stage.shows("[x] S", "[x] M")
        await stage.press("b")
        await stage.shows("(1 of 3)", "● Blue")
        await stage.press("1")
        await stage.shows("[x] M")
        await stage.press("enter")
        await stage.shows("(3 of 3): Name")
        await stage.press("down", "down", "enter")
        await stage.send("Cid")
        await stage.shows("Your answers", "Red", "S, M", "Cid", "Enter Submit")
        assert len(stage.server.requests) == 1
        await stage.press("enter")
        found = await wait_for_result(stage)
        assert all(word in found for word in ("Red", "S", "M", "Cid"))
        assert "Blue" not in found


async def test_esc_cancels_and_must_be_repeated_if_answers_would_be_lost(open_app: OpenApp) -> None:
    async with open_app(script_with(ONE)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage)
        await stage.press("escape")
        assert "cancelled by user" in (await wait_for_result(stage)).casefold()
    async with open_app(script_with(THREE)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage)
        await stage.press("1")
        await stage.shows("(2 of 3)")
        await stage.press("escape")
        await stage.shows("Esc again cancels all questions")
        assert len(stage.server.requests) == 1
        await stage.press("escape")
        assert "cancelled by user" in (await wait_for_result(stage)).casefold()


@pytest.mark.slow
async def test_questions_are_answered_with_the_mouse(open_app: OpenApp) -> None:
    async with open_app(script_with(THREE)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage)
        await click_text(stage, "like the sea")
        await stage.shows("(2 of 3)")
        await click_text(stage, "[ ] M")
        await stage.shows("[x] M")
        await click_text(stage, "Back")
        await stage.shows("(1 of 3)")
        await click_text(stage, "Next")
        await click_text(stage, "Next")
        await stage.shows("(3 of 3)")
        await click_text(stage, "2 ○ Bob")
        await stage.shows("Your answers")
        await click_text(stage, "Submit")
        found = await wait_for_result(stage)
        assert all(word in found for word in ("Blue", "M", "Bob"))


async def test_the_dialog_closes_when_answered_elsewhere_or_timed_out(open_app: OpenApp) -> None:
    async with open_app(script_with(ONE)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage)
        assert isinstance(stage.app.screen, RequestDialog)
        ask_id = stage.app.screen.ask_id
        await stage.app.client.submit(AnswerQuestions(ask_id, (("Blue",),), by="phone"))
        await stage.shows("This was answered elsewhere.")
        assert "Blue" in await wait_for_result(stage)
    async with open_app(script_with(ONE), config={"question_timeout_s": 4}) as stage:
        await stage.send("Ask me.")
        await stage.shows("s left")
        await stage.shows("No answer in time")
        await stage.shows("Done.")


@pytest.mark.slow
async def test_questions_can_be_answered_on_a_small_screen(open_app: OpenApp) -> None:
    many = {"questions": [{"header": "N", "question": "Which?", "options": [{"label": f"opt{n}"} for n in range(4)]}]}
    async with open_app(script_with(many), size=(40, 12)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage, "Enter Answer")
        await stage.press("up", "up")
        await stage.shows("› 4 ○ opt3", "Enter Answer")
        await stage.press("enter")
        assert "opt3" in await wait_for_result(stage)


@pytest.mark.slow  # the official package takes seconds to load
async def test_a_question_of_an_mcp_server(open_app: OpenApp) -> None:
    turns = [call_tiny("ask", "q1"), say("One."), call_tiny("ask", "q2"), say("Two.")]
    async with open_app(turns, config={"mcp": {"tiny": make_server_settings()}}, allowed_tools=("mcp__tiny",)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage, "MCP server tiny", "Who are you?")
        await stage.type("Ada")
        await stage.press("enter")
        await stage.shows("One.")
        await wait_until_closed(stage)
        assert '"content": {"name": "Ada"}' in list_last_results(stage)["toolu_q1"]
        await stage.send("Again.")
        await wait_for_request(stage, "Who are you?")
        await stage.press("escape")
        await stage.shows("Two.")
        await wait_until_closed(stage)
        assert list_last_results(stage)["toolu_q2"] == '{"action": "cancel"}'


FORM = {
    "name": {"type": "string", "minLength": 2},
    "age": {"type": "integer", "minimum": 18, "title": "Age", "description": "in years"},
    "member": {"type": "boolean", "default": False},
    "color": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
    "sizes": {"type": "array", "items": {"enum": ["S", "M", "L"]}, "minItems": 2},
}


@pytest.mark.slow  # the official package takes seconds to load
async def test_a_form_of_an_mcp_server(open_app: OpenApp) -> None:
    turns = [call_tiny("ask", "q1", text=json.dumps(FORM)), say("One.")]
    async with open_app(turns, config={"mcp": {"tiny": make_server_settings()}}, allowed_tools=("mcp__tiny",)) as stage:
        await stage.send("Ask me.")
        await wait_for_request(stage, "(1 of 5): MCP server tiny: name", "Who are you?", "Never enter a")
        await stage.press("enter")
        await stage.shows("Enter a value.")
        await stage.send("A")
        await stage.shows("Enter at least 2 characters.")
        await stage.send("da")
        await stage.shows("Age: in years")
        await stage.send("ten")
        await stage.shows("Enter a whole number.")
        await stage.press("up")
        await stage.shows("(1 of 5)", "Ada")
        await stage.press("enter", "ctrl+u")
        await stage.send("17")
        await stage.shows("Enter at least 18.")
        await stage.press("backspace")
        await stage.send("8")
        await stage.shows("› 1 ○ No (default)", "2 ○ Yes")
        assert "Other" not in stage.screen()
        await stage.press("o", "2")
        await stage.shows("1 ○ Red (default)", "2 ○ Blue")
        await stage.press("down", "enter")
        await stage.shows("[ ] S")
        await stage.press("enter")
        await stage.shows("Choose at least 2 options.")
        await stage.press("3", "enter")
        await stage.shows("Your answers", "2 MCP server tiny: Age", "S, L")
        await stage.press("enter")
        await stage.shows("One.")
        content = {"name": "Ada", "age": 18, "member": True, "color": "b", "sizes": ["S", "L"]}
        assert json.loads(list_last_results(stage)["toolu_q1"]) == {"action": "accept", "content": content}
