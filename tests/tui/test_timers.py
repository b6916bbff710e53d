"""One-shot timers: Textual skips one of its own if the process stalls at the wrong moment."""

import asyncio
import re

import pytest
from textual import _time
from textual.app import App
from textual.widgets import Static

from odin.ui.tui.timers import FrameTimer, call_after
from tests.sources import PACKAGE


async def test_a_frame_is_drawn_although_the_process_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    app: App[None] = App()
    drawn = asyncio.Event()
    async with app.run_test():
        clock = _time.get_time
        steps = iter(range(0, 10**9, 100))
        monkeypatch.setattr(_time, "get_time", lambda: clock() + next(steps))
        FrameTimer(app, drawn.set, frame_s=0.005).request_frame()
        async with asyncio.timeout(10):
            await drawn.wait()
        monkeypatch.undo()


def test_the_app_does_not_use_textual_timers_that_may_be_skipped() -> None:
    for path in (PACKAGE / "ui" / "tui").rglob("*.py"):
        assert not re.search(r"\.set_timer\(", path.read_text(encoding="utf-8")), path


async def test_a_widget_that_is_being_removed_is_not_called() -> None:
    """Textual still handles the messages of a widget for a moment after it has begun to remove it."""
    app: App[None] = App()
    called: list[str] = []
    is_done = asyncio.Event()
    async with app.run_test():
        removed = Static()
        await app.mount(removed)
        call_after(removed, 0.0, lambda: called.append("before"))
        async with asyncio.timeout(10):
            while not called:
                await asyncio.sleep(0)
        removed._pruning = True
        call_after(removed, 0.0, lambda: called.append("after"))
        asyncio.get_running_loop().call_later(0.0, removed.call_next, is_done.set)
        async with asyncio.timeout(10):
            await is_done.wait()
    assert called == ["before"]
