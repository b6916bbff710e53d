"""What a painter works with: how wide, in which colours, at what time, and how lines are laid."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, split_graphemes
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from odin.core.screen import DiffStyle
from odin.ui.tui.paint.gallery import ThumbnailCache
from odin.ui.tui.palette import Palette

Line = list[Segment]


def _make_console() -> Console:
    return Console(width=80, force_terminal=True, color_system="truecolor", legacy_windows=False, _environ={})


@dataclass(frozen=True, slots=True)
class Canvas:
    """`width` is what there is for a block; `now` the time, for what is still going on. Paths are shown from `cwd`."""

    width: int
    palette: Palette
    diff_style: DiffStyle = "auto"
    now: float = 0.0
    cwd: str = ""
    home: str = ""
    thumbnails: ThumbnailCache = field(default_factory=ThumbnailCache)
    console: Console = field(default_factory=_make_console)

    def wrap(self, text: Text, width: int) -> list[Line]:
        """A text broken between words."""
        if not text.plain:
            return [[]]
        width = max(width, 1)
        base = text.style if isinstance(text.style, Style) else None
        if not text.spans and "\n" not in text.plain and cell_len(text.plain) <= width:
            return [[Segment(text.plain, base)]]
        lines: list[Line] = []
        for line in text.wrap(self.console, width, overflow="fold"):
            line.rstrip()
            line.end = ""
            plain = not line.spans
            lines.append([Segment(line.plain, base)] if plain and line.plain else _render_segments(line, self.console))
        return lines

    def paint_text(self, text: str, style: Style, indent: int = 0) -> list[Strip]:
        """Plain text broken between words, some cells from the left."""
        return indent_lines(self.wrap(Text(text, style=style), self.width - indent), indent)

    def paint_row(self, *pieces: tuple[str, Style | None]) -> Strip:
        """One line, cut with a mark where the canvas ends."""
        strip = Strip([Segment(text, style) for text, style in pieces if text])
        return strip if strip.cell_length <= self.width else truncate_strip(strip, self.width)


def _render_segments(line: Text, console: Console) -> Line:
    return [segment for segment in line.render(console) if segment.text]


def wrap_cells(line: Line, width: int) -> list[Line]:
    """A line cut into what fits, wherever that is; code and output keep their spaces. Each letter is looked at once."""
    width = max(width, 2)
    if sum(segment.cell_length for segment in line) <= width:
        return [line]
    lines: list[Line] = [[]]
    room = width
    for text, style, _ in line:
        start = 0
        while start < len(text):
            end, used = _fit_cells(text, start, room)
            if end > start:
                lines[-1].append(Segment(text[start:end], style))
                start, room = end, room - used
            if start < len(text):
                lines.append([])
                room = width
    return lines


_LETTERS_PER_CELL = (1, 4)
"""Letters looked at for each cell there is room for. More of them in one place are only marks above each other."""


def _fit_cells(text: str, start: int, room: int) -> tuple[int, int]:
    """Where a text has to be cut so that this part of it takes no more than `room` cells, and how many it takes."""
    part = text[start : start + room]
    if part.isascii():
        return start + len(part), len(part)
    end = used = 0
    for stretch in _LETTERS_PER_CELL:
        end = used = 0
        part = text[start : start + max(room, 2) * stretch]
        for _, last, cells in split_graphemes(part)[0]:
            if used + cells > room:
                return start + end, used
            end, used = last, used + cells
    return start + end, used


def truncate_strip(strip: Strip, width: int) -> Strip:
    return Strip([*strip.crop(0, max(width - 1, 0)), Segment("…")])


def make_strips(lines: Iterable[Line]) -> list[Strip]:
    return [Strip(line) for line in lines]


def indent_lines(lines: Iterable[Line], indent: int, style: Style | None = None) -> list[Strip]:
    space = [Segment(" " * indent, style)] if indent else []
    return [Strip([*space, *line]) if line else make_blank() for line in lines]


def prefix_lines(lines: Sequence[Line], first: Line, rest: Line) -> list[Line]:
    """Lines that begin with something: a bullet before the first, spaces before the others."""
    return [[*(rest if number else first), *line] for number, line in enumerate(lines)]


def make_blank() -> Strip:
    return Strip([])


def with_gap(lines: Iterable[Strip]) -> list[Strip]:
    """Lines with an empty one above them, which is how blocks stand apart."""
    return [make_blank(), *lines]
