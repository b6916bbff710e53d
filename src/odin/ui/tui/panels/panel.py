"""Rows of text that are drawn again only when they say something else.

Keeps what is known of the session and lets the panels show it.
"""

import contextlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.strip import Strip
from textual.widget import Widget

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
from odin.ui.terminal import escape_hidden, shorten, width_of
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.facts import SessionFacts

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


@dataclass(frozen=True, slots=True)
class PanelRow:
    """One row. `click` is what a click on it does: an action of the app, with its arguments."""

    text: Text
    click: tuple[str, ...] = ()


class Panel(Widget, can_focus=False):
    """Shows what `rows` makes of the facts. It takes no keys: what it can do has a key of its own in the table."""

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
        """What is to be seen now, in this many columns."""
        ...

    def sync(self) -> None:
        """Draw it again if it says something else."""
        rows = self.build_rows(max(self.content_size.width or self.odin.size.width - 2, 1)) if self.display else []
        if rows != self._rows:
            self._rows = rows
            self.fit(len(rows))
            self.refresh()

    def fit(self, rows: int) -> None:
        """Take as much of the screen as there are rows; most panels have a height of their own.

        An automatic height would be Textual's, which keeps an old one when two changes follow each other closely.
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
            name, *given = click
            done = getattr(self.odin, f"action_{name}")(*given)
            if isawaitable(done):
                await done


def make_text(text: str, style: Style, room: int = 0) -> Text:
    """Foreign text as it may be shown: one line, nothing hidden in it, cut where there is no more room."""
    plain = escape_hidden(text)
    return Text.assemble((shorten(plain, room) if room else plain, style), no_wrap=True, end="")


def align_sides(left: Text, right: Text, room: int) -> Text:
    """Both in one row, the right one at its end. What is too much is cut from the left one."""
    gap = room - width_of(left.plain) - width_of(right.plain)
    if gap < 1 and right.plain:
        left = left.copy()
        left.truncate(max(room - width_of(right.plain) - 1, 0), overflow="ellipsis")
        gap = room - width_of(left.plain) - width_of(right.plain)
    return Text.assemble(left, " " * max(gap, 0), right, no_wrap=True, end="")


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
