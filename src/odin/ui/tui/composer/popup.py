"""The list above the composer: what the letters before the cursor may become."""

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Offset, Region
from textual.message import Message
from textual.widget import Widget

from odin.ui.completing import CompletionItem
from odin.ui.terminal import escape_hidden, shorten, width_of
from odin.ui.tui.composer.label import theme_of

MAX_ROWS = 8
_MIN_COLUMN = 24


class Popup(Widget):
    """Lies over the conversation, so that nothing moves when it comes and goes. The composer has the keys."""

    DEFAULT_CSS = """
    Popup {
        display: none;
        overlay: screen;
        constrain: none inside;
        width: auto;
        height: auto;
        background: $panel;
        color: $foreground;
    }
    """

    class Chosen(Message):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choices: Sequence[CompletionItem] = ()
        self.at = 0
        self._max_width = 80
        self._anchor_region = Region()

    @property
    def open(self) -> bool:
        return bool(self.choices)

    @property
    def selected(self) -> CompletionItem | None:
        return self.choices[self.at] if self.choices else None

    def offer(self, choices: Sequence[CompletionItem], above: Region, *, again: bool) -> None:
        """Show these above that part of the screen. `again`: for the same letters; what was chosen stays chosen."""
        before = self.selected if again and self.at else None
        self.choices = choices
        self.at = next((at for at, choice in enumerate(choices) if before and choice.label == before.label), 0)
        self.follow(above)

    def follow(self, above: Region) -> None:
        """That part of the screen is elsewhere, or of another size."""
        self._anchor_region = above
        self._max_width = max(above.width - 2, 20)
        self._update_position()

    def close(self) -> None:
        if self.choices:
            self.choices = ()
            self.display = False

    def move(self, by: int) -> None:
        if self.choices:
            self.at = (self.at + by) % len(self.choices)
            self.refresh(layout=True)

    def _update_position(self) -> None:
        self.display = bool(self.choices)
        if self.choices:
            rows = min(len(self.choices), self._rows)
            self.absolute_offset = Offset(self._anchor_region.x + 1, max(self._anchor_region.y - rows, 0))
            self.refresh(layout=True)

    @property
    def _rows(self) -> int:
        return max(1, min(MAX_ROWS, self._anchor_region.y))

    def _compute_window(self) -> range:
        rows = self._rows
        first = min(max(self.at - rows + 1, 0), max(len(self.choices) - rows, 0))
        return range(first, min(first + rows, len(self.choices)))

    def render(self) -> Text:
        theme = theme_of(self)
        names = [
            width_of(escape_hidden(self.choices[at].label)) + width_of(self.choices[at].hint) + 1
            for at in self._compute_window()
        ]
        column = min(max(names, default=0), max(self._max_width * 2 // 5, _MIN_COLUMN))
        lines = [self._format_row(at, column) for at in self._compute_window()]
        for at, line in zip(self._compute_window(), lines, strict=True):
            line.pad_right(self._max_width - line.cell_len)
            if at == self.at:
                line.stylize(Style(bgcolor=theme.surface, bold=True))
        return Text("\n", no_wrap=True, end="").join(lines)

    def _format_row(self, at: int, column: int) -> Text:
        choice, theme = self.choices[at], theme_of(self)
        dim = Style(dim=True)
        line = Text(no_wrap=True, end="").append("› " if at == self.at else "  ", Style(color=theme.accent))
        name = shorten(escape_hidden(choice.label), max(self._max_width - 3, 8))
        line.append(name, Style(color=theme.primary if at == self.at else theme.foreground))
        if choice.hint:
            line.append(f" {escape_hidden(choice.hint)}", dim)
            if choice.help:
                line.truncate(max(column + 2, width_of(name) + 2), overflow="ellipsis")
        if choice.help:
            line.append(" " * max(column + 4 - line.cell_len, 2))
            line.append(escape_hidden(choice.help), dim)
        line.truncate(self._max_width - 1, overflow="ellipsis")
        return line

    def on_click(self, event: events.Click) -> None:
        event.stop()
        window = self._compute_window()
        if 0 <= event.y < len(window):
            self.post_message(self.Chosen(window[event.y]))
