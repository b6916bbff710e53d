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
from odin.ui.tui.panels.facts import SessionFacts
from odin.ui.tui.panels.panel import Panel

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

REFRESH_EVENTS = (
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

REFRESH_S = 0.5


class PanelUpdater:
    """A watcher. It asks the session at most twice a second, one question at a time, and never when nothing happens."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app
        self.facts = SessionFacts()
        self._client: Client | None = None
        self._is_stale = False
        self._is_refreshing = False
        self._is_key_stale = False

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self.facts = SessionFacts(info)
        self._client = client
        self._is_stale = self._is_key_stale = True
        self._app.request_frame()

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        self.facts.apply(envelope, live)
        if isinstance(event, REFRESH_EVENTS):
            self._is_stale = True
        if isinstance(event, ModelChanged):
            self._is_key_stale = True
        if live and isinstance(event, Warned) and event.level == "error":
            self._app.show_toast(event.text, "error")

    @property
    def is_idle(self) -> bool:
        """Whether everything there is to know is known and shown."""
        return not (self._is_stale or self._is_refreshing)

    def draw_frame(self) -> None:
        if self._is_stale and not self._is_refreshing and self._client is not None:
            self._is_stale, self._is_refreshing = False, True
            self._app.run_worker(partial(self._refresh_info, self._client), exit_on_error=False)
        if self._is_key_stale and self._client is not None and self._app.side.is_wanted:
            self._is_key_stale = False
            self._app.run_worker(partial(self._refresh_key, self._client), exit_on_error=False)
        for panel in self._app.query(Panel):
            panel.sync()

    async def _refresh_info(self, client: Client) -> None:
        with contextlib.suppress(OdinError, OSError):
            info, context = await client.get_info(), await client.report_context()
            if client is self._client:
                self.facts.update(info, context)
        self._app.request_frame()
        self._app.set_timer(REFRESH_S, self._allow_refresh)

    def _allow_refresh(self) -> None:
        self._is_refreshing = False
        if self._is_stale:
            self._app.request_frame()

    async def _refresh_key(self, client: Client) -> None:
        """How the model is reached, in the words of the session: by which key, or without any."""
        with contextlib.suppress(OdinError, OSError):
            choices = await client.list_models()
            if client is self._client:
                self.facts.key_note = next((one.note for one in choices if one.ref == self.facts.chosen_model), "")
        self._app.request_frame()
