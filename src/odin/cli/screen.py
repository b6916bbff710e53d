"""The terminal app on this machine's sessions."""

import asyncio
import importlib
import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from odin.cli.output import say
from odin.config import Options
from odin.core.errors import OdinError
from odin.core.screen import ScreenSettings
from odin.policy.modes import mode_of
from odin.ui.tui.run import Ended, run_app

if TYPE_CHECKING:
    from odin.app.host import Host
    from odin.core.setup import Setup
    from odin.core.trust import Trust

CLOSING_S = 10.0
"""What is still running when the app is left gets this long to end."""


async def run_screen(options: Options, settings: ScreenSettings, *, first: str, mode: str) -> int:
    """The session is opened after the screen is drawn, and closed after the terminal was given back."""
    held: list[Host] = []

    async def connect() -> "Host":
        open_host = (await asyncio.to_thread(importlib.import_module, "odin.app.host")).open_host
        from odin.app.logfile import watch

        watch(asyncio.get_running_loop(), os.environ)
        host: Host = await open_host(msgspec.structs.replace(options, can_ask=True))
        held.append(host)
        return host

    try:
        ended = await run_app(
            connect,
            settings,
            first=first,
            mode=mode_of(mode) if mode else None,
            setup=partial(_setup, options),
            trust=None if options.trust else partial(_trust, options.cwd),
        )
    finally:
        for host in held:
            try:
                await asyncio.wait_for(host.close(), CLOSING_S)
            except TimeoutError:
                say("odin: what was running did not end in time.")
    return _told(ended)


def _setup(options: Options) -> "Setup":
    from odin.app.setup import FirstRun

    return FirstRun(options)


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
