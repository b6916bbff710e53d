"""The questions of a tool, over real sessions: what is chosen is what the model reads."""

from typing import Any

import pytest

from odin.core.op import AnswerQuestions
from odin.testing import call, say
from odin.ui.tui.dialogs.dialog import RequestDialog
from tests.mcp_client.test_session import tiny, use
from tests.tui.conftest import OpenApp, Stage
from tests.tui.test_permission_dialog import asked, click, over, results

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


def script(args: dict[str, Any]) -> list[Any]:
    return [call("Question", args, id="q1"), say("Done.")]


async def answered(stage: Stage) -> str:
    await stage.shows("Done.")
    await over(stage)
    return results(stage)["q1"]


async def test_enter_takes_the_first(open_app: OpenApp) -> None:
    async with open_app(script(ONE)) as stage:
        await stage.send("Ask me.")
        await asked(stage, "Odin asks: Colour", "Which colour?", "Red (default)", "like a rose", "Blue")
        await stage.press("enter")
        found = await answered(stage)
        assert "Red" in found
        assert "Blue" not in found


async def test_an_option_by_arrow_and_by_number(open_app: OpenApp) -> None:
    for keys in (("down", "enter"), ("2",), ("j", "space", "enter"), ("up", "up", "enter")):
        async with open_app(script(ONE)) as stage:
            await stage.send("Ask me.")
            await asked(stage)
            await stage.press(*keys)
            assert "Blue" in await answered(stage)


@pytest.mark.slow
async def test_words_of_ones_own(open_app: OpenApp) -> None:
    async with open_app(script(ONE)) as stage:
        await stage.send("Ask me.")
        await asked(stage)
        await stage.press("o")
        await stage.type("Greenish")
        await stage.press("escape")
        await stage.shows("Greenish", "Which colour?")
        await stage.press("o", "enter")
        assert "Greenish" in await answered(stage)


@pytest.mark.slow
async def test_several_in_turn_with_a_way_back_and_a_review(open_app: OpenApp) -> None:
    async with open_app(script(THREE)) as stage:
        await stage.send("Ask me.")
        await asked(stage, "Odin asks (1 of 3): Colour")
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
        found = await answered(stage)
        assert all(word in found for word in ("Red", "S", "M", "Cid"))
        assert "Blue" not in found


@pytest.mark.slow
async def test_esc_is_a_no_and_asks_before_answers_are_lost(open_app: OpenApp) -> None:
    async with open_app(script(ONE)) as stage:
        await stage.send("Ask me.")
        await asked(stage)
        await stage.press("escape")
        assert "cancelled by user" in (await answered(stage)).casefold()
    async with open_app(script(THREE)) as stage:
        await stage.send("Ask me.")
        await asked(stage)
        await stage.press("1")
        await stage.shows("(2 of 3)")
        await stage.press("escape")
        await stage.shows("Esc again cancels all questions")
        assert len(stage.server.requests) == 1
        await stage.press("escape")
        assert "cancelled by user" in (await answered(stage)).casefold()


@pytest.mark.slow
async def test_by_mouse(open_app: OpenApp) -> None:
    async with open_app(script(THREE)) as stage:
        await stage.send("Ask me.")
        await asked(stage)
        await click(stage, "like the sea")
        await stage.shows("(2 of 3)")
        await click(stage, "[ ] M")
        await stage.shows("[x] M")
        await click(stage, "Back")
        await stage.shows("(1 of 3)")
        await click(stage, "Next")
        await click(stage, "Next")
        await stage.shows("(3 of 3)")
        await click(stage, "2 ○ Bob")
        await stage.shows("Your answers")
        await click(stage, "Submit")
        found = await answered(stage)
        assert all(word in found for word in ("Blue", "M", "Bob"))


@pytest.mark.slow
async def test_a_question_answered_elsewhere_or_too_late_goes_away(open_app: OpenApp) -> None:
    async with open_app(script(ONE)) as stage:
        await stage.send("Ask me.")
        await asked(stage)
        assert isinstance(stage.app.screen, RequestDialog)
        ask_id = stage.app.screen.ask_id
        await stage.app.client.submit(AnswerQuestions(ask_id, (("Blue",),), by="phone"))
        await stage.shows("Answered elsewhere.")
        assert "Blue" in await answered(stage)
    async with open_app(script(ONE), config={"question_timeout_s": 4}) as stage:
        await stage.send("Ask me.")
        await stage.shows("s left")
        await stage.shows("No answer in time")
        await stage.shows("Done.")


@pytest.mark.slow
async def test_it_can_be_answered_on_a_small_screen(open_app: OpenApp) -> None:
    many = {"questions": [{"header": "N", "question": "Which?", "options": [{"label": f"opt{n}"} for n in range(9)]}]}
    many["questions"][0]["options"] = many["questions"][0]["options"][:4]
    async with open_app(script(many), size=(40, 12)) as stage:
        await stage.send("Ask me.")
        await asked(stage, "Enter Answer")
        await stage.press("up", "up")
        await stage.shows("› 4 ○ opt3", "Enter Answer")
        await stage.press("enter")
        assert "opt3" in await answered(stage)


@pytest.mark.slow  # the official package takes seconds to load
async def test_a_question_of_an_mcp_server(open_app: OpenApp) -> None:
    turns = [use("ask", "q1"), say("One."), use("ask", "q2"), say("Two.")]
    async with open_app(turns, config={"mcp": {"tiny": tiny()}}, allowed_tools=("mcp__tiny",)) as stage:
        await stage.send("Ask me.")
        await asked(stage, "MCP server tiny", "Who are you?")
        await stage.type("Ada")
        await stage.press("enter")
        await stage.shows("One.")
        await over(stage)
        assert '"content": {"name": "Ada"}' in results(stage)["toolu_q1"]
        await stage.send("Again.")
        await asked(stage, "Who are you?")
        await stage.press("escape")
        await stage.shows("Two.")
        await over(stage)
        assert results(stage)["toolu_q2"] == '{"action": "cancel"}'
