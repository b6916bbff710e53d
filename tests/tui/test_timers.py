"""One-shot timers: Textual skips one of its own if the process stalls at the wrong moment."""

import asyncio
import re
import time
from collections import Counter
from typing import Any

import pytest
from textual import _time
from textual.app import App
from textual.widgets import Static

from odin.ui.tui.timers import FrameTimer, call_after
from tests.sources import PACKAGE
from tests.waiting import TimeLimit, until


class StallingClock:
    """Between the first and the second reading of a task, the process stalls for 100 s.

    Textual's repeating timers read it again before they wait: after a stall at each reading, they would never wait.
    """

    def __init__(self) -> None:
        self._lost = 0.0
        self._readings = Counter[asyncio.Task[Any] | None]()

    def read(self) -> float:
        task = asyncio.current_task()
        self._readings[task] += 1
        if self._readings[task] == 2:
            self._lost += 100
        return time.monotonic() + self._lost


async def test_a_frame_is_drawn_although_the_process_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    app: App[None] = App()
    drawn, ticked = asyncio.Event(), asyncio.Event()
    async with app.run_test():
        monkeypatch.setattr(_time, "get_time", StallingClock().read)
        app.set_interval(0.001, ticked.set)
        FrameTimer(app, drawn.set, frame_s=0.005).request_frame()
        async with TimeLimit():
            await drawn.wait()
            await ticked.wait()
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
        await until(lambda: called)
        removed._pruning = True
        call_after(removed, 0.0, lambda: called.append("after"))
        asyncio.get_running_loop().call_later(0.0, removed.call_next, is_done.set)
        async with TimeLimit():
            await is_done.wait()
    assert called == ["before"]
