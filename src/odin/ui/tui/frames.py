"""When the screen is drawn: some thirty times a second while things happen, and never when nothing does."""

import time
from collections.abc import Callable
from typing import Any

from textual.app import App

FRAME_S = 1 / 30
MAX_PAUSE_S = 0.25


class FrameTimer:
    """Everything that changes between two frames is drawn at once.

    A frame that takes long, because the machine is busy or the screen large, is followed by a pause of twice its time:
    whoever types must not wait behind pictures of a text that moves too fast to be read.
    """

    def __init__(self, app: App[Any], draw: Callable[[], None]) -> None:
        self._app = app
        self._draw = draw
        self._is_scheduled = False
        self._started_at = 0.0
        self._next_at = 0.0

    def request_frame(self) -> None:
        """Something changed: draw it with the next frame."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._app.set_timer(max(FRAME_S, self._next_at - time.perf_counter()), self._draw_frame)

    def _draw_frame(self) -> None:
        self._is_scheduled = False
        if not self._app.is_running:
            return
        self._started_at = time.perf_counter()
        self._draw()
        self._app.call_after_refresh(self._schedule_pause)

    def _schedule_pause(self) -> None:
        now = time.perf_counter()
        self._next_at = now + min(2 * (now - self._started_at), MAX_PAUSE_S)
