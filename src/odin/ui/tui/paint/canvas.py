"""Small copies of pictures. They are read in a thread, only when somebody looks at them, and a few are kept.

What a painter works with: how wide, in which colours, at what time, and how lines are laid.

What a tool or a command printed, below its card.

Pictures as coloured half blocks, once their small copies are there; until then, and without Pillow, their names.

What a call is about, in a few words that are made from what is known of it: no tool has code of its own here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.cells import cell_len, split_graphemes
from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from odin.core.message import Image
from odin.core.tui_settings import DiffStyle
from odin.ui.tui.blocks import CallBlock
from odin.ui.tui.paint.sanitize import parse_ansi, sanitize_line, strip_escapes
from odin.ui.tui.palette import Palette

MAX_THUMBNAIL_ROWS = 16
MAX_THUMBNAIL_COLUMNS = 60
MAX_IMAGE_FILE_BYTES = 20_000_000
MAX_IMAGE_PIXELS = 60_000_000
MAX_THUMBNAILS = 40

Pixels = list[list[tuple[int, int, int]]]
ThumbnailKey = tuple[str, int]


class ThumbnailCache:
    """The small copies of pictures, by file and width. What is not known yet is `wanted`; `load` runs in a thread."""

    def __init__(self) -> None:
        self._known: dict[ThumbnailKey, Pixels | None] = {}
        self.missing: set[ThumbnailKey] = set()

    def find(self, image: Image, width: int) -> Pixels | None:
        key = image.path, min(width, MAX_THUMBNAIL_COLUMNS)
        if key not in self._known:
            self.missing.add(key)
        return self._known.get(key)

    def store(self, key: ThumbnailKey, pixels: Pixels | None) -> None:
        self.missing.discard(key)
        self._known[key] = pixels
        while len(self._known) > MAX_THUMBNAILS:
            del self._known[next(iter(self._known))]


def load_thumbnail(path: str, width: int) -> Pixels | None:
    """The picture in as many pixels as it gets, or None when it cannot be shown."""
    try:
        from PIL import Image as Pillow

        if Path(path).stat().st_size > MAX_IMAGE_FILE_BYTES:
            return None
        with Pillow.open(path) as picture:
            if picture.width * picture.height > MAX_IMAGE_PIXELS:
                return None
            picture.thumbnail((width, MAX_THUMBNAIL_ROWS * 2))
            small = picture.convert("RGB")
    except Exception:
        return None
    data, row = small.tobytes(), small.width * 3
    return [
        [(data[place], data[place + 1], data[place + 2]) for place in range(start, start + row, 3)]
        for start in range(0, row * small.height, row)
    ]


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


SHOWN_TAIL_LINES = 5
"""Lines of a running call's output that are seen."""
SHORT_OUTPUT = 12
"""Lines of a result that are shown before somebody asks for more."""


def paint_output(text: str, canvas: Canvas, *, most: int = 0, indent: int = 2) -> list[Strip]:
    """All of it, or its first `most` lines and how many there are beyond."""
    palette = canvas.palette
    lines = parse_ansi(text.rstrip("\n"), palette.dim)
    shown = lines[:most] if most else lines
    found: list[Strip] = []
    for line in shown:
        found += indent_lines(wrap_cells(line, canvas.width - indent), indent)
    if len(shown) < len(lines):
        found.append(canvas.paint_row((" " * indent, None), (f"… {len(lines) - len(shown):,} more lines", palette.dim)))
    return found


def paint_tail(tail: list[str], canvas: Canvas) -> list[Strip]:
    """The newest lines, each as one line."""
    found: list[Strip] = []
    if not tail:
        return found
    for line in parse_ansi("\n".join(tail[-SHOWN_TAIL_LINES:]), canvas.palette.dim):
        found += indent_lines([wrap_cells(line, canvas.width - 2)[0]], 2)
    return found


def paint_image(image: Image, canvas: Canvas) -> list[Strip]:
    size = f", {image.width}×{image.height}" if image.width and image.height else ""
    label = canvas.paint_row(
        (f"  [image: {sanitize_line(image.name or Path(image.path).name)}{size}]", canvas.palette.dim)
    )
    pixels = canvas.thumbnails.find(image, max(canvas.width - 4, 4))
    return [label, *(Strip([Segment("  "), *line]) for line in _paint_half_blocks(pixels))] if pixels else [label]


def _paint_half_blocks(pixels: Pixels) -> list[Line]:
    """Two rows of pixels in each line: the upper one as letters, the lower one as ground."""
    below = pixels[1::2] if len(pixels) % 2 == 0 else [*pixels[1::2], pixels[-1]]
    return [
        [
            Segment("▀", Style(color=Color.from_rgb(*high), bgcolor=Color.from_rgb(*low)))
            for high, low in zip(upper, lower, strict=True)
        ]
        for upper, lower in zip(pixels[::2], below, strict=True)
    ]


_SUBJECT_ARGUMENTS = ("command", "description", "path", "pattern", "query", "url", "name", "id", "prompt")
"""Arguments by which people know a call, wherever a tool has one whose name contains such a word."""


def describe_call(block: CallBlock, canvas: Canvas) -> str:
    return shorten_paths(sanitize_line(block.description) or _from_args(block.args), canvas)


def _from_args(args: dict[str, Any]) -> str:
    for word in _SUBJECT_ARGUMENTS:
        for name, value in args.items():
            if word in name and isinstance(value, str) and value.strip():
                return sanitize_line(value)
            if word in name and isinstance(value, list) and value and all(isinstance(item, str) for item in value):  # pyright: ignore[reportUnknownVariableType]
                return sanitize_line(", ".join(value))  # pyright: ignore[reportUnknownArgumentType]
    return next((sanitize_line(value) for value in args.values() if isinstance(value, str) and value.strip()), "")


def shorten_paths(text: str, canvas: Canvas) -> str:
    """Paths in a text as seen from the working directory, or from home."""
    if canvas.cwd and canvas.cwd != "/":
        if text == canvas.cwd:
            return "."
        text = text.replace(f"{canvas.cwd}/", "")
    if canvas.home and canvas.home != "/":
        text = text.replace(f"{canvas.home}/", "~/")
    return text


def describe_outcome(block: CallBlock, about: str, canvas: Canvas) -> str:
    """What came of a call in a few words: what its note says beyond the subject, else the first line of its result."""
    note = shorten_paths(sanitize_line(block.note), canvas)
    if note:
        if about not in note:
            note = note.replace("'", "") if about in note.replace("'", "") else note
        before, found, after = note.rpartition(about) if about else ("", "", "")
        if before.endswith("(") and after == ")":
            return before.rstrip(" (")
        said = (after if found and after.strip() else note if not found else "").strip(" :,.'\"")
        if said.startswith("(") and said.endswith(")"):
            said = said[1:-1]
        if said and said != about:
            return said
    lines = strip_escapes(block.result).strip().split("\n")
    first = sanitize_line(lines[0])
    more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
    return first + more if first else ""
