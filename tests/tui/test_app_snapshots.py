"""Snapshots of the whole app: idle and working, small and large, dark and light."""

from typing import Any

import pytest

from odin.core.call_events import (
    ActivityChanged,
    Replied,
    RequestProgressed,
    SpawnStarted,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.event import AgentStarted, FilesChanged, SessionOpened, TitleSet, TurnEnded, TurnStarted
from odin.core.event_values import FileChange, FileState, Todo
from odin.core.message import ReplyMessage, Text, Usage
from odin.core.tui_settings import ThemeSetting, TuiSettings
from tests.tui.conftest import run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

pytestmark = pytest.mark.every_frame

MODEL = "anthropic/claude-sonnet-4-5"
FILE = "~/project/src/parser.py"
DIFF = (
    "--- src/parser.py\n+++ src/parser.py\n"
    "@@ -1,2 +1,3 @@\n import re\n-WORD = '[a-z]+'\n+WORD = re.compile('[a-z]+')\n+\n"
)
PAST: list[Any] = [
    SessionOpened("~/project", MODEL, "0.1.0"),
    TitleSet("Make the parser faster"),
    TurnStarted("p1", "Make the parser faster and write tests for it.", "edit_mode"),
    TodosChanged(
        (
            Todo("1", "Read the parser", "completed"),
            Todo("2", "Compile the pattern once", "completed"),
            Todo("3", "Write tests", "in_progress", "Writing tests"),
            Todo("4", "Measure it", "pending"),
        )
    ),
    FilesChanged("c1", (FileChange(FileState(FILE, "file", "1"), FileState(FILE, "file", "2")),)),
    ToolEnded("c1", "Edit", "success", "Edited.", display=DIFF, files=(FILE,)),
    Replied(ReplyMessage((Text("The pattern is compiled **once** now. The tests are next."),))),
    UsageRecorded(MODEL, Usage(input=1_200, output=700, cache_read=9_000), 0.0421),
]
WORK: list[Any] = [
    SpawnStarted("job-1", "c2", "npm run dev", "the dev server"),
    AgentStarted("agent-1", "look for callers", "ask_mode"),
    ActivityChanged("streaming"),
    RequestProgressed(10, 4_000),
    ToolStarted("c5", "Bash", {"command": "make test"}, "make test"),
]
SIZES = [(100, 30), (60, 20), (160, 45)]


async def assert_app_snapshot(name: str, events: list[Any], size: tuple[int, int], theme: ThemeSetting) -> None:
    client = FakeClient(PAST, branch="faster")
    client.snapshot_fields["executing"] = True
    settings = TuiSettings(bell=False, title=False, theme=theme)
    async with run_app(FakeSessions(client), size=size, settings=settings, clock=lambda: client.now + 3) as stage:
        client.emit(*events)
        await stage.shows("context 4%")
        await stage.until(lambda: stage.app.panel_updater.is_idle)
        await stage.assert_snapshot(f"{name}-{size[0]}x{size[1]}-{theme}")


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_working_app_snapshot(size: tuple[int, int], theme: ThemeSetting) -> None:
    await assert_app_snapshot("work", WORK, size, theme)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_idle_app_snapshot(size: tuple[int, int], theme: ThemeSetting) -> None:
    await assert_app_snapshot("rest", [TurnEnded("p1", "end_turn", duration_ms=72_000)], size, theme)
