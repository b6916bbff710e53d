"""One line at the bottom of a terminal that says what is running and for how long."""

import asyncio
import math
import os
import time
from typing import TextIO

from odin.core.event import (
    ActivityChanged,
    Envelope,
    RetryScheduled,
    ThinkingEnded,
    ThinkingStarted,
    ToolEnded,
    ToolStarted,
    Updated,
)
from odin.ui.activity import ACTIVITIES, WAITS
from odin.ui.terminal import dumb, put, say, shorten, size_of, visible


class Progress:
    """What is running and for how long, on the last line of a terminal. On anything else it draws nothing.

    With `keep_calls`, and where nothing can be drawn, every call that begins leaves a line.
    """

    def __init__(self, err: TextIO | None, *, keep_calls: bool = False) -> None:
        self._err = err
        env = os.environ
        terminal = err is not None and err.isatty()
        self._live = terminal and not dumb(env)
        self._lines = terminal and (keep_calls or not self._live)
        self._dim = ("\x1b[2m", "\x1b[0m") if self._live and not env.get("NO_COLOR") else ("", "")
        self._tools: dict[str, tuple[str, float]] = {}
        self._what = "starting"
        self._since = time.monotonic()
        self._until = 0.0
        self._drawn = False
        self._held = 0
        self._later: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._live:
            self._tick()

    def see(self, envelope: Envelope) -> None:
        """Follow the session. Must not be called after `close`."""
        event = envelope.event
        if isinstance(event, ToolStarted):
            what = f"{event.name} {event.description}".strip()
            self._tools[event.call_id] = (what, time.monotonic())
            if self._lines:
                self.line(f"· [{envelope.agent}] {what}" if envelope.agent else f"· {what}")
        elif isinstance(event, ToolEnded):
            self._tools.pop(event.call_id, None)
        elif isinstance(event, ActivityChanged) and event.activity in ACTIVITIES:
            self._until = self._until if event.activity in WAITS else 0.0
            self._now(ACTIVITIES[event.activity])
        elif isinstance(event, RetryScheduled):
            self._until = time.monotonic() + event.delay_s
        elif isinstance(event, ThinkingStarted | ThinkingEnded):
            self._now("thinking" if isinstance(event, ThinkingStarted) else ACTIVITIES["streaming"])
        elif isinstance(event, Updated):
            self._now(event.text)
        else:
            return
        self._draw()

    def line(self, text: str) -> None:
        """A line that stays, above the progress. While somebody else has the terminal it waits."""
        if self._held:
            self._later.append(text)
            return
        self._clear()
        say(self._err, text)
        self._draw()

    def hold(self) -> None:
        """Leave the terminal to somebody else until `release`."""
        self._clear()
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        self._say_later()
        self._draw()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._clear()
        self._held = 0
        self._live = False
        self._say_later()

    def _say_later(self) -> None:
        if not self._held:
            later, self._later = self._later, []
            for text in later:
                self.line(text)

    def _now(self, what: str) -> None:
        if what != self._what:
            self._what, self._since = what, time.monotonic()

    def _tick(self) -> None:
        self._draw()
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)

    def _draw(self) -> None:
        if not self._live or self._held:
            return
        now = time.monotonic()
        what, since = next(reversed(self._tools.values()), (self._what, self._since))
        more = f" (+{len(self._tools) - 1})" if len(self._tools) > 1 else ""
        left = math.ceil(self._until - now)
        time_spent = f", {left}s left" if left > 0 and not self._tools else f" {int(now - since)}s"
        room = max(size_of(self._err)[0] - len(more) - len(time_spent) - 1, 8)
        shown = shorten(visible(what), room)
        self._put(f"\r\x1b[K{self._dim[0]}{shown}{more}{time_spent}{self._dim[1]}")
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            self._put("\r\x1b[K")
            self._drawn = False

    def _put(self, text: str) -> None:
        put(self._err, text)
