"""The terminal app on this machine's sessions."""

import asyncio
import gc
import importlib
import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from odin.commands.command_line import write_message
from odin.commands.main import CLOSE_TIMEOUT_S
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
    """The session is opened after the screen is drawn, and closed after the terminal was given back."""
    held: list[SessionSwitcher] = []
    setups: list[Onboarding] = []

    def setup() -> "Setup":
        from odin.models.onboarding import Onboarding

        setups.append(Onboarding(options))
        return setups[-1]

    async def connect() -> "SessionSwitcher":
        open_host = (await asyncio.to_thread(importlib.import_module, "odin.app.sessions")).open_switcher
        from odin.app.crash_log import log_unhandled_errors

        log_unhandled_errors(asyncio.get_running_loop(), os.environ)
        model = setups[-1].model if setups else options.model
        host: SessionSwitcher = await open_host(msgspec.structs.replace(options, can_ask=True, model=model))
        held.append(host)
        _tune_garbage_collection()
        return host

    try:
        ended = await run_app(
            connect,
            settings,
            first=first,
            mode=mode_of(mode) if mode else None,
            setup=setup,
            trust=None if options.trust else partial(_check_trust, options.cwd),
        )
    finally:
        for host in held:
            try:
                await asyncio.wait_for(host.close(), CLOSE_TIMEOUT_S)
            except TimeoutError:
                write_message("odin: what was running did not end in time.")
        ignore_signals()
    return _report_end(ended)


def _tune_garbage_collection() -> None:
    """Looking through all that was ever loaded for what is not needed any more takes longer than two frames: what is
    there when the session is open stays, and what comes is looked through when there is much of it."""
    gc.freeze()
    gc.set_threshold(4_000, 6, 200)


def _check_trust(cwd: str) -> "TrustGate | None":
    from odin.commands.trust import find_pending_trust

    return find_pending_trust(cwd, os.environ)


def _report_end(ended: AppResult) -> int:
    """The exit code; what went wrong is said where the person sees it."""
    failure = ended.failure
    if failure is None:
        return ended.code
    if isinstance(failure, OdinError):
        raise failure
    from odin.app.crash_log import log_crash

    path = log_crash(failure, os.environ)
    where = f" {path} says more." if path else ""
    write_message(
        f"odin: the screen failed: {type(failure).__name__}: {failure}. Nothing of the session is lost.{where}"
    )
    return 1
