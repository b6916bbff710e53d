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
from odin.ui.tui.paint.painter import paint
from odin.ui.tui.palette import Palette
from odin.ui.tui.story.block import Block

TWICE_S = 2.0
"""How soon the second press of a key has to follow the first."""

_ENDINGS = {signal.SIGTERM: 143, signal.SIGHUP: 129}


class Twice:
    """Tells a second press from a first one."""

    def __init__(self, seconds: float = TWICE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._pressed = -seconds - 1

    def press(self) -> bool:
        """True when this is the second press in time; the next one is a first one again."""
        now = self._clock()
        second = now - self._pressed <= self._seconds
        self._pressed = -self._seconds - 1 if second else now
        return second

    def forget(self) -> None:
        self._pressed = -self._seconds - 1


class Signals:
    """Ends the app on the signals that ask for it, and lets an interrupt be what Ctrl+C is."""

    def __init__(self, end: Callable[[int], None], interrupt: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        for number, code in _ENDINGS.items():
            self._loop.add_signal_handler(number, end, code)
        self._loop.add_signal_handler(signal.SIGINT, interrupt)

    def close(self) -> None:
        """From here on everything is being put away; one more Ctrl+C must not tear that off."""
        for number in (*_ENDINGS, signal.SIGINT):
            self._loop.remove_signal_handler(number)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def print_transcript(blocks: list[Block], palette: Palette, out: TextIO) -> None:
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
        for strip in paint(block, canvas):
            out.write((strip.text if plain else strip.render(console)).rstrip() + "\n")
    out.flush()
