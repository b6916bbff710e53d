"""Keeps what is known of the session and lets the panels show it."""

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
from odin.core.event import (
    Compacted,
    CompactionChanged,
    ContextSummarized,
    Envelope,
    MessageRemoved,
    ModelChanged,
    PermissionModeChanged,
    ResultsPruned,
    Rewound,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
    Warned,
)
from odin.ui.tui.panels.facts import Facts
from odin.ui.tui.panels.panel import Panel

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

NEWS = (
    Compacted,
    CompactionChanged,
    ContextSummarized,
    MessageRemoved,
    ModelChanged,
    PermissionModeChanged,
    ResultsPruned,
    Rewound,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
"""After these the session is asked again how full the window is and which branch is checked out."""

ASK_AGAIN_S = 0.5


class Board:
    """A watcher. It asks the session at most twice a second, one question at a time, and never when nothing happens."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app
        self.facts = Facts()
        self._client: Client | None = None
        self._stale = False
        self._asking = False
        self._key_stale = False

    def enter(self, client: Client, info: SessionInfo) -> None:
        self.facts = Facts(info)
        self._client = client
        self._stale = self._key_stale = True
        self._app.wake()

    def see(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        self.facts.see(envelope, live)
        if isinstance(event, NEWS):
            self._stale = True
        if isinstance(event, ModelChanged):
            self._key_stale = True
        if live and isinstance(event, Warned) and event.level == "error":
            self._app.tell(event.text, "error")

    @property
    def at_rest(self) -> bool:
        """Whether everything there is to know is known and shown."""
        return not (self._stale or self._asking)

    def frame(self) -> None:
        if self._stale and not self._asking and self._client is not None:
            self._stale, self._asking = False, True
            self._app.run_worker(partial(self._ask, self._client), exit_on_error=False)
        if self._key_stale and self._client is not None and self._app.side.wanted:
            self._key_stale = False
            self._app.run_worker(partial(self._ask_key, self._client), exit_on_error=False)
        for panel in self._app.query(Panel):
            panel.sync()

    async def _ask(self, client: Client) -> None:
        with contextlib.suppress(OdinError, OSError):
            info, context = await client.info(), await client.context()
            if client is self._client:
                self.facts.answered(info, context)
        self._app.wake()
        self._app.set_timer(ASK_AGAIN_S, self._may_ask)

    def _may_ask(self) -> None:
        self._asking = False
        if self._stale:
            self._app.wake()

    async def _ask_key(self, client: Client) -> None:
        """How the model is reached, in the words of the session: by which key, or without any."""
        with contextlib.suppress(OdinError, OSError):
            choices = await client.models()
            if client is self._client:
                self.facts.key = next((one.note for one in choices if one.ref == self.facts.chosen), "")
        self._app.wake()
