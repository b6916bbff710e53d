"""Runs the app in a terminal and gives the terminal back."""

import sys
from typing import Any

from msgspec import Struct

from odin.core.event import Mode
from odin.core.screen import ScreenSettings
from odin.ui.ending import farewell
from odin.ui.tui.app import Connect, OdinApp
from odin.ui.tui.leaving import Signals, print_transcript
from odin.ui.tui.palette import palette
from odin.ui.tui.terminal.driver import OdinDriver
from odin.ui.tui.terminal.restore import Terminal


class Ended(Struct, frozen=True):
    """How the app ended. With a `failure` it was not the person who ended it."""

    code: int
    session: str = ""
    failure: BaseException | None = None


async def run_app(
    connect: Connect, settings: ScreenSettings, *, first: str = "", mode: Mode | None = None, **more: Any
) -> Ended:
    """The app, until it is left. The session is whatever `connect` gives; whoever gave it also closes it."""
    terminal = Terminal()
    terminal.repair()
    app = OdinApp(connect, settings, first=first, mode=mode, driver_class=OdinDriver, **more)
    Signals(app.end, app.interrupted)
    try:
        code = await app.run_async(mouse=settings.mouse)
    finally:
        driver: Any = app._driver
        if driver is None or driver.left:
            terminal.restore()
        else:
            terminal.leave()
    if app.transcript_wanted and app.failure is None:
        print_transcript(app.stories[""].blocks, palette(app.current_theme), sys.stdout)
    session = app.info.session if app.info is not None else ""
    asked = bool(app.stories[""].blocks)
    sys.stdout.write(farewell(session, asked))
    sys.stdout.flush()
    return Ended(code if code is not None else 1, session, app.failure)
