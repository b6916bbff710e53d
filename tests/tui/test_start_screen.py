"""The start screen: what it shows at each size, and that the first message removes it."""

import pytest

from odin.core.event import TurnStarted
from odin.testing import say
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.panels.status import list_tips
from tests.tui.conftest import OpenApp, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

FACTS = ("Odin 0.1.0", "model", "directory", "sandbox")


@pytest.mark.parametrize(
    ("size", "shown", "hidden"),
    [
        ((120, 40), (*FACTS, *list_tips(KeyTable())), ()),
        ((60, 20), (*FACTS, *list_tips(KeyTable())), ()),
        ((60, 14), FACTS, ("Describe a task",)),
        ((40, 10), (), ("Odin 0.1.0", "Describe a task")),
    ],
)
async def test_the_start_screen_shrinks_with_the_window(
    size: tuple[int, int], shown: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    async with run_app(FakeSessions(FakeClient(version="0.1.0")), size=size) as stage:
        await stage.shows("edit", *shown)
        assert [words for words in hidden if words in stage.screen()] == []


async def test_the_first_prompt_removes_the_start_screen_and_new_shows_it_again(open_app: OpenApp) -> None:
    async with open_app([say("Hello.")]) as stage:
        await stage.shows("directory", "Describe a task")
        await stage.send("hi")
        await stage.shows("Hello.")
        assert "Describe a task" not in stage.screen()
        await stage.idle()
        await stage.send("/new")
        await stage.shows("Describe a task")


async def test_a_resumed_session_has_no_start_screen() -> None:
    client = FakeClient([TurnStarted("t1", "What is it?", "ask_mode")])
    async with run_app(FakeSessions(client)) as stage:
        await stage.shows("What is it?")
        assert "Describe a task" not in stage.screen()
