"""Progress of a running command: its newest line, now and then."""

import asyncio
import time
from collections.abc import Callable

from odin.policy.process.plain import cleaned, decoded

INTERVAL = 0.5
"""Seconds between two lines, however much is printed."""

_WIDTH = 200
_KEPT = 4 * _WIDTH


class LastLine:
    """Shows the newest line that is not blank, at most once in an interval, also when nothing comes after it."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._shown_at = time.monotonic()
        self._text = ""
        self._timer: asyncio.TimerHandle | None = None

    def see(self, text: str) -> None:
        self._text = (self._text + text)[-_KEPT:] if len(text) < _KEPT else text[-_KEPT:]
        if self._timer is not None:
            return
        wait = self._shown_at + INTERVAL - time.monotonic()
        if wait > 0:
            self._timer = self._loop.call_later(wait, self._tick)
        else:
            self._tick()

    def _tick(self) -> None:
        self._timer = None
        lines = decoded(cleaned(self._text.encode("utf-8", "replace"))).rstrip().split("\n")
        line = lines[-1].rstrip("\r")[-_WIDTH:]
        self._text = ""
        if line.strip():
            self._shown_at = time.monotonic()
            self._show(line)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
