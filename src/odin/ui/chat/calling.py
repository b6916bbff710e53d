"""Calls the person back to a plain conversation: the same bell, notification and title as the app's, where it may."""

import asyncio
import os
from typing import TextIO

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope
from odin.core.screen import ScreenSettings
from odin.ui.notify import Notifier
from odin.ui.terminal import dumb, put

_SOON_S = 0.1
"""A turn that another follows at once calls nobody."""


class Calling:
    """Nothing is written to what is no terminal, or to one that understands only lines."""

    def __init__(self, settings: ScreenSettings, err: TextIO) -> None:
        self._notifier = Notifier(None, settings)
        self._notifier.write = lambda text: put(err, text)
        self._can = err.isatty() and not dumb(os.environ)
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, client: Client, info: SessionInfo) -> None:
        self._notifier.enter(client, info)
        self._soon()

    def see(self, envelope: Envelope) -> None:
        self._notifier.see(envelope, True)
        self._soon()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._notifier.restore()

    def _soon(self) -> None:
        if self._can and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SOON_S, self._call)

    def _call(self) -> None:
        self._timer = None
        self._notifier.frame()
