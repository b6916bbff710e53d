"""The report dialogs: statistics, context, diagnostics, changes and status."""

import re
from typing import Any

import pytest

from odin.core.event import Warned
from odin.testing import say
from odin.ui.tui.dialogs.reports import ReportDialog
from odin.ui.tui.dialogs.stats import StatsDialog
from tests.tui.conftest import SIZES_AND_THEMES, OpenApp, Stage, run_app
from tests.tui.fake_sessions import START, FakeClient, FakeSessions
from tests.tui.test_sessions_dialog import click_on

SIZES = [pytest.param((40, 12), marks=pytest.mark.slow), (100, 30)]


class RecordingSessions(FakeSessions):
    """Records the requested usage reports."""

    def __init__(self, *clients: Any) -> None:
        super().__init__(*clients)
        self.requested: list[tuple[str, int, bool]] = []

    async def report_usage(self, by: Any = "day", *, days: int = 0, session: str = "") -> Any:
        self.requested.append((by, days, bool(session)))
        return await super().report_usage(by, days=days, session=session)


async def open_stats(stage: Stage, rest: str = "") -> None:
    await stage.app.run_command("stats", rest)
    await stage.until(lambda: isinstance(stage.app.screen, StatsDialog))
    await stage.shows("cost")


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_stats_with_every_key(size: tuple[int, int]) -> None:
    sessions = RecordingSessions(FakeClient())
    async with run_app(sessions, size=size) as stage:
        await open_stats(stage)
        await stage.until(lambda: sessions.requested[-1:] == [("purpose", 0, True)])
        for key, request in (
            ("tab", ("purpose", 0, False)),
            ("right", ("model", 0, False)),
            ("l", ("agent", 0, False)),
            ("right", ("day", 0, False)),
            ("right", ("purpose", 0, False)),
            ("left", ("day", 0, False)),
            ("h", ("agent", 0, False)),
            ("t", ("agent", 1, False)),
            ("7", ("agent", 7, False)),
            ("3", ("agent", 30, False)),
            ("9", ("agent", 90, False)),
            ("a", ("agent", 0, False)),
            ("s", ("agent", 0, True)),
        ):
            await stage.press(key)
            await stage.until(lambda request=request: sessions.requested[-1] == request)
        await stage.shows("main agent", "[agents]", "[session]", "[all]")
        await stage.press("down", "j", "k", "up", "pagedown", "pageup", "q")
        assert not isinstance(stage.app.screen, StatsDialog)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_stats_with_the_mouse(size: tuple[int, int]) -> None:
    sessions = RecordingSessions(FakeClient())
    async with run_app(sessions, size=size) as stage:
        await open_stats(stage, "today")
        await stage.shows("[today]")
        for word, request in (
            ("project", ("purpose", 1, False)),
            ("[overview] models", ("model", 1, False)),
            ("30d", ("model", 30, False)),
            ("dates", ("day", 30, False)),
            ("session", ("day", 30, True)),
        ):
            await click_on(stage, word)
            await stage.until(lambda request=request: sessions.requested[-1] == request)
        await stage.shows("2023-11-14")
        await click_on(stage, "close")
        assert not isinstance(stage.app.screen, StatsDialog)


@pytest.mark.slow
async def test_stats_match_a_real_session(open_app: OpenApp) -> None:
    async with open_app([say("One."), say("Two.")]) as stage:
        await stage.send("First?")
        await stage.shows("One.")
        await stage.idle()
        await stage.send("/new")
        await stage.until(lambda: "One." not in stage.screen())
        await stage.send("Second?")
        await stage.shows("Two.")
        await stage.idle()
        await open_stats(stage)
        await stage.shows("model calls     1")
        await stage.press("tab")
        await stage.shows("model calls     2", "cache hit rate")
        await stage.press("right")
        await stage.shows("claude-sonnet-4-5", "total")
        await stage.press("t", "escape")
        await stage.send("/usage")
        await stage.shows("model", "anthropic/claude-sonnet-4-5", "odin usage")
        await stage.press("enter")
        await stage.send("/context")
        await stage.shows("anthropic/claude-sonnet-4-5:", "tokens of 191,808", "░")


async def test_a_dollar_sign_in_the_transcript_opens_the_stats() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        stage.app.transcript.focus()
        await stage.press("dollar_sign")
        await stage.until(lambda: isinstance(stage.app.screen, StatsDialog))


@pytest.mark.parametrize("size", SIZES)
async def test_diagnostics_show_warnings_and_can_be_copied(size: tuple[int, int]) -> None:
    client = FakeClient(warnings=("The key is old.",), sandbox="", log_file="/srv/state/logs/odin.log")
    async with run_app(FakeSessions(client), size=size, clock=lambda: client.now) as stage:
        client.emit(Warned("Broken.", "error"))
        await stage.until(lambda: stage.app.error_log.count == 1)
        await stage.press("ctrl+g")
        await stage.until(lambda: isinstance(stage.app.screen, ReportDialog))
        await stage.shows("The key is old.")
        await stage.press("y")
        assert "The key is old." in stage.app.clipboard
        assert "1 error since Odin started" in stage.app.clipboard
        assert re.search(r"^sandbox +none$", stage.app.clipboard, re.MULTILINE)
        assert "/srv/state/logs/odin.log" in stage.app.clipboard
        await stage.press("end")
        await stage.shows("odin doctor")
        await stage.press("home", "j", "k", "pagedown", "pageup", "G", "g")
        await stage.shows("The key is old.")
        await click_on(stage, "close")
        assert not isinstance(stage.app.screen, ReportDialog)


@SIZES_AND_THEMES
@pytest.mark.parametrize("name", ["stats", "context", "diagnostics"])
async def test_snapshot(name: str, size: tuple[int, int], theme: Any) -> None:
    client = FakeClient(warnings=("The settings of this folder are not trusted.",))
    async with run_app(FakeSessions(client), size=size, clock=lambda: START) as stage:
        stage.app.choose_theme(theme)
        await stage.app.run_command(name)
        await stage.until(lambda: len(stage.app.screen_stack) == 2)
        if name == "stats":
            await stage.shows("session or project")
            await stage.press("tab", "right")
            await stage.shows("ollama/qwen3")
        await stage.assert_snapshot(f"{name}-{size[0]}x{size[1]}-{theme}")


async def test_the_diff_is_painted_file_by_file_and_scrolls() -> None:
    async with run_app(FakeSessions(FakeClient()), size=(80, 12)) as stage:
        await stage.app.run_command("diff")
        await stage.until(lambda: isinstance(stage.app.screen, ReportDialog))
        await stage.shows("Changes: 3 files changed, +2 −1", "parser.py (modified, +1 −1)", "return 2")
        await stage.press("end")
        await stage.shows("notes.txt (added, +1 −0)", "hello", "logo.png (binary)")


async def test_the_status_names_model_key_folder_and_session() -> None:
    async with run_app(FakeSessions(FakeClient()), size=(100, 30)) as stage:
        await stage.app.run_command("status")
        await stage.until(lambda: isinstance(stage.app.screen, ReportDialog))
        await stage.shows("version", "provider", "key", "directory", "sandbox", "permissions", "20260101120000000")
