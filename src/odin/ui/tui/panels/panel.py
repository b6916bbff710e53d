"""The base of all panels, widgets made of text rows, and the area that holds them."""

from abc import abstractmethod
from inspect import isawaitable
from typing import cast

from msgspec import Struct
from rich.style import Style
from rich.text import Text
from textual import events
from textual.containers import Vertical
from textual.strip import Strip
from textual.widget import Widget

from odin.ui.session_facts import SessionFacts
from odin.ui.terminal import escape_hidden, measure_width, shorten
from odin.ui.tui.palette import Palette
from odin.ui.tui.session_app import SessionApp


class PanelRow(Struct, frozen=True):
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
    def odin(self) -> SessionApp:
        return cast(SessionApp, self.app)

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


SHORT_SCREEN = 16
"""On screens with fewer rows a request has nearly all of them, and no hint below its answers."""


class BottomArea(Vertical):
    """Everything below the transcript. It grows under a dialog, so that the transcript ends above the dialog.

    The dialog covers it, or is `below` it while the keyboard belongs to the composer, which is alone on a short screen.
    """

    DEFAULT_CSS = """
    BottomArea {
        height: auto;
        &.-short > *, &.-short QueuePanel { max-height: 0; }
        &.-short > InputPanel { max-height: 100%; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._reserved_for: object = None

    def reserve(self, rows: int, owner: object, *, below: bool = False) -> None:
        """Take at least this many rows for `owner`."""
        self._reserved_for = owner
        self.set_class(below and self.screen.size.height < SHORT_SCREEN, "-short")
        self.styles.min_height = 0 if below else rows
        self.styles.padding = (0, 0, rows if below else 0, 0)

    def count_rows(self) -> int:
        """Return how many rows its parts take while a dialog is below."""
        parts = self.query("Composer") if self.screen.size.height < SHORT_SCREEN else self.children
        return sum(part.outer_size.height for part in parts if part.display)

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


def skip_second_styling(event: events.ScreenResume) -> None:
    """Leave the widgets of a screen that is shown for the first time as they were styled when they were mounted.

    Textual would style all of them again. A change of the theme styles every screen at once.
    """
    event.refresh_styles = False
