"""The terminal app on this machine's sessions."""

import asyncio
import gc
import importlib
import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from odin.cli.main import CLOSING_S
from odin.cli.output import say
from odin.config import Options
from odin.core.errors import OdinError
from odin.core.screen import ScreenSettings
from odin.policy.modes import mode_of
from odin.ui.tui.leaving import ignore_signals
from odin.ui.tui.run import Ended, run_app

if TYPE_CHECKING:
    from odin.app.host import Host
    from odin.app.setup import FirstRun
    from odin.core.setup import Setup
    from odin.core.trust import Trust


async def run_screen(options: Options, settings: ScreenSettings, *, first: str, mode: str) -> int:
    """The session is opened after the screen is drawn, and closed after the terminal was given back."""
    held: list[Host] = []
    setups: list[FirstRun] = []

    def setup() -> "Setup":
        from odin.app.setup import FirstRun

        setups.append(FirstRun(options))
        return setups[-1]

    async def connect() -> "Host":
        open_host = (await asyncio.to_thread(importlib.import_module, "odin.app.host")).open_host
        from odin.app.logfile import watch

        watch(asyncio.get_running_loop(), os.environ)
        model = setups[-1].model if setups else options.model
        host: Host = await open_host(msgspec.structs.replace(options, can_ask=True, model=model))
        held.append(host)
        _collect_seldom()
        return host

    try:
        ended = await run_app(
            connect,
            settings,
            first=first,
            mode=mode_of(mode) if mode else None,
            setup=setup,
            trust=None if options.trust else partial(_trust, options.cwd),
        )
    finally:
        for host in held:
            try:
                await asyncio.wait_for(host.close(), CLOSING_S)
            except TimeoutError:
                say("odin: what was running did not end in time.")
        ignore_signals()
    return _told(ended)


def _collect_seldom() -> None:
    """Looking through all that was ever loaded for what is not needed any more takes longer than two frames: what is
    there when the session is open stays, and what comes is looked through when there is much of it."""
    gc.freeze()
    gc.set_threshold(4_000, 6, 200)


def _trust(cwd: str) -> "Trust | None":
    from odin.app.trust import wanted

    return wanted(cwd, os.environ)


def _told(ended: Ended) -> int:
    """The exit code; what went wrong is said where the person sees it."""
    failure = ended.failure
    if failure is None:
        return ended.code
    if isinstance(failure, OdinError):
        raise failure
    from odin.app.logfile import crashed

    path = crashed(failure, os.environ)
    where = f" {path} says more." if path else ""
    say(f"odin: the screen failed: {type(failure).__name__}: {failure}. Nothing of the session is lost.{where}")
    return 1
