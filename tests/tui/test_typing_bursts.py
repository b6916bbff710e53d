"""Text typed while a permission dialog opens does not answer it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from odin.testing import call, say
from odin.ui.tui.dialogs.dialog import RequestDialog
from tests.tui.conftest import SHORT_WAITS, OpenApp, Stage

SCRIPT = [call("ExecuteCommand", {"command": "touch made"}, id="c1"), say("Done.")]


LONG_BURSTS = replace(SHORT_WAITS, key_debounce_s=20.0)
"""Long enough for a busy machine."""


async def open_request(stage: Stage) -> None:
    await stage.send("Make it.")
    await stage.until(lambda: isinstance(stage.app.screen, RequestDialog) and stage.app.screen.ready)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["xy", "/compact", "ok push", "has", "may", "vast"])
async def test_a_typed_word_that_contains_an_answer_key_answers_nothing(
    open_app: OpenApp, workspace: Path, words: str
) -> None:
    async with open_app(SCRIPT, app_timing=LONG_BURSTS) as stage:
        await open_request(stage)
        await stage.type(words)
        await stage.shows("typed in a burst")
        await stage.press("enter")
        await stage.pilot.pause(0.1)
        assert isinstance(stage.app.screen, RequestDialog)
        assert not (workspace / "made").exists()
        assert len(stage.server.requests) == 1


async def test_enter_at_the_end_of_a_burst_saves_no_rule(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT, app_timing=LONG_BURSTS) as stage:
        await open_request(stage)
        await stage.press("p", "u", "enter")
        await stage.shows("typed in a burst")
        assert not (workspace / "made").exists()
        stage.app.timing = SHORT_WAITS
        await stage.press("enter")
        await stage.until(lambda: (workspace / "made").exists())


async def test_a_single_key_after_a_burst_answers(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT, app_timing=LONG_BURSTS) as stage:
        await open_request(stage)
        await stage.press("x", "y")
        await stage.shows("typed in a burst")
        stage.app.timing = SHORT_WAITS
        await stage.press("y")
        await stage.until(lambda: (workspace / "made").exists())
