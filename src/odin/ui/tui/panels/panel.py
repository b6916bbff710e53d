"""Rows of text that are drawn again only when they say something else."""

from abc import abstractmethod
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.strip import Strip
from textual.widget import Widget

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
