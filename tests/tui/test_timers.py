"""One-shot timers: Textual skips one of its own if the process stands still at the wrong moment."""

import asyncio
import re

import pytest
from textual import _time
from textual.app import App

from odin.ui.tui.timers import FrameTimer
from tests.sources import PACKAGE


async def test_a_frame_is_drawn_although_the_process_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    app: App[None] = App()
    drawn = asyncio.Event()
    async with app.run_test():
        clock = _time.get_time
        steps = iter(range(0, 10**9, 100))
        monkeypatch.setattr(_time, "get_time", lambda: clock() + next(steps))
        FrameTimer(app, drawn.set).request_frame()
        async with asyncio.timeout(10):
            await drawn.wait()
        monkeypatch.undo()


def test_the_app_uses_no_timer_that_may_be_skipped() -> None:
    for path in (PACKAGE / "ui" / "tui").rglob("*.py"):
        assert not re.search(r"\.set_timer\(", path.read_text(encoding="utf-8")), path
