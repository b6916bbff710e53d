"""A resumed session does not show settings of an earlier run, or work that was running when it crashed, as current."""

import os
from pathlib import Path

from odin.core.call_events import PermissionAsked, Replied, ReplyDrafted, SpawnStarted, ToolStarted
from odin.core.event import AgentStarted, AnyEvent, BudgetSet, LoopChanged, PermissionModeChanged, TurnStarted
from odin.core.message import ReplyMessage, Text, ToolCall
from odin.session.store import SessionStore
from odin.testing import say
from odin.testing.script import get_content_text
from tests.session.logs import opened, turn, write_session
from tests.tui.conftest import OpenApp

CALL = ToolCall("c1", "ExecuteCommand", {"command": "make all"})


def write_log(home: Path, workspace: Path, *events: AnyEvent) -> None:
    write_session(
        SessionStore(home / ".local/state/odin", os.path.realpath(workspace)),
        "aa1",
        [opened(), *turn("t0", "hi"), *events],
    )


async def test_work_left_open_by_a_crash_is_not_shown_as_running(
    open_app: OpenApp, home: Path, workspace: Path
) -> None:
    write_log(
        home,
        workspace,
        LoopChanged("executing", "shine", 3, 10),
        TurnStarted("t1", "build it", "edit_mode"),
        AgentStarted("agent-1", "look around", "edit_mode"),
        SpawnStarted("p1", "c0", "serve forever"),
        Replied(ReplyMessage((Text("I build."), CALL))),
        PermissionAsked("a1", "c1", "ExecuteCommand", {"command": "make all"}, "It may change files."),
        ToolStarted("c1", "ExecuteCommand", {"command": "make all"}),
    )
    async with open_app([say("Going on.")], resume="aa1", size=(140, 40)) as stage:
        await stage.shows("I build.", "killed or crashed", "serve forever")
        await stage.idle()
        seen = stage.screen()
        assert "Esc stops" not in seen and "loop 3/10" not in seen
        assert "running" not in seen and "Background" not in seen
        assert not stage.app.facts.agents.running and not stage.app.facts.agents.busy
        assert len(stage.app.screen_stack) == 1
        await stage.send("go on")
        await stage.shows("Going on.")
        await stage.idle()
        assert stage.screen().count("in the middle of this turn") == 1


async def test_answer_cut_off_by_a_crash_is_shown_and_sent(open_app: OpenApp, home: Path, workspace: Path) -> None:
    write_log(
        home,
        workspace,
        TurnStarted("t1", "explain it", "edit_mode"),
        ReplyDrafted("An attempt that failed", 0),
        ReplyDrafted("First of all, ", 0),
        ReplyDrafted("it is simple", 14),
    )
    async with open_app([say("Going on.")], resume="aa1") as stage:
        await stage.shows("First of all, it is simple", "killed or crashed")
        await stage.send("go on")
        await stage.shows("Going on.")
        await stage.idle()
        assert stage.screen().count("First of all, it is simple") == 1
        assert "An attempt" not in stage.screen()
        (request,) = stage.server.requests
        assert get_content_text(request.messages[-2]["content"]) == "First of all, it is simple"


async def test_permission_mode_and_budget_of_an_earlier_run_do_not_apply(
    open_app: OpenApp, home: Path, workspace: Path
) -> None:
    write_log(home, workspace, PermissionModeChanged("bypassPermissions"), BudgetSet(5.0))
    async with open_app([say("Hello.")], resume="aa1") as stage:
        await stage.shows("hi", "Done.")
        await stage.idle()
        assert "permissions bypassed" not in stage.screen() and "bypass" not in stage.screen()
        assert stage.app.facts.budget_usd == 0.0
        await stage.press("ctrl+y")
        await stage.shows("permissions: acceptEdits")
