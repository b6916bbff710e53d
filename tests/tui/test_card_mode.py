"""Card mode: only a key starts it, a hint says how to leave it, and letters are never lost."""

import pytest
from textual import events

from odin.core.event import AgentStarted, PromptQueued, TurnStarted
from odin.core.op import Interrupt, Prompt
from odin.testing import say
from odin.ui.tui.dialogs.form import FormDialog
from tests.tui.conftest import OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions
from tests.tui.key_cases import Scene

SENTENCE = "please explain every query, jokingly"
"""Contains every letter that is a key in card mode or in the queue."""


async def click_everything(stage: Stage) -> None:
    width, height = stage.app.size
    for x, y in ((3, 2), (width // 2, 4), (width - 1, 5), (4, height // 2), (width - 3, 3), (2, height - 1)):
        await stage.pilot.click(offset=(x, y))
    await stage.pilot.mouse_down(offset=(4, 2))
    await stage.pilot.hover(offset=(12, 3))
    await stage.pilot.mouse_up(offset=(12, 3))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 20), (100, 30), (150, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_letters_reach_the_composer_whatever_was_clicked(size: tuple[int, int]) -> None:
    scene = Scene()
    async with run_app(scene.sessions, size=size) as stage:
        await scene.wait_until_loaded(stage)
        scene.client.emit(TurnStarted("t", "work", "edit_mode"), PromptQueued("q1", "later", "edit_mode"))
        await stage.shows("later")
        await click_everything(stage)
        await stage.pilot.click("#queue", offset=(6, 0))
        await stage.type(SENTENCE)
        assert stage.app.composer.text == SENTENCE
        assert not scene.sessions.forked and not scene.client.submitted


async def test_the_hint_names_the_key_that_opens_the_agent_of_a_card() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(
            AgentStarted("scout-1", "look", "edit_mode", "find tests", task_id="adhoc-1"),
            TurnStarted("t", "begin", "edit_mode"),
        )
        await stage.shows("find tests", "begin")
        await stage.press("alt+up")
        await stage.shows("Cards:")
        assert "its transcript" not in stage.screen()
        await stage.press("k")
        await stage.shows("a its transcript")
        await stage.press("j")
        await stage.until(lambda: "its transcript" not in stage.screen())


@pytest.mark.slow
async def test_ctrl_c_copies_a_selection_and_typing_still_reaches_the_composer() -> None:
    scene = Scene()
    async with run_app(scene.sessions) as stage:
        await scene.wait_until_loaded(stage)
        view = stage.app.transcript
        row = next(y for y, line in enumerate(stage.screen().splitlines()) if "Answer" in line) - view.region.y
        await stage.pilot.mouse_down(view, offset=(2, row))
        await stage.pilot.hover(view, offset=(9, row))
        await stage.pilot.mouse_up(view, offset=(9, row))
        await stage.press("ctrl+c")
        await stage.shows("Copied.")
        await stage.send("explain")
        await stage.until(lambda: [op.text for op in scene.client.submitted if isinstance(op, Prompt)] == ["explain"])
        assert not scene.sessions.forked


async def test_the_hint_names_the_keys_and_how_to_leave() -> None:
    scene = Scene()
    async with run_app(scene.sessions) as stage:
        await scene.wait_until_loaded(stage)
        assert "Cards:" not in stage.screen()
        await stage.press("ctrl+up")
        await stage.shows("Cards:  Up/Down move  Enter open  y copy  e edit in a copy  / search", "  Esc back")
        await stage.press("escape")
        await stage.until(lambda: "Cards:" not in stage.screen() and stage.app.composer.has_focus)
        await stage.press("ctrl+up")
        await stage.pilot.resize_terminal(40, 12)
        await stage.shows("Cards:", "  Esc back")


async def test_esc_leaves_card_mode_before_it_interrupts() -> None:
    scene = Scene()
    async with run_app(scene.sessions) as stage:
        await scene.wait_until_loaded(stage)
        scene.client.emit(TurnStarted("t", "work", "edit_mode"))
        await stage.until(lambda: stage.app.executing)
        await stage.press("ctrl+up", "escape")
        assert stage.app.composer.has_focus and not scene.client.submitted
        await stage.press("escape")
        await stage.until(lambda: scene.client.submitted == [Interrupt()])


async def test_letters_without_a_binding_return_to_the_composer() -> None:
    scene = Scene()
    async with run_app(scene.sessions) as stage:
        await scene.wait_until_loaded(stage)
        for typed in ("Please", "what is this?", "über"):
            await stage.press("ctrl+up")
            await stage.type(typed)
            assert stage.app.composer.text == typed and stage.app.composer.has_focus
            stage.app.composer.clear_draft()


async def test_a_paste_returns_to_the_composer() -> None:
    scene = Scene()
    async with run_app(scene.sessions) as stage:
        await scene.wait_until_loaded(stage)
        await stage.press("ctrl+up")
        stage.app.post_message(events.Paste("exit"))
        await stage.until(lambda: stage.app.composer.text == "exit")


@pytest.mark.slow
async def test_editing_a_prompt_in_a_copy_asks_first() -> None:
    scene = Scene()
    async with run_app(scene.sessions) as stage:
        await scene.wait_until_loaded(stage)
        for answer in ("n", "x", "escape"):
            await stage.press("ctrl+up", "e")
            await stage.shows("Edit this prompt in a copy of the session?", "The original session stays as it is.")
            await stage.press(answer)
            await stage.until(lambda: len(stage.app.screen_stack) == 1)
            assert not scene.sessions.forked, answer
        await stage.press("ctrl+up", "e")
        await stage.until(lambda: isinstance(stage.app.screen, FormDialog))
        await stage.press("y")
        await stage.until(lambda: scene.sessions.forked == ["t11"])


@pytest.mark.slow
async def test_sending_scrolls_to_the_end(open_app: OpenApp) -> None:
    long = "\n\n".join(f"Line {number}." for number in range(80))
    async with open_app([say(long), say("The second answer.")]) as stage:
        await stage.send("first")
        await stage.shows("Line 79.")
        await stage.idle()
        await stage.press("ctrl+home")
        await stage.until(lambda: "Line 79." not in stage.screen())
        await stage.send("second")
        await stage.shows("second", "The second answer.")
        await stage.press("ctrl+home")
        await stage.send("!echo here it is")
        await stage.shows("here it is")
