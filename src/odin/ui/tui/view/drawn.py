"""Lines as they were drawn last. While an answer streams in, most of the screen is the same in every frame."""

from collections.abc import Callable

from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

_MAX_LINES = 400


class LineCache:
    """By the number of the line; one counts only as long as it is drawn from the same strip."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Strip, Strip]] = {}
        self._ground: Style | None = None

    def clear(self) -> None:
        self._lines.clear()
        self._ground = None

    def style_of(self, widget: Widget) -> Style:
        """The colours of the widget itself, which are dear to ask for."""
        if self._ground is None:
            self._ground = widget.rich_style
        return self._ground

    def find(self, strip: Strip, line: int, draw: Callable[[], Strip]) -> Strip:
        found = self._lines.get(line)
        if found is not None and found[0] is strip:
            return found[1]
        drawn = draw()
        if len(self._lines) >= _MAX_LINES:
            self._lines.clear()
        self._lines[line] = strip, drawn
        return drawn
