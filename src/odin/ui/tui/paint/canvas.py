"""What a painter works with: how wide, in which colours, at what time, and how lines are laid."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from odin.core.screen import DiffStyle
from odin.ui.tui.paint.gallery import Gallery
from odin.ui.tui.palette import Palette

Line = list[Segment]


def _console() -> Console:
    return Console(width=80, force_terminal=True, color_system="truecolor", legacy_windows=False, _environ={})


@dataclass(frozen=True, slots=True)
class Canvas:
    """`width` is what there is for a block; `now` the time, for what is still going on. Paths are shown from `cwd`."""

    width: int
    palette: Palette
    diff: DiffStyle = "auto"
    now: float = 0.0
    cwd: str = ""
    home: str = ""
    gallery: Gallery = field(default_factory=Gallery)
    console: Console = field(default_factory=_console)

    def wrapped(self, text: Text, width: int) -> list[Line]:
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
            lines.append([Segment(line.plain, base)] if plain and line.plain else _segments(line, self.console))
        return lines

    def text(self, text: str, style: Style, indent: int = 0) -> list[Strip]:
        """Plain text broken between words, some cells from the left."""
        return indented(self.wrapped(Text(text, style=style), self.width - indent), indent)

    def row(self, *pieces: tuple[str, Style | None]) -> Strip:
        """One line, cut with a mark where the canvas ends."""
        strip = Strip([Segment(text, style) for text, style in pieces if text])
        return strip if strip.cell_length <= self.width else cut(strip, self.width)


def _segments(line: Text, console: Console) -> Line:
    return [segment for segment in line.render(console) if segment.text]


def hard_wrapped(line: Line, width: int) -> list[Line]:
    """A line cut into what fits, wherever that is; code and output keep their spaces."""
    width = max(width, 2)
    if sum(segment.cell_length for segment in line) <= width:
        return [line]
    strip = Strip(line)
    total = strip.cell_length
    lines: list[Line] = []
    start = 0
    while start < total:
        end = start + width
        piece = strip.crop(start, end)
        if end < total and _split_in_two(strip, end):
            end -= 1
            piece = strip.crop(start, end)
        lines.append(list(piece))
        start = end
    return lines


def _split_in_two(strip: Strip, cell: int) -> bool:
    """Whether a wide character stands across this cell."""
    place = 0
    for character in strip.text if not strip.text.isascii() else "":
        if place >= cell:
            break
        width = cell_len(character)
        if place < cell < place + width:
            return True
        place += width
    return False


def cut(strip: Strip, width: int) -> Strip:
    return Strip([*strip.crop(0, max(width - 1, 0)), Segment("…")])


def strips(lines: Iterable[Line]) -> list[Strip]:
    return [Strip(line) for line in lines]


def indented(lines: Iterable[Line], indent: int, style: Style | None = None) -> list[Strip]:
    space = [Segment(" " * indent, style)] if indent else []
    return [Strip([*space, *line]) if line else blank() for line in lines]


def prefixed(lines: Sequence[Line], first: Line, rest: Line) -> list[Line]:
    """Lines that begin with something: a bullet before the first, spaces before the others."""
    return [[*(rest if number else first), *line] for number, line in enumerate(lines)]


def blank() -> Strip:
    return Strip([])


def with_gap(lines: Iterable[Strip]) -> list[Strip]:
    """Lines with an empty one above them, which is how blocks stand apart."""
    return [blank(), *lines]
