"""Runs the terminal app with the sessions on this machine."""

import asyncio
import gc
import importlib
import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from odin.commands.command_line import CLOSE_TIMEOUT_S, SHUTDOWN_TIMEOUT, write_message
from odin.config import Options
from odin.core.errors import OdinError
from odin.core.tui_settings import TuiSettings
from odin.policy.modes import mode_of
from odin.ui.tui.lifecycle import ignore_signals
from odin.ui.tui.run import AppResult, run_app

if TYPE_CHECKING:
    from odin.app.sessions import SessionSwitcher
    from odin.core.onboarding import Setup, TrustGate
    from odin.models.onboarding import Onboarding


async def run_tui(options: Options, settings: TuiSettings, *, first: str, mode: str) -> int:
    """Run the app and return the exit code.

    The session is opened after the first frame is drawn, and closed after the terminal is restored.
    """
    opened: list[SessionSwitcher] = []
    setups: list[Onboarding] = []

    def setup() -> "Setup":
        from odin.models.onboarding import Onboarding

        setups.append(Onboarding(options))
        return setups[-1]

    async def connect() -> "SessionSwitcher":
        open_switcher = (await asyncio.to_thread(importlib.import_module, "odin.app.sessions")).open_switcher
        from odin.app.crash_log import log_unhandled_errors

        log_unhandled_errors(asyncio.get_running_loop(), os.environ)
        model = setups[-1].model if setups else options.model
        sessions: SessionSwitcher = await open_switcher(msgspec.structs.replace(options, can_ask=True, model=model))
        opened.append(sessions)
        _tune_garbage_collection()
        return sessions

    try:
        result = await run_app(
            connect,
            settings,
            first=first,
            mode=mode_of(mode) if mode else None,
            setup=setup,
            trust=None if options.trust else partial(_check_trust, options.cwd),
        )
    finally:
        for sessions in opened:
            try:
                await asyncio.wait_for(sessions.close(), CLOSE_TIMEOUT_S)
            except TimeoutError:
                write_message(SHUTDOWN_TIMEOUT)
        ignore_signals()
    return _report_end(result)


def _tune_garbage_collection() -> None:
    """Freeze everything allocated so far and make later collections rare: a full one takes longer than two frames."""
    gc.freeze()
    gc.set_threshold(4_000, 6, 200)


def _check_trust(cwd: str) -> "TrustGate | None":
    from odin.commands.trust import find_pending_trust

    return find_pending_trust(cwd, os.environ)


def _report_end(result: AppResult) -> int:
    """Return the exit code. Report a crash of the app on standard error."""
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
