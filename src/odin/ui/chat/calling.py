"""Calls the person back to a plain conversation: the same bell, notification and title as the app's, where it may."""

import asyncio
import os
from typing import TextIO

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope
from odin.core.screen import TuiSettings
from odin.ui.notify import Notifier
from odin.ui.terminal import is_dumb, write_text

_DELAY_S = 0.1
"""A turn that another follows at once calls nobody."""


class PlainNotifier:
    """Nothing is written to what is no terminal, or to one that understands only lines."""

    def __init__(self, settings: TuiSettings, err: TextIO) -> None:
        self._notifier = Notifier(None, settings)
        self._notifier.write = lambda text: write_text(err, text)
        self._enabled = err.isatty() and not is_dumb(os.environ)
        self._timer: asyncio.TimerHandle | None = None

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._notifier.enter_session(client, info)
        self._schedule()

    def handle_event(self, envelope: Envelope) -> None:
        self._notifier.handle_event(envelope, True)
        self._schedule()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._notifier.restore_title()

    def _schedule(self) -> None:
        if self._enabled and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_S, self._draw)

    def _draw(self) -> None:
        self._timer = None
        self._notifier.draw_frame()
