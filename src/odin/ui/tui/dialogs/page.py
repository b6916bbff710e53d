"""Lines that are painted for the width there is, and scrolled when they are too many."""

from collections.abc import Callable

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas

PagePainter = Callable[[Canvas], list[Strip]]


class TextPage(ScrollView, can_focus=True, inherit_bindings=False):
    """Whoever shows it says how tall it may be; `rows` is how tall it would like to be."""

    DEFAULT_CSS = """
    TextPage {
        width: 100%;
        height: 1;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        background: $surface;
    }
    """

    class Clicked(Message):
        """A line was clicked; `number` counts from the first, whether it is in sight or not."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, canvas: Callable[[int], Canvas], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make_canvas = canvas
        self._painter: PagePainter | None = None
        self._strips: list[Strip] = []
        self._width = 0
        self.seen_rows = 0
        """How many lines from the first were on the screen, at one time or another."""

    def show(self, paint: PagePainter) -> None:
        self._painter = paint
        self._width = 0
        self.seen_rows = 0
        self.scroll_home(animate=False)

    def count_rows(self, width: int) -> int:
        """How many lines there are in so many columns; one is kept free for the scrollbar."""
        if self._painter is not None and width != self._width:
            self._width = width
            self._strips = self._painter(self._make_canvas(max(width - 1, 1)))
            self.virtual_size = Size(max(width - 1, 1), len(self._strips))
            self.refresh()
        return len(self._strips)

    @property
    def text(self) -> str:
        """Everything on it, for tests and for copying."""
        return "\n".join(strip.text for strip in self._strips)

    def on_resize(self, event: events.Resize) -> None:
        self.count_rows(event.size.width)

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        base = self.rich_style
        if number >= len(self._strips):
            return Strip.blank(self.size.width, base)
        self.seen_rows = max(self.seen_rows, number + 1)
        return self._strips[number].apply_style(base).extend_cell_length(self.size.width, base)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(event.y + self.scroll_offset.y))
