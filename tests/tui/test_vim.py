"""The option for Vim-style navigation: Esc moves from the composer to the transcript, letters move in it."""

import pytest

from odin.core.event import TurnStarted
from odin.core.op import Interrupt
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.dialogs.reports import HelpDialog
from odin.ui.tui.lifecycle import DoublePress
from odin.ui.tui.search import SearchBar
from odin.ui.tui.timing import DEFAULT_APP_TIMING
from tests.tui.conftest import run_app
from tests.tui.key_cases import Scene, get_cursor_index, list_folds

VIM = TuiSettings(bell=False, title=False, side_panel=False, vim=True)


@pytest.mark.slow
async def test_after_esc_letters_move_in_the_transcript() -> None:
    scene = Scene()
    async with run_app(scene.sessions, settings=VIM) as stage:
        await scene.wait_until_loaded(stage)
        view = scene.app.transcript
        await stage.type("a draft")
        await stage.press("escape")
        assert view.has_focus and scene.app.composer.text == "a draft"
        await stage.press("g", "g")
        assert get_cursor_index(scene) == 0 and view.scroll_offset.y == 0
        await stage.press("j", "j", "k")
        assert get_cursor_index(scene) == 1
        await stage.press("G")
        await stage.until(lambda: view.following and "▌ Answer 11." in stage.screen())
        await stage.press("g", "slash")
        await stage.type("Answer")
        await stage.shows("1 of 12")
        await stage.press("enter", "n")
        await stage.shows("2 of 12")
        await stage.press("N", "N")
        await stage.shows("12 of 12")
        await stage.press("escape")
        assert not scene.app.query_one(SearchBar).is_open and view.has_focus
        await stage.press("i")
        assert scene.app.composer.has_focus and scene.app.composer.text == "a draft"


@pytest.mark.slow
async def test_letters_fold_cards_edit_prompts_and_show_help() -> None:
    scene = Scene()
    async with run_app(scene.sessions, settings=VIM) as stage:
        await scene.wait_until_loaded(stage)
        await stage.press("escape", "k")
        for key in ("o", "enter", "space"):
            before = list_folds(scene)
            await stage.press(key)
            assert list_folds(scene) != before, key
        await stage.press("question_mark")
        await stage.until(lambda: isinstance(scene.dialog, HelpDialog))
        await stage.press("escape", "e", "y")
        await stage.until(lambda: scene.sessions.forked == ["t11"])


def test_the_second_press_comes_within_two_seconds() -> None:
    times = [0.0, 2.1, 4.1, 4.2, 6.3]
    press = DoublePress(DEFAULT_APP_TIMING.double_press_s, iter(times).__next__)
    assert [press.press() for _ in times] == [False, False, True, False, False]


async def test_q_twice_exits() -> None:
    scene = Scene()
    async with run_app(scene.sessions, settings=VIM) as stage:
        await scene.wait_until_loaded(stage)
        await stage.press("q")
        assert scene.app.composer.text == "q"
        await stage.press("escape", "q")
        await stage.shows("Press q again to exit.")
        assert not scene.app._exit
        await stage.press("q")
        await stage.until(lambda: scene.app._exit)


async def test_esc_in_the_transcript_interrupts_the_turn() -> None:
    scene = Scene()
    async with run_app(scene.sessions, settings=VIM) as stage:
        await scene.wait_until_loaded(stage)
        scene.client.emit(TurnStarted("t", "work", "edit_mode"))
        await stage.until(lambda: scene.app.executing)
        await stage.press("escape")
        assert scene.app.transcript.has_focus and not scene.client.submitted
        await stage.press("escape")
        await stage.until(lambda: scene.client.submitted == [Interrupt()])


async def test_without_the_option_esc_interrupts_at_once() -> None:
    scene = Scene()
    settings = TuiSettings(bell=False, title=False)
    async with run_app(scene.sessions, settings=settings) as stage:
        await scene.wait_until_loaded(stage)
        scene.client.emit(TurnStarted("t", "work", "edit_mode"))
        await stage.until(lambda: scene.app.executing)
        await stage.press("escape")
        await stage.until(lambda: scene.client.submitted == [Interrupt()])
        assert scene.app.composer.has_focus
