"""Progress of a running command: its newest line, now and then."""

import asyncio
import time
from collections.abc import Callable

from odin.policy.process.plain import decode_output, strip_ansi

INTERVAL = 0.5
"""Seconds between two lines, however much is printed."""

_MAX_WIDTH = 200
_MAX_KEPT = 4 * _MAX_WIDTH


class CommandProgress:
    """Shows the newest line that is not blank, at most once in an interval, also when nothing comes after it."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._shown_at = time.monotonic()
        self._text = ""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, text: str) -> None:
        self._text = (self._text + text)[-_MAX_KEPT:] if len(text) < _MAX_KEPT else text[-_MAX_KEPT:]
        if self._timer is not None:
            return
        wait = self._shown_at + INTERVAL - time.monotonic()
        if wait > 0:
            self._timer = self._loop.call_later(wait, self._show_line)
        else:
            self._show_line()

    def _show_line(self) -> None:
        self._timer = None
        lines = decode_output(strip_ansi(self._text.encode("utf-8", "replace"))).rstrip().split("\n")
        line = lines[-1].rstrip("\r")[-_MAX_WIDTH:]
        self._text = ""
        if line.strip():
            self._shown_at = time.monotonic()
            self._show(line)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
