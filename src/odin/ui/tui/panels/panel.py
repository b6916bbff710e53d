"""The base of all panels, widgets made of text rows, the area that holds them, and the observer that feeds them."""

import contextlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.containers import Vertical
from textual.strip import Strip
from textual.widget import Widget

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
from odin.ui.terminal import escape_hidden, measure_width, shorten
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.facts import SessionFacts
from odin.ui.tui.timers import call_after

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


@dataclass(frozen=True, slots=True)
class PanelRow:
    """One row. `click` is the app action a click runs: its name, then its arguments."""

    text: Text
    click: tuple[str, ...] = ()


class Panel(Widget, can_focus=False):
    """Draws the rows of `build_rows`, and only when they changed. Panels never have the focus."""

    DEFAULT_CSS = """
    Panel { height: 0; width: 1fr; background: $background; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[PanelRow] = []

    @property
    def odin(self) -> "OdinApp":
        return cast("OdinApp", self.app)

    @property
    def facts(self) -> SessionFacts:
        return self.odin.facts

    @property
    def palette(self) -> Palette:
        return self.odin.palette

    @abstractmethod
    def build_rows(self, width: int) -> list[PanelRow]:
        """Return the rows to show in this many columns."""
        ...

    def sync(self) -> None:
        """Rebuild the rows and redraw the panel if they changed."""
        rows = self.build_rows(max(self.content_size.width or self.odin.size.width - 2, 1)) if self.display else []
        if rows != self._rows:
            self._rows = rows
            self.fit(len(rows))
            self.refresh()

    def fit(self, rows: int) -> None:
        """Adapt the height to the number of rows; by default the height is fixed.

        Textual's `height: auto` keeps a stale height when two changes follow each other closely.
        """

    def on_resize(self, event: events.Resize) -> None:
        self.sync()

    def render_line(self, y: int) -> Strip:
        room = self.size.width
        if y >= len(self._rows):
            return Strip.blank(room, self.rich_style)
        strip = Strip(self._rows[y].text.render(self.odin.console))
        return strip.crop_extend(0, room, None).apply_style(self.rich_style)

    async def on_click(self, event: events.Click) -> None:
        if 0 <= event.y < len(self._rows) and (click := self._rows[event.y].click):
            event.stop()
            name, *args = click
            result = getattr(self.odin, f"action_{name}")(*args)
            if isawaitable(result):
                await result


class BottomArea(Vertical):
    """Everything below the transcript. It grows under a dialog, so that the transcript ends above the dialog."""

    DEFAULT_CSS = """
    BottomArea { height: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._reserved_for: object = None

    def reserve(self, rows: int, owner: object) -> None:
        """Take at least this many rows for `owner`."""
        self._reserved_for = owner
        self.styles.min_height = rows

    def release(self, owner: object) -> None:
        """Give the rows back, unless another owner has taken them since."""
        if self._reserved_for is owner:
            self.reserve(0, None)


def make_text(text: str, style: Style, room: int = 0) -> Text:
    """Return untrusted text as one safe line, cut to `room` cells if given."""
    plain = escape_hidden(text)
    return Text.assemble((shorten(plain, room) if room else plain, style), no_wrap=True, end="")


def align_sides(left: Text, right: Text, room: int) -> Text:
    """Return one row with `right` aligned to its end; `left` is cut if both do not fit."""
    gap = room - measure_width(left.plain) - measure_width(right.plain)
    if gap < 1 and right.plain:
        left = left.copy()
        left.truncate(max(room - measure_width(right.plain) - 1, 0), overflow="ellipsis")
        gap = room - measure_width(left.plain) - measure_width(right.plain)
    return Text.assemble(left, " " * max(gap, 0), right, no_wrap=True, end="")


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
        """True if no refresh is pending or running."""
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
        call_after(self._app, REFRESH_S, self._allow_refresh)

    def _allow_refresh(self) -> None:
        self._is_refreshing = False
        if self._is_stale:
            self._app.request_frame()

    async def _refresh_key(self, client: Client) -> None:
        """Look up the note on the chosen model: which API key it uses, or that it needs none."""
        with contextlib.suppress(OdinError, OSError):
            models = await client.list_models()
            if client is self._client:
                ref = self.facts.chosen_model
                plain = ref.rpartition("@")[0]
                self.facts.key_note = next((model.note for model in models if model.ref in (ref, plain)), "")
        self._app.request_frame()
