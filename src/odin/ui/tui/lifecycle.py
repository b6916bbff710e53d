"""What is settled with a person before the session is opened: whether the folder is trusted, and which model to use.

The ways out of the app, and what is left on the terminal afterwards.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

from odin.core.errors import OdinError
from odin.core.onboarding import Setup, TrustGate
from odin.core.op import SetModel
from odin.ui.tui.blocks import TranscriptBlock
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.painter import paint_block
from odin.ui.tui.palette import Palette

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


LoadTrust = Callable[[], TrustGate | None]
"""Looks whether the folder asks to be trusted; None when there is nothing to ask. It reads files."""

LoadSetup = Callable[[], Setup]
"""Looks whether this is a first run; reads files, too."""


class Startup:
    """Both are asked only when there is something to ask, and nothing of the project is used before the answer."""

    def __init__(self, app: "OdinApp", trust: LoadTrust | None, setup: LoadSetup | None) -> None:
        self._app = app
        self._load_trust = trust
        self._load_setup = setup
        self._setup: Setup | None = None

    async def run_dialogs(self) -> None:
        """Called once, in a worker, before the session is opened."""
        if self._load_trust is not None:
            trust = await asyncio.to_thread(self._load_trust)
            if trust is not None:
                await self._ask_trust(trust)
        if self._load_setup is not None:
            self._setup = await asyncio.to_thread(self._load_setup)
            if not self._setup.is_done:
                await self.show_onboarding()

    async def _ask_trust(self, trust: TrustGate) -> None:
        from odin.ui.tui.dialogs.onboarding import TrustDialog

        if not await self._app.push_screen_wait(TrustDialog(trust.request)):
            self._app.show_toast("Not trusted: going on without the settings of this folder.")
            return
        try:
            await trust.grant()
            self._app.show_toast("Trusted until its content changes. `odin trust remove` takes it back.")
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")

    async def show_onboarding(self) -> None:
        """Show what there is, also to somebody who was here before. The open session takes the model at once."""
        from odin.ui.tui.dialogs.onboarding import OnboardingDialog

        if self._setup is None:
            self._app.show_toast("Nothing can be set up from here: use `odin auth` where Odin runs.")
            return
        open_already = self._app.info is not None
        chosen = await self._app.push_screen_wait(OnboardingDialog(self._setup, again=open_already))
        if open_already:
            if chosen is not None and await self._app.submit(SetModel(chosen.ref)):
                self._app.show_toast(f"Using {chosen.ref}. /setup and /model change it.")
        elif chosen is None or chosen.kind == "planner":
            await self._setup.use_offline_planner()
            self._app.show_toast("The offline planner answers for now. /setup and /model choose a model.")
        else:
            self._app.show_toast(f"Using {chosen.ref}. /setup and /model change it.")


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
