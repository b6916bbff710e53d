"""The session observer that feeds the panels."""

import contextlib
from functools import partial

from odin.core.call_events import ToolEnded, UsageRecorded
from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
from odin.core.event import (
    Compacted,
    CompactionChanged,
    ContextSummarized,
    EffortChanged,
    Envelope,
    MessageRemoved,
    ModelChanged,
    PermissionModeChanged,
    ResultsPruned,
    Rewound,
    RoleChanged,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.ui.session_facts import SessionFacts
from odin.ui.tui.panels.panel import Panel
from odin.ui.tui.panels.side import SidePanel
from odin.ui.tui.panels.status import describe_status
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.timers import call_after

REFRESH_EVENTS = (
    Compacted,
    CompactionChanged,
    ContextSummarized,
    MessageRemoved,
    EffortChanged,
    ModelChanged,
    PermissionModeChanged,
    ResultsPruned,
    Rewound,
    RoleChanged,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
"""Events after which the context report and the session info (e.g. the git branch) may have changed."""

REFRESH_S = 0.5


class PanelUpdater:
    """Session observer that keeps the facts up to date; queries the session at most twice a second."""

    def __init__(self, app: SessionApp, side: SidePanel) -> None:
        self._app = app
        self._side = side
        self._client: Client | None = None
        self._is_stale = False
        self._is_refreshing = False
        self._is_key_stale = False
        self._is_status_stale = False
        self._is_reading_status = False

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._app.facts = SessionFacts(info)
        self._client = client
        self._is_stale = self._is_key_stale = True
        self._app.request_frame()

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        self._app.facts.apply(envelope, live)
        if isinstance(event, REFRESH_EVENTS):
            self._is_stale = True
        if isinstance(event, ModelChanged):
            self._is_key_stale = True
        if live and isinstance(event, Warned) and event.level == "error":
            self._app.show_toast(event.text, "error")

    @property
    def is_idle(self) -> bool:
        """True if no refresh is pending or running."""
        return not (self._is_stale or self._is_refreshing)

    def draw_frame(self) -> None:
        if self._is_stale and not self._is_refreshing and self._client is not None:
            self._is_stale, self._is_refreshing = False, True
            self._app.run_worker(partial(self._refresh_info, self._client), exit_on_error=False)
        if self._is_key_stale and self._client is not None and self._side.is_wanted:
            self._is_key_stale = False
            self._app.run_worker(partial(self._refresh_key, self._client), exit_on_error=False)
        for panel in self._app.query(Panel):
            panel.sync()

    async def _refresh_info(self, client: Client) -> None:
        with contextlib.suppress(OdinError, OSError):
            info, context = await client.get_info(), await client.report_context()
            if client is self._client:
                self._app.facts.update(info, context)
            if info.has_status_line:
                self._app.run_worker(self._refresh_status, exit_on_error=False)
        self._app.request_frame()
        call_after(self._app, REFRESH_S, self._allow_refresh)

    async def _refresh_status(self) -> None:
        """Run the program of the status line, one at a time: a slow one delays nothing else."""
        self._is_status_stale = True
        if self._is_reading_status:
            return
        self._is_reading_status = True
        try:
            while self._is_status_stale and (client := self._client) is not None:
                self._is_status_stale = False
                with contextlib.suppress(OdinError, OSError):
                    text = await client.read_status_line(describe_status(self._app.facts, self._app.clock()))
                    if client is self._client:
                        self._app.facts.status_text = text
                        self._app.request_frame()
        finally:
            self._is_reading_status = False

    def _allow_refresh(self) -> None:
        self._is_refreshing = False
        if self._is_stale:
            self._app.request_frame()

    async def _refresh_key(self, client: Client) -> None:
        """Look up the note on the chosen model: which API key it uses, or that it needs none."""
        with contextlib.suppress(OdinError, OSError):
            models = await client.list_models()
            if client is self._client:
                ref = self._app.facts.chosen_model
                plain = ref.rpartition("@")[0]
                self._app.facts.key_note = next((model.note for model in models if model.ref in (ref, plain)), "")
        self._app.request_frame()
