"""Calls after a delay, and the timer of frames."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.dom import DOMNode

MAX_PAUSE_S = 0.25


def call_after(target: DOMNode, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    """Call `callback` as a message of `target` after `delay` seconds, unless the target is removed before.

    Textual's `set_timer` would skip the call if the process were suspended for that long at the wrong moment.
    """

    def call() -> None:
        if not (target._pruning or target._closing):
            callback()

    return asyncio.get_running_loop().call_later(delay, target.call_next, call)


class FrameTimer:
    """Draws all changes since the last frame at once.

    A slow frame is followed by a pause of twice its duration, so that typing stays responsive while output streams.
    """

    def __init__(self, app: App[Any], draw: Callable[[], None], frame_s: float) -> None:
        self._app = app
        self._frame_s = frame_s
        self._draw = draw
        self._scheduled: asyncio.TimerHandle | None = None
        self._started_at = 0.0
        self._next_at = 0.0

    def request_frame(self) -> None:
        if self._scheduled is None:
            delay = max(self._frame_s, self._next_at - time.perf_counter())
            self._scheduled = call_after(self._app, delay, self.draw_frame)

    def draw_frame(self) -> None:
        """Draw now."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        if not self._app.is_running:
            return
        self._started_at = time.perf_counter()
        self._draw()
        self._app.call_after_refresh(self._schedule_pause)

    def _schedule_pause(self) -> None:
        now = time.perf_counter()
        self._next_at = now + min(2 * (now - self._started_at), MAX_PAUSE_S)
