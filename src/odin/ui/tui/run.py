"""Runs the app in a terminal and restores the terminal afterwards."""

import sys
from typing import Any

from msgspec import Struct

from odin.core.event_values import Mode
from odin.core.tui_settings import TuiSettings
from odin.ui.exit import format_resume_hint
from odin.ui.tui.app import Connect, OdinApp
from odin.ui.tui.lifecycle import ExitSignals, print_transcript
from odin.ui.tui.palette import make_palette
from odin.ui.tui.terminal.driver import OdinDriver, Terminal


class AppResult(Struct, frozen=True):
    """How the app ended; `failure` is set if an error ended it."""

    code: int
    session: str = ""
    failure: BaseException | None = None


async def run_app(
    connect: Connect, settings: TuiSettings, *, first: str = "", mode: Mode | None = None, **more: Any
) -> AppResult:
    """Run the app until the user leaves it. The caller closes the session that `connect` opened."""
    terminal = Terminal()
    terminal.repair()
    app = OdinApp(connect, settings, first=first, mode=mode, driver_class=OdinDriver, **more)
    ExitSignals(app.end, app.handle_interrupt)
    try:
        code = await app.run_async(mouse=settings.mouse)
    finally:
        driver: Any = app._driver
        if driver is None or driver.has_left:
            terminal.restore()
        else:
            terminal.leave()
    if app.prints_transcript and app.failure is None:
        print_transcript(app.transcripts[""].blocks, make_palette(app.current_theme), sys.stdout)
    session = app.info.session if app.info is not None else ""
    asked = bool(app.transcripts[""].blocks)
    sys.stdout.write(format_resume_hint(session, asked))
    sys.stdout.flush()
    return AppResult(code if code is not None else 1, session, app.failure)
