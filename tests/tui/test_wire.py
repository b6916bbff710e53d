"""The app is only a client: over a connection that carries nothing but JSON it shows the same."""

import re
from typing import Any

import pytest

from odin.core.op import (
    AnswerPermission,
    AnswerQuestions,
    Interrupt,
    Op,
    Prompt,
    RunUserShell,
    SetPermissionMode,
    SetTitle,
)
from odin.testing import ScriptedCall, reply, say
from odin.ui.tui.dialogs.permission import PermissionDialog
from odin.ui.tui.dialogs.questions import QuestionsDialog
from tests.tui.conftest import OpenApp, Stage
from tests.tui.wire import FarSessions

WAY = {"header": "Way", "text": "Which way?", "options": [{"label": "left"}, {"label": "right"}]}


def script() -> list[Any]:
    return [
        reply(
            "I look first.", [ScriptedCall("Bash", {"command": "touch here", "description": "begin"})], thinking="Hm."
        ),
        reply("", [ScriptedCall("Question", {"questions": [WAY]})]),
        say("# Done\n\n- all of *it*\n\n```python\nprint(1)\n```"),
        say("Again."),
    ]


async def a_while(stage: Stage) -> str:
    """A prompt with a permission request and a question, a user shell command, another session and back."""
    app = stage.app
    await stage.send("do it")
    await stage.until(lambda: isinstance(app.screen, PermissionDialog) and app.screen.ready)
    await stage.press("y")
    await stage.until(lambda: isinstance(app.screen, QuestionsDialog) and app.screen.ready)
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
    return as_always(stage.screen())


def as_always(screen: str) -> str:
    """The screen without durations and session ids."""
    screen = re.sub(r"\d{17}", "SESSION", screen)
    screen = re.sub(r"done( in \S+ m?s)? +F1", "done F1", screen)
    return re.sub(r"( · )?\d+(\.\d+)? (ms|s)\b( · )?", "", screen)


@pytest.mark.slow
async def test_the_same_screen_at_both_ends_of_a_wire(open_app: OpenApp) -> None:
    async with open_app(script()) as stage:
        near = await a_while(stage)
    far: list[FarSessions] = []

    def through(sessions: Any) -> FarSessions:
        far.append(FarSessions(sessions))
        return far[0]

    async with open_app(script(), through=through) as stage:
        assert await a_while(stage) == near
    kinds: list[type[Op]] = [type(op) for op in far[0].ops]
    assert kinds == [Prompt, AnswerPermission, AnswerQuestions, RunUserShell, SetPermissionMode, Prompt]
    assert Interrupt not in kinds
    assert SetTitle not in kinds, "a title is a matter of the sessions"
    assert "rename" in far[0].asked
