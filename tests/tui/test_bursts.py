"""Text typed while a permission dialog opens does not answer it."""

from pathlib import Path

import pytest

from odin.testing import call, say
from odin.ui.tui.dialogs import permission
from odin.ui.tui.dialogs.dialog import RequestDialog
from tests.tui.conftest import OpenApp, Stage

SCRIPT = [call("ExecuteCommand", {"command": "touch made"}, id="c1"), say("Done.")]


@pytest.fixture(autouse=True)
def really(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make bursts long enough for a busy machine."""
    monkeypatch.setattr(permission, "BURST_S", 20.0)


async def asked(stage: Stage) -> None:
    await stage.send("Make it.")
    await stage.until(lambda: isinstance(stage.app.screen, RequestDialog) and stage.app.screen.ready)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["xy", "/compact", "ok push", "has", "may", "vast"])
async def test_a_word_with_the_letter_of_an_answer_in_it(open_app: OpenApp, workspace: Path, words: str) -> None:
    async with open_app(SCRIPT) as stage:
        await asked(stage)
        await stage.type(words)
        await stage.shows("typed in a burst")
        await stage.press("enter")
        await stage.pilot.pause(0.1)
        assert isinstance(stage.app.screen, RequestDialog)
        assert not (workspace / "made").exists()
        assert len(stage.server.requests) == 1


@pytest.mark.slow
async def test_a_rule_is_not_remembered_by_the_enter_behind_a_word(
    open_app: OpenApp, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app(SCRIPT) as stage:
        await asked(stage)
        await stage.press("p", "u", "enter")
        await stage.shows("typed in a burst")
        assert not (workspace / "made").exists()
        monkeypatch.setattr(permission, "BURST_S", 0.0)
        await stage.press("enter")
        await stage.until(lambda: (workspace / "made").exists())


@pytest.mark.slow
async def test_the_same_key_by_itself_is_an_answer(
    open_app: OpenApp, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app(SCRIPT) as stage:
        await asked(stage)
        await stage.press("x", "y")
        await stage.shows("typed in a burst")
        monkeypatch.setattr(permission, "BURST_S", 0.0)
        await stage.press("y")
        await stage.until(lambda: (workspace / "made").exists())
