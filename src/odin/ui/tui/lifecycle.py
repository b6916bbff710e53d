"""Start and end of the app: trust and onboarding dialogs, exit signals, double key presses, transcript on exit."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

from odin.core.errors import OdinError
from odin.core.interaction import ask_for_trust
from odin.core.op import SetModel
from odin.core.setup import Setup, TrustGate
from odin.ui.transcript.blocks import TranscriptBlock
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.painter import is_joined, paint_block
from odin.ui.tui.palette import Palette
from odin.ui.tui.session_app import SessionApp

LoadTrust = Callable[[], TrustGate | None]
"""Returns the next trust request of the session's folders, None after the last. Blocking: reads files."""

LoadSetup = Callable[[], Setup]
"""Returns the onboarding state. Blocking: reads files."""


class Startup:
    """Shows the trust and onboarding dialogs if needed, before anything of the project is used."""

    def __init__(self, app: SessionApp, trust: LoadTrust | None, setup: LoadSetup | None) -> None:
        self._app = app
        self._load_trust = trust
        self._load_setup = setup
        self._setup: Setup | None = None

    async def run_dialogs(self) -> None:
        """Show the dialogs. Called once, in a worker, before the session is opened."""
        if self._load_trust is not None:
            while (trust := await asyncio.to_thread(self._load_trust)) is not None:
                await self._ask_trust(trust)
        if self._load_setup is not None:
            self._setup = await asyncio.to_thread(self._load_setup)
            if not self._setup.is_done:
                await self.show_onboarding()

    async def _ask_trust(self, trust: TrustGate) -> None:
        from odin.ui.tui.dialogs.interaction import InteractionDialog

        answer = await self._app.push_screen_wait(InteractionDialog(ask_for_trust(trust.request)))
        try:
            if answer in (None, "no"):
                await trust.refuse()
                self._app.show_toast("The settings of this folder are ignored. `odin trust add PATH` trusts it.")
                return
            await trust.grant(network=answer == "network")
            self._app.show_toast("Trusted until these files change. `odin trust remove` revokes it.")
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")

    async def show_onboarding(self) -> None:
        """Show the onboarding dialog. An open session switches to the chosen model at once."""
        from odin.ui.tui.dialogs.onboarding import OnboardingDialog

        if self._setup is None:
            self._app.show_toast("Setup is not available here. Run `odin auth` on the machine that runs Odin.")
            return
        is_open = self._app.info is not None
        chosen = await self._app.push_screen_wait(OnboardingDialog(self._setup, again=is_open))
        if is_open:
            if chosen is not None and await self._app.submit(SetModel(chosen.ref)):
                self._app.show_toast(f"Using {chosen.ref}. Change it with /setup or /model.")
        elif chosen is None or chosen.kind == "planner":
            await self._setup.use_offline_planner()
            self._app.show_toast("Using the offline planner. Choose a model with /setup or /model.")
        else:
            self._app.show_toast(f"Using {chosen.ref}. Change it with /setup or /model.")


_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class DoublePress:
    """Detects two presses of a key within some seconds of the clock."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._pressed_at = -seconds - 1

    def press(self) -> bool:
        """Record a press and return True if it is the second one in time."""
        now = self._clock()
        second = now - self._pressed_at <= self._seconds
        self._pressed_at = -self._seconds - 1 if second else now
        return second

    def forget(self) -> None:
        self._pressed_at = -self._seconds - 1


class ExitSignals:
    """Ends the app on SIGTERM and SIGHUP, and treats SIGINT like Ctrl+C.

    The handlers stay until the process ends: closing a window sends several signals, and the second must not abort the
    shutdown started by the first. Python runs pending handlers in the order of signal numbers, so an exit signal is
    handled before SIGCONT.
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
    """Ignore exit signals during interpreter shutdown, when Python's handlers are gone."""
    for number in (*_EXIT_SIGNALS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def print_transcript(blocks: list[TranscriptBlock], palette: Palette, out: TextIO) -> None:
    """Print the transcript as plain lines into the terminal's scrollback."""
    plain = bool(os.environ.get("NO_COLOR")) or not out.isatty()
    width = 100
    with contextlib.suppress(OSError, ValueError):
        width = max(os.get_terminal_size(out.fileno()).columns, 20)
    console = Console(
        file=out, width=width, force_terminal=not plain, no_color=plain, color_system=None if plain else "truecolor"
    )
    canvas = Canvas(width, palette)
    for before, block in zip([None, *blocks], blocks, strict=False):
        for strip in paint_block(block, canvas)[is_joined(block, before) :]:
            out.write((strip.text if plain else strip.render(console)).rstrip() + "\n")
    out.flush()
