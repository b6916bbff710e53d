"""The app shows the same over remote sessions, whose arguments and results pass through JSON."""

import re
from typing import Any

import pytest

from odin.core.op import (
    Answer,
    Interrupt,
    Op,
    Prompt,
    RunUserShell,
    SetPermissionMode,
    SetTitle,
)
from odin.testing import ScriptedCall, reply, say
from odin.ui.tui.dialogs.interaction import InteractionDialog
from tests.tui.conftest import OpenApp, Stage
from tests.tui.remote_sessions import RemoteSessions

QUESTION = {"header": "Way", "text": "Which way?", "options": [{"label": "left"}, {"label": "right"}]}


def make_script() -> list[Any]:
    return [
        reply(
            "I look first.", [ScriptedCall("Bash", {"command": "touch here", "description": "begin"})], thinking="Hm."
        ),
        reply("", [ScriptedCall("Question", {"questions": [QUESTION]})]),
        say("# Done\n\n- all of *it*\n\n```python\nprint(1)\n```"),
        say("Again."),
    ]


async def use_app(stage: Stage) -> str:
    """Answer a permission request and a question, run a shell command, switch sessions, and return the screen."""
    app = stage.app
    await stage.send("do it")
    await stage.until(lambda: isinstance(app.screen, InteractionDialog) and app.screen.ready)
    asked = app.screen
    await stage.press("y")
    await stage.until(lambda: app.screen is not asked)
    await stage.until(lambda: isinstance(app.screen, InteractionDialog) and app.screen.ready)
    await stage.press("enter")
    await stage.shows("all of it")
    await stage.idle()
    await stage.send("!echo mine")
    await stage.shows("mine")
    await stage.send("/rename The first")
    await stage.shows("Renamed this session to")
    await stage.press("ctrl+y")
    first = app.info.session if app.info else ""
    await stage.send("/new")
    await stage.until(lambda: app.info is not None and app.info.session != first)
    await stage.send("once more")
    await stage.shows("Again.")
    await stage.idle()
    await stage.send(f"/resume {first}")
    await stage.shows("all of it")
    await stage.until(lambda: app.panel_updater.is_idle and not app.is_catching_up)
    app.clear_notifications()
    await stage.pilot.pause(0.2)
    return remove_varying_parts(stage.screen())


def remove_varying_parts(screen: str) -> str:
    """Return the screen without durations and session ids."""
    screen = re.sub(r"\d{17}", "SESSION", screen)
    screen = re.sub(r"done( in \S+ m?s)? +F1", "done F1", screen)
    return re.sub(r"( · )?\d+(\.\d+)? (ms|s)\b( · )?", "", screen)


@pytest.mark.slow
async def test_remote_sessions_give_the_same_screen(open_app: OpenApp) -> None:
    async with open_app(make_script()) as stage:
        expected = await use_app(stage)
    remote: list[RemoteSessions] = []

    def wrap_sessions(sessions: Any) -> RemoteSessions:
        remote.append(RemoteSessions(sessions))
        return remote[0]

    async with open_app(make_script(), wrap_sessions=wrap_sessions) as stage:
        assert await use_app(stage) == expected
    kinds: list[type[Op]] = [type(op) for op in remote[0].ops]
    assert kinds == [Prompt, Answer, Answer, RunUserShell, SetPermissionMode, Prompt]
    assert Interrupt not in kinds
    assert SetTitle not in kinds, "renaming goes through the sessions, not through an op"
    assert "rename" in remote[0].called
