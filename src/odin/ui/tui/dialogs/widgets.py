"""The widgets dialogs are made of: a scrollable text page, a bar of answers, key hints, tabs, and a list of rows."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import Struct
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from odin.ui.terminal import measure_width as columns_of
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import get_palette, get_theme

PagePainter = Callable[[Canvas], list[Strip]]


class TextPage(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines painted for the current width. The dialog sets the height; `count_rows` is the height of the content."""

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
        """A line was clicked; `number` is its index in the whole page."""

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
        """How many lines from the top have been on the screen so far."""

    def show(self, paint: PagePainter) -> None:
        self._painter = paint
        self._width = 0
        self.seen_rows = 0
        self.scroll_home(animate=False)

    def count_rows(self, width: int) -> int:
        """Paint for this width and return the number of lines. One column is reserved for the scrollbar."""
        if self._painter is not None and width != self._width:
            self._width = width
            self._strips = self._painter(self._make_canvas(max(width - 1, 1)))
            self.virtual_size = Size(max(width - 1, 1), len(self._strips))
            self.refresh()
        return len(self._strips)

    @property
    def text(self) -> str:
        """The whole text, for tests and for copying."""
        return "\n".join(strip.text for strip in self._strips)

    def on_resize(self, event: events.Resize) -> None:
        self.count_rows(event.size.width)

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        base = self.rich_style
        if number >= len(self._strips):
            return Strip.blank(self.size.width, base)
        self.seen_rows = max(self.seen_rows, number + 1)
        strip = self._strips[number]
        if y == self.size.height - 1 and number < len(self._strips) - 1 and strip.text.startswith(" "):
            strip = Strip([Segment("↓"), *strip.crop(1)])  # more follows
        return strip.apply_style(base).extend_cell_length(self.size.width, base)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(event.y + self.scroll_offset.y))


_GAP = 2
_NARROW_WIDTH = 70


class DialogChoice(Struct, frozen=True):
    """An answer. `name` is the action, `key` is shown before the label; narrow screens show `short` instead."""

    name: str
    key: str
    label: str
    short: str = ""


