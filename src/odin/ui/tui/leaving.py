"""The ways out of the app, and what is left on the terminal afterwards."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.painter import paint_block
from odin.ui.tui.palette import Palette
from odin.ui.tui.story.block import TranscriptBlock

DOUBLE_PRESS_S = 2.0
"""How soon the second press of a key has to follow the first."""

_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class DoublePress:
    """Tells a second press from a first one."""

    def __init__(self, seconds: float = DOUBLE_PRESS_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._pressed_at = -seconds - 1

    def press(self) -> bool:
        """True when this is the second press in time; the next one is a first one again."""
        now = self._clock()
        second = now - self._pressed_at <= self._seconds
        self._pressed_at = -self._seconds - 1 if second else now
        return second

    def forget(self) -> None:
        self._pressed_at = -self._seconds - 1


class ExitSignals:
    """Ends the app on the signals that ask for it, and lets an interrupt be what Ctrl+C is.

    They are taken until the process ends. A window that is closed sends more than one, and the second must not tear
    off what the first began. They are handled in the order of their numbers: an end before a continuation.
    """

    def __init__(self, end: Callable[[int], None], interrupt: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = end
        self._interrupt = interrupt
        for number in (*_EXIT_SIGNALS, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: object) -> None:
        with contextlib.suppress(RuntimeError):
            if number == signal.SIGINT:
                self._loop.call_soon_threadsafe(self._interrupt)
            else:
                self._loop.call_soon_threadsafe(self._end, 128 + number)


def ignore_signals() -> None:
    """For the very last moments, when Python has given up its handlers and nothing is left to be stopped."""
    for number in (*_EXIT_SIGNALS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def print_transcript(blocks: list[TranscriptBlock], palette: Palette, out: TextIO) -> None:
    """The conversation as ordinary lines, for the ordinary scrollback."""
    plain = bool(os.environ.get("NO_COLOR")) or not out.isatty()
    width = 100
    with contextlib.suppress(OSError, ValueError):
        width = max(os.get_terminal_size(out.fileno()).columns, 20)
    console = Console(
        file=out, width=width, force_terminal=not plain, no_color=plain, color_system=None if plain else "truecolor"
    )
    canvas = Canvas(width, palette)
    for block in blocks:
        for strip in paint_block(block, canvas):
            out.write((strip.text if plain else strip.render(console)).rstrip() + "\n")
    out.flush()
