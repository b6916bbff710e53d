"""The activity line and the status line, over a real session."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import (
    ActivityChanged,
    CallQueued,
    PermissionAnswered,
    PermissionAsked,
    RetryScheduled,
    ToolStarted,
)
from odin.core.client import Sessions
from odin.core.event import TurnEnded, TurnStarted, Warned
from odin.core.message import Usage
from odin.core.tui_settings import TuiSettings
from odin.testing import call, fault, retry_after, say
from odin.ui.tui.app import OdinApp
from tests.tui.conftest import SHORT_WAITS, OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions


def lowest_row_with(stage: Stage, word: str) -> str:
    """Return the lowest row of the screen that contains the word."""
    return next((line for line in reversed(stage.screen().split("\n")) if word in line), "")


def get_status_line(stage: Stage) -> str:
    return stage.screen().split("\n")[-1]


async def test_tokens_cost_and_context_match_the_model(open_app: OpenApp) -> None:
    script = [say("One.", usage=Usage(input=1_000, output=200, cache_read=3_000)), say("Two.")]
    async with open_app(script, size=(140, 30)) as stage:
        await stage.until(lambda: "context" in get_status_line(stage))
        assert get_status_line(stage).startswith(" edit")
        before = get_status_line(stage)
        await stage.send("first")
        await stage.shows("One.")
        await stage.until(lambda: "4.2k tokens" in get_status_line(stage))
        await stage.until(lambda: "cache 75%" in get_status_line(stage))
        assert "$" in get_status_line(stage)
        assert get_status_line(stage) != before
        report = await stage.app.client.report_context()
        await stage.until(lambda: f"context {report.used / report.limit:.0%}" in get_status_line(stage))


async def test_the_app_shows_that_the_session_is_opening() -> None:
    connected = asyncio.Event()

    async def connect() -> Sessions:
        await connected.wait()
        return FakeSessions(FakeClient())

    app = OdinApp(connect, TuiSettings(bell=False, title=False), timing=SHORT_WAITS)
    async with app.run_test(size=(80, 24)) as pilot:
        stage = Stage(app, pilot, None)
        await stage.shows("opening session")
        connected.set()
        await stage.until(lambda: "opening session" not in stage.screen())


async def test_the_mode_is_always_visible(open_app: OpenApp) -> None:
    async with open_app(size=(40, 12)) as stage:
        await stage.until(lambda: get_status_line(stage).startswith(" edit"))
        await stage.press("f2")
        await stage.until(lambda: get_status_line(stage).startswith(" ask"))
        await stage.press("alt+m")
        await stage.until(lambda: get_status_line(stage).startswith(" plan"))


async def test_the_git_branch_is_shown_and_updated(open_app: OpenApp, workspace: Path) -> None:
    (workspace / ".git").mkdir(exist_ok=True)
    head = workspace / ".git" / "HEAD"
    head.write_text("ref: refs/heads/feature/one\n")
    async with open_app([say("Done.")], size=(140, 30)) as stage:
        await stage.until(lambda: "feature/one" in get_status_line(stage))
        head.write_text("ref: refs/heads/main\n")
        await stage.send("hello")
        await stage.shows("Done.")
        await stage.until(lambda: "main" in get_status_line(stage) and "feature" not in get_status_line(stage))


async def test_a_streaming_answer_is_shown_and_esc_stops_it(open_app: OpenApp) -> None:
    gate = threading.Event()
    async with open_app([say("one two three", chunk=3).hold(gate, after=5)]) as stage:
        await stage.send("hello")
        await stage.shows("the model is answering", "Esc stops")
        await stage.press("escape")
        await stage.shows("stopped")
        gate.set()
        await stage.until(lambda: "Esc stops" not in stage.screen())


@pytest.mark.slow
async def test_a_retry_is_noted_above_the_answer(open_app: OpenApp) -> None:
    script = [fault(429, retry_after(1)), say("There.")]
    async with open_app(script) as stage:
        await stage.send("hello")
        await stage.shows("The request failed 1 time", "There.")
        await stage.idle()
        assert "retry 1/" not in lowest_row_with(stage, "done")


async def test_a_retry_is_counted_down_on_the_screen() -> None:
    client = FakeClient()
    clock = [0.0]
    async with run_app(FakeSessions(client), clock=lambda: clock[0]) as stage:
        client.emit(TurnStarted("p", "x", "edit_mode"), RetryScheduled(1, 6, 3.0, "Slow down.", "RateLimited"))
        scheduled_at = client.now
        for seconds, words in ((0, "in 3 s"), (1, "in 2 s"), (2, "in 1 s")):
            clock[0] = scheduled_at + seconds
            stage.app.request_frame()
            await stage.until(lambda words=words: words in get_activity_line(stage))
            assert "retry 1/6" in get_activity_line(stage)


async def test_running_tools_are_named(open_app: OpenApp, workspace: Path) -> None:
    fifo = workspace / "wait"
    os.mkfifo(fifo)
    script = [call("Bash", {"command": f"cat {fifo}", "description": "wait for it"}), say("Done.")]
    async with open_app(script, yes=True, config={"sandbox": {"backend": "landlock"}}) as stage:
        await stage.send("go")
        await stage.until(lambda: "running Bash" in lowest_row_with(stage, "Esc stops"))
        await asyncio.to_thread(fifo.write_text, "x")  # waits for the reader, which needs the event loop to start
        await stage.shows("Done.")
        await stage.idle()
        await stage.until(lambda: not lowest_row_with(stage, "Esc stops"))


def get_activity_line(stage: Stage) -> str:
    place = stage.app.query_one("#activity").region.y
    return stage.screen().split("\n")[place]


async def test_the_activity_line_follows_events() -> None:
    client = FakeClient()
    clock = [0.0]
    async with run_app(FakeSessions(client), clock=lambda: clock[0]) as stage:

        async def emit_and_wait(*events: Any, words: str, later: float = 0.0) -> None:
            client.emit(*events)
            clock[0] = client.now + later
            stage.app.request_frame()
            await stage.until(lambda: words in get_activity_line(stage))

        await emit_and_wait(words="F1 help")
        await emit_and_wait(TurnStarted("p", "x", "edit_mode"), words="starting 0 s")
        await emit_and_wait(ActivityChanged("connecting"), words="connecting to the model 7 s", later=7)
        await emit_and_wait(
            ToolStarted("a", "Read", {"file_path": "x.py"}, "x.py"),
            ToolStarted("b", "Grep", {"pattern": "def"}),
            CallQueued("c", "Edit"),
            words="running 2 tools",
        )
        assert "1 waiting" in get_activity_line(stage)
        await emit_and_wait(
            RetryScheduled(2, 6, 4.0, "Overloaded.", "overloaded"), TurnEnded("p", "error"), words="failed"
        )
        assert "!" in get_activity_line(stage)


@pytest.mark.slow
async def test_no_frames_are_drawn_while_idle() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(TurnStarted("p", "x", "edit_mode"))
        await stage.shows("Esc stops")
        client.emit(TurnEnded("p", "end_turn"))
        await stage.until(lambda: "Esc stops" not in stage.screen())
        await stage.until(lambda: stage.app.panel_updater.is_idle)
        frames: list[int] = []
        stage.app.observers.append(FrameCounter(frames))
        await stage.pilot.pause(1.5)
        assert not frames, "a timer kept drawing frames"


class FrameCounter:
    """An observer that counts frames."""

    def __init__(self, frames: list[int]) -> None:
        self._frames = frames

    def enter_session(self, client: Any, info: Any) -> None:
        return None

    def handle_event(self, envelope: Any, live: bool) -> None:
        return None

    def draw_frame(self) -> None:
        self._frames.append(1)


async def test_an_error_outside_an_answer_is_shown_as_a_toast() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(Warned("The log could not be written.", "error"))
        await stage.until(lambda: "The log could not be written." in stage.screen().split("\n")[0])


async def test_many_toasts_never_hide_the_composer() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client), size=(60, 20)) as stage:
        for number in range(9):
            stage.app.show_toast(f"Notice {number} [bold]as it is[/bold] \x1b[31m", "warn")
            stage.app.show_toast(f"Notice {number} [bold]as it is[/bold] \x1b[31m", "warn")
        await stage.shows("Notice 8 [bold]as it is[/bold] \\x1b[31m")
        await stage.until(lambda: stage.screen().count("Notice") == 3)
        await stage.type("still here")
        await stage.shows("still here")


async def test_an_agent_that_waits_for_an_answer_is_not_shown_as_working() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(TurnStarted("p", "x", "edit_mode"), PermissionAsked("a", "c", "Bash", {}, "why"))
        await stage.until(lambda: stage.app.facts.agents.main.asks)
        assert stage.app.facts.agents.main.describe(client.now).is_asking
        client.emit(PermissionAnswered("a", "c", True))
        await stage.until(lambda: not stage.app.facts.agents.main.asks)


STATUS_PROGRAM = """\
import json, sys
facts = json.load(sys.stdin)
model, window = facts["model"]["display_name"], facts["context_window"]
print(f"\\033[32m{model}\\033[0m in {facts['workspace']['project_dir']}\\a\\u202e")
print(window["current_usage"]["output_tokens"], "tokens", facts["hook_event_name"], facts["cost"]["total_lines_added"])
print("3\\t\\033]8;;http://x/\\033[31m\\athree\\033]8;;\\033\\\\\\nfour")
"""


async def test_a_program_of_the_user_adds_rows_above_the_status_line(
    open_app: OpenApp, workspace: Path, tmp_path: Path
) -> None:
    program = tmp_path / "status.py"
    program.write_text(STATUS_PROGRAM)
    hooks = {"StatusLine": [{"type": "command", "command": f"python3 {program}"}]}
    async with open_app(
        [say("One.", usage=Usage(input=10, output=77))], size=(140, 30), config={"hooks": hooks}
    ) as stage:
        await stage.until(lambda: "three" in stage.screen())
        *_, first, second, third, last = stage.screen().split("\n")
        assert first.strip() == f"{stage.app.facts.chosen_model.partition('/')[2]} in {workspace}�"
        assert (second.strip(), third.strip()) == ("0 tokens Status 0", "3       three")
        assert last.startswith(" edit")
        await stage.send("first")
        await stage.until(lambda: "77 tokens Status 0" in stage.screen())
        await stage.pilot.resize_terminal(100, 11)
        await stage.until(lambda: "77 tokens" not in stage.screen())