class ChoiceBar(Widget):
    """Answers in as few rows as fit, chosen by key, arrows and Enter, or click.

    No answer is selected at first, so that a stray Enter does nothing.
    """

    DEFAULT_CSS = "ChoiceBar { width: 100%; height: auto; }"

    current: reactive[int] = reactive(-1)

    class Chosen(Message):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, choices: Sequence[DialogChoice] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._choices = tuple(choices)

    def offer(self, choices: Sequence[DialogChoice], current: int = -1) -> None:
        self._choices = tuple(choices)
        self.current = current
        self.refresh(layout=True)

    @property
    def chosen(self) -> str:
        """The name of the selected answer, or ""."""
        return self._choices[self.current].name if 0 <= self.current < len(self._choices) else ""

    def move(self, by: int) -> None:
        """Select the next or previous answer; the first move selects the first or the last."""
        if not self._choices:
            return
        first = 0 if by > 0 else len(self._choices) - 1
        self.current = first if self.current < 0 else (self.current + by) % len(self._choices)

    def count_rows(self, width: int) -> int:
        return len(self._lay_out_rows(width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(self.count_rows(width), 1)

    def _lay_out_rows(self, width: int) -> list[list[tuple[int, int, str]]]:
        """Return the rows, each a list of (choice index, start column, text)."""
        rows: list[list[tuple[int, int, str]]] = [[]]
        at = 0
        for number, choice in enumerate(self._choices):
            label = choice.short if choice.short and width < _NARROW_WIDTH else choice.label
            text = f" {choice.key} {label} " if choice.key else f" {label} "
            if rows[-1] and at + len(text) > width:
                rows.append([])
                at = 0
            rows[-1].append((number, at, text))
            at += len(text) + (_GAP if width >= _NARROW_WIDTH else 1)
        return rows

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        rows = self._lay_out_rows(self.size.width)
        if y >= len(rows):
            return Strip.blank(self.size.width, base)
        colors = get_palette(self)
        segments: list[Segment] = []
        at = 0
        for number, start, text in rows[y]:
            segments.append(Segment(" " * (start - at), base))
            key = self._choices[number].key
            if number == self.current:
                segments.append(Segment(text, base + Style(reverse=True, bold=True)))
            else:
                segments.append(Segment(text[: len(key) + 1], base + colors.accent + Style(bold=True)))
                segments.append(Segment(text[len(key) + 1 :], base))
            at = start + len(text)
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def on_click(self, event: events.Click) -> None:
        rows = self._lay_out_rows(self.size.width)
        if event.y >= len(rows):
            return
        for number, start, text in rows[event.y]:
            if start <= event.x < start + len(text):
                event.stop()
                self.post_message(self.Chosen(self._choices[number].name))


class Hints(Static):
    """Key hints below a dialog. Clicking one runs the dialog's `action_do` with the name of the action."""

    DEFAULT_CSS = """
    Hints { height: auto; max-height: 3; width: 100%; link-style: none; link-color: $foreground 70%; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._labels: Sequence[tuple[str, str, str]] = ()
        self._before = ""

    def show(self, labels: Sequence[tuple[str, str, str]], before: str = "") -> None:
        """Show (action name, key label, description) triples, after the text `before`."""
        self._labels, self._before = labels, before
        self._show_labels()

    def on_resize(self) -> None:
        self._show_labels()

    def _show_labels(self) -> None:
        colors, room = get_palette(self), self.size.width
        line = Text(self._before, colors.warn)
        used = line.cell_len
        for name, key, label in self._labels:
            click = Style.from_meta({"@click": f"screen.do({name!r})"}) if name else Style()
            words = Text.assemble((key, colors.strong + click), (f" {label}", colors.dim + click))
            if used and room and used + 2 + words.cell_len > room:
                line.append("\n")
                used = 0
            line.append("  " if used else "")
            used += words.cell_len + (2 if used else 0)
            line.append_text(words)
        self.update(line)


class TabLabel(NamedTuple):
    name: str
    is_selected: bool


class TabBar(Static):
    """Groups of tabs, one selected per group. A click runs the dialog's `action_do` with the name of the tab."""

    DEFAULT_CSS = """
    TabBar { height: auto; width: 100%; link-style: none; link-color: $foreground 70%; margin-bottom: 1; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)

    def show(self, groups: Sequence[Sequence[TabLabel]]) -> None:
        """Selected tabs are in brackets, so that they are recognizable without color."""
        colors = get_palette(self)
        line = Text()
        for place, group in enumerate(groups):
            line.append("   " if place else "")
            for tab in group:
                click = Style.from_meta({"@click": f"screen.do({tab.name!r})"})
                word = f"[{tab.name}]" if tab.is_selected else f" {tab.name} "
                line.append(word, colors.accent + Style(bold=True) if tab.is_selected else colors.dim + click)
        self.update(line)


Item = TypeVar("Item")

RowContent = tuple[Text, Sequence[str]]
"""The text of a row, and details for its right edge, the most important first."""

KeyFilter = Callable[[events.Key], bool]


class Rows(ScrollView, Generic[Item], can_focus=True, inherit_bindings=False):
    """A list that draws only its visible rows. Clicking the marked row, or double-clicking any row, chooses it."""

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
        """The mark moved to another row."""

    class Chosen(Message):
        """The user chose the marked row."""

    def __init__(self, draw: Callable[[Item], RowContent], on_key: KeyFilter) -> None:
        super().__init__()
        self._draw_item = draw
        self._key_filter = on_key
        self.items: Sequence[Item] = ()
        self.mark = 0
        self.empty = ""

    # --- items ---

    @property
    def marked(self) -> Item | None:
        return self.items[self.mark] if 0 <= self.mark < len(self.items) else None

    def show(self, items: Sequence[Item], mark: int = 0) -> None:
        """Replace the items and mark one of them."""
        self.items = items
        self.virtual_size = Size(self.size.width, len(items))
        self.mark = max(0, min(mark, len(items) - 1))
        self._follow_mark()
        self.refresh()
        self.post_message(self.Marked())

    def move(self, by: int) -> None:
        self.move_to(self.mark + by)

    def move_to(self, index: int) -> None:
        index = max(0, min(index, len(self.items) - 1))
        if index != self.mark and self.items:
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

    # --- drawing ---

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(event.size.width, len(self.items))
        self._follow_mark()

    def render_line(self, y: int) -> Strip:
        index = self.scroll_offset.y + y
        style = self.rich_style
        room = self.scrollable_content_region.width
        inner = room - 1
        if index >= len(self.items):
            note = Text(self.empty if not index else "", get_palette(self).dim, end="")
            note.truncate(room, overflow="ellipsis", pad=True)
            return Strip(note.render(self._rich_console), room).apply_style(style)
        marked = index == self.mark
        colors = get_palette(self)
        line = Text("› " if marked else "  ", colors.accent, end="")
        left, right = self._draw_item(self.items[index])
        end = _join_fitting(right, inner - 2 - min(columns_of(left.plain), inner // 2) - 2)
        left = left.copy()
        left.truncate(max(inner - 2 - columns_of(end) - (2 if end else 0), 1), overflow="ellipsis", pad=bool(end))
        line.append_text(left)
        if end:
            line.append(f"  {end}", colors.dim)
        if marked:
            line.stylize(Style(bold=True))
            style += Style(bgcolor=get_theme(self).panel)
        line.truncate(room, overflow="crop", pad=True)
        return Strip(line.render(self._rich_console), room).apply_style(style)

    @property
    def _rich_console(self) -> Console:
        return cast("App[Any]", self.app).console  # pyright: ignore[reportUnknownMemberType]

    # --- keys and mouse ---

    async def _on_key(self, event: events.Key) -> None:
        if self._key_filter(event):
            event.stop()
            event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        index = self.scroll_offset.y + event.y
        if index >= len(self.items):
            return
        if index == self.mark or event.chain > 1:
            self.mark = index
            self.post_message(self.Chosen())
        else:
            self.move_to(index)


def _join_fitting(words: Sequence[str], room: int) -> str:
    """Join as many words as fit into the room."""
    kept: list[str] = []
    for word in filter(None, words):
        if columns_of(" · ".join([*kept, word])) > room:
            break
        kept.append(word)
    return " · ".join(kept)
