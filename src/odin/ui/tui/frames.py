"""When the screen is drawn: some thirty times a second while things happen, and never when nothing does."""

import time
from collections.abc import Callable
from typing import Any

from textual.app import App

FRAME_S = 1 / 30
SLOWEST_S = 0.25


class Frames:
    """Everything that changes between two frames is drawn at once.

    A frame that takes long, because the machine is busy or the screen large, is followed by a pause of twice its time:
    whoever types must not wait behind pictures of a text that moves too fast to be read.
    """

    def __init__(self, app: App[Any], draw: Callable[[], None]) -> None:
        self._app = app
        self._draw = draw
        self._coming = False
        self._began = 0.0
        self._next = 0.0

    def wake(self) -> None:
        """Something changed: draw it with the next frame."""
        if not self._coming:
            self._coming = True
            self._app.set_timer(max(FRAME_S, self._next - time.perf_counter()), self._frame)

    def _frame(self) -> None:
        self._coming = False
        if not self._app.is_running:
            return
        self._began = time.perf_counter()
        self._draw()
        self._app.call_after_refresh(self._drawn)

    def _drawn(self) -> None:
        now = time.perf_counter()
        self._next = now + min(2 * (now - self._began), SLOWEST_S)
