"""Runs the terminal app with the sessions on this machine, and restores the terminal afterwards."""

import asyncio
import gc
import importlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from odin.commands.command_line import write_message
from odin.config import Options
from odin.core.errors import OdinError
from odin.core.event_values import Mode
from odin.core.tui_settings import TuiSettings
from odin.policy.modes import parse_mode
from odin.ui.exit import format_resume_hint
from odin.ui.tui.app import Connect, OdinApp
from odin.ui.tui.lifecycle import ExitSignals, ignore_signals, print_transcript
from odin.ui.tui.palette import make_palette
from odin.ui.tui.terminal_driver import OdinDriver, Terminal

if TYPE_CHECKING:
    from odin.core.client import Sessions
    from odin.core.setup import Setup, TrustGate
    from odin.models.onboarding import Onboarding


class AppResult(Struct, frozen=True):
    """How the app ended; `failure` is set if an error ended it."""

    code: int
    session: str = ""
    failure: BaseException | None = None


async def run_app(
    connect: Connect, settings: TuiSettings, *, first: str = "", mode: Mode | None = None, **more: Any
) -> AppResult:
    """Run the app until the user leaves it. The caller closes the session that `connect` opened."""
    _collect_rarely()
    asyncio.get_running_loop().set_exception_handler(_log_unhandled_error)
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


def _collect_rarely() -> None:
    """Freeze everything allocated so far and make later collections rare: a full one takes longer than two frames."""
    gc.freeze()
    gc.set_threshold(4_000, 6, 200)
    gc.enable()


def _log_unhandled_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors of unawaited tasks instead of printing them over the screen. What that needs is imported for it."""
    from odin.app.crash_log import log_unhandled_errors

    log_unhandled_errors(loop, os.environ)
    loop.call_exception_handler(context)


async def run_tui(
    options: Options, settings: TuiSettings, *, first: str, mode: str, attaching: "Awaitable[Sessions | None] | None"
) -> int:
    """Run the app and return the exit code.

    The session is opened after the first frame is drawn, and closed after the terminal is restored. `attaching`: one
    that another process has open is not opened here.
    """
    opened = AsyncExitStack()
    setups: list[Onboarding] = []

    def setup() -> "Setup":
        from odin.models.onboarding import Onboarding

        setups.append(Onboarding(options))
        return setups[-1]

    async def connect() -> "Sessions":
        module = await asyncio.to_thread(importlib.import_module, "odin.commands.attach")
        model = setups[-1].model if setups else options.model
        options_now = msgspec.structs.replace(options, can_ask=True, model=model)
        sessions: Sessions = await opened.enter_async_context(module.open_sessions(options_now, attach=False))
        _collect_rarely()
        return sessions

    try:
        result = await run_app(
            connect,
            settings,
            first=first,
            mode=parse_mode(mode) if mode else None,
            setup=setup,
            trust=None if options.trust else _make_trust_check(options),
            attaching=attaching,
        )
    finally:
        await opened.aclose()
        ignore_signals()
    return _report(result)


async def run_attached(attaching: "Awaitable[Sessions | None]", settings: TuiSettings) -> int:
    """Run the app on the sessions of another process, and return the exit code."""

    async def connect() -> "Sessions":
        sessions = await attaching
        assert sessions is not None
        return sessions

    try:
        result = await run_app(connect, settings)
    finally:
        ignore_signals()
    return _report(result)


def _report(result: AppResult) -> int:
    """Return the exit code of the app. Raise what ended it if that has a sentence for the user."""
    failure = result.failure
    if failure is None:
        return result.code
    if isinstance(failure, OdinError):
        raise failure
    from odin.app.crash_log import log_crash

    path = log_crash(failure, os.environ)
    details = f" Details are in {path}." if path else ""
    write_message(f"odin: the app crashed: {type(failure).__name__}: {failure}. The session is saved.{details}")
    return 1


def _make_trust_check(options: Options) -> "Callable[[], TrustGate | None]":
    """Return a function that returns the next trust request, None after the last."""

    def find_all() -> "Iterator[TrustGate]":
        from odin.commands.trust import find_pending_trusts

        yield from find_pending_trusts(options.cwd, options.add_dirs, os.environ)

    return partial(next, find_all(), None)
