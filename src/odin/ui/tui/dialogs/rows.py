"""A list of any length, of which only what is in view is drawn."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from odin.ui.terminal import width_of as columns_of
from odin.ui.tui.dialogs.colours import app_of, palette_of

Item = TypeVar("Item")

RowContent = tuple[Text, Sequence[str]]
"""A row: what it is about, and more about it for the right edge, the most important first."""

KeyFilter = Callable[[events.Key], bool]


class Rows(ScrollView, Generic[Item], can_focus=True, inherit_bindings=False):
    """One row for each item, one of them marked. Clicking the marked one, or any one twice, chooses it."""

    DEFAULT_CSS = """
    Rows {
        width: 1fr;
        height: 1fr;
        background: $surface;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-background: $surface;
        scrollbar-background-hover: $surface;
        scrollbar-background-active: $surface;
    }
    """

    class Marked(Message):
        """Another row is marked now."""

    class Chosen(Message):
        """The marked row is what the person wants."""

    def __init__(self, draw: Callable[[Item], RowContent], on_key: KeyFilter) -> None:
        super().__init__()
        self._draw_item = draw
        self._key_filter = on_key
        self._items: Sequence[Item] = ()
        self.mark = 0
        self.empty = ""

    # --- what is in it ---

    @property
    def items(self) -> Sequence[Item]:
        return self._items

    @property
    def marked(self) -> Item | None:
        return self._items[self.mark] if 0 <= self.mark < len(self._items) else None

    def show(self, items: Sequence[Item], mark: int = 0) -> None:
        """These from now on, with the mark at one of them."""
        self._items = items
        self.virtual_size = Size(self.size.width, len(items))
        self.mark = max(0, min(mark, len(items) - 1))
        self._follow_mark()
        self.refresh()
        self.post_message(self.Marked())

    def move(self, by: int) -> None:
        self.move_to(self.mark + by)

    def move_to(self, index: int) -> None:
        index = max(0, min(index, len(self._items) - 1))
        if index != self.mark and self._items:
            self.mark = index
            self._follow_mark()
            self.refresh()
            self.post_message(self.Marked())

    @property
    def page_size(self) -> int:
        return max(self.size.height - 1, 1)

    def _follow_mark(self) -> None:
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if self.mark < top:
            self.scroll_to(y=self.mark, animate=False, immediate=True)
        elif self.mark >= top + height:
            self.scroll_to(y=self.mark - height + 1, animate=False, immediate=True)

    # --- the screen ---

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(event.size.width, len(self._items))
        self._follow_mark()

    def render_line(self, y: int) -> Strip:
        index = self.scroll_offset.y + y
        style = self.rich_style
        room = self.scrollable_content_region.width
        inner = room - 1
        if index >= len(self._items):
            said = Text(self.empty if not index else "", palette_of(self).dim, end="")
            said.truncate(room, overflow="ellipsis", pad=True)
            return Strip(said.render(app_of(self).console), room).apply_style(style)
        marked = index == self.mark
        colours = palette_of(self)
        line = Text("› " if marked else "  ", colours.accent, end="")
        left, right = self._draw_item(self._items[index])
        end = _join_fitting(right, inner - 2 - min(columns_of(left.plain), inner // 2) - 2)
        left = left.copy()
        left.truncate(max(inner - 2 - columns_of(end) - (2 if end else 0), 1), overflow="ellipsis", pad=bool(end))
        line.append_text(left)
        if end:
            line.append(f"  {end}", colours.dim)
        if marked:
            line.stylize(Style(bold=True))
            style += Style(bgcolor=app_of(self).current_theme.panel)
        line.truncate(room, overflow="crop", pad=True)
        return Strip(line.render(app_of(self).console), room).apply_style(style)

    # --- keys and the mouse ---

    async def _on_key(self, event: events.Key) -> None:
        if self._key_filter(event):
            event.stop()
            event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        index = self.scroll_offset.y + event.y
        if index >= len(self._items):
            return
        if index == self.mark or event.chain > 1:
            self.mark = index
            self.post_message(self.Chosen())
        else:
            self.move_to(index)


def _join_fitting(words: Sequence[str], room: int) -> str:
    """As many of them as there is room for."""
    kept: list[str] = []
    for word in filter(None, words):
        if columns_of(" · ".join([*kept, word])) > room:
            break
        kept.append(word)
    return " · ".join(kept)
