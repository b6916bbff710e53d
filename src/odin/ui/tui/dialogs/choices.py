"""Answers to choose from, in as few rows as they need: by their key, with the arrows and Enter, or by a click."""

from collections.abc import Sequence
from typing import cast

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from odin.ui.tui.palette import make_palette

_GAP = 2
_NARROW_WIDTH = 70


class DialogChoice(Struct, frozen=True):
    """`name` is the action; `key` is shown before the label, of which a narrow screen shows the short one."""

    name: str
    key: str
    label: str
    short: str = ""


class ChoiceBar(Widget):
    """None of them is chosen at first, so that a stray Enter means nothing."""

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
        """The name of the one that is marked, or ""."""
        return self._choices[self.current].name if 0 <= self.current < len(self._choices) else ""

    def move(self, by: int) -> None:
        """Mark the next one, or the one before; the first move marks the first or the last."""
        if not self._choices:
            return
        first = 0 if by > 0 else len(self._choices) - 1
        self.current = first if self.current < 0 else (self.current + by) % len(self._choices)

    def count_rows(self, width: int) -> int:
        return len(self._lay_out_rows(width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(self.count_rows(width), 1)

    def _lay_out_rows(self, width: int) -> list[list[tuple[int, int, str]]]:
        """The rows: of each choice its number, where it begins and what is written."""
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
        colours = make_palette(cast("App[object]", self.app).current_theme)
        segments: list[Segment] = []
        at = 0
        for number, start, text in rows[y]:
            segments.append(Segment(" " * (start - at), base))
            key = self._choices[number].key
            if number == self.current:
                segments.append(Segment(text, base + Style(reverse=True, bold=True)))
            else:
                segments.append(Segment(text[: len(key) + 1], base + colours.accent + Style(bold=True)))
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
