"""The canvas blocks are painted on, and helpers of all painters: wrapping, output, thumbnails, call subjects."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, field
from rich.cells import cell_len, split_graphemes
from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from odin.core.format import pluralize
from odin.core.message import Image
from odin.core.tui_settings import DiffStyle
from odin.ui.clean_text import sanitize_line
from odin.ui.transcript.words import ShownFolders
from odin.ui.tui.paint.ansi import parse_ansi
from odin.ui.tui.palette import Palette

_SPINNER = "◐◓◑◒"
SPINNER_S = 0.4
"""Frame time of the spinner."""

MAX_THUMBNAIL_ROWS = 16
MAX_THUMBNAIL_COLUMNS = 60
MAX_IMAGE_FILE_BYTES = 20_000_000
MAX_IMAGE_PIXELS = 60_000_000
MAX_THUMBNAILS = 40

Pixels = list[list[tuple[int, int, int]]]
ThumbnailKey = tuple[str, int]


class ThumbnailCache:
    """Thumbnails by file and width. Requested ones are `missing` until the widget has loaded them in a thread."""

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
    """Return the scaled pixels of an image file, or None if it cannot be read or is too large."""
    try:
        from PIL import Image as Pillow

        if Path(path).stat().st_size > MAX_IMAGE_FILE_BYTES:
            return None
        with Pillow.open(path) as image:
            if image.width * image.height > MAX_IMAGE_PIXELS:
                return None
            image.thumbnail((width, MAX_THUMBNAIL_ROWS * 2))
            small = image.convert("RGB")
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


class Canvas(Struct, frozen=True):
    """Settings for painting a block: `width` in cells, `now` for elapsed times, `folders` to shorten paths."""

    width: int
    palette: Palette
    diff_style: DiffStyle = "auto"
    now: float = 0.0
    folders: ShownFolders = field(default_factory=ShownFolders)
    thumbnails: ThumbnailCache = field(default_factory=ThumbnailCache)
    console: Console = field(default_factory=_make_console)

    def wrap(self, text: Text, width: int) -> list[Line]:
        """Wrap a text between words."""
        if not text.plain:
            return [[]]
        width = max(width, 1)
        base = text.style if isinstance(text.style, Style) else None
        if not text.spans and "\n" not in text.plain and cell_len(text.plain) <= width:
            return [[Segment(text.plain, base)]]
        lines: list[Line] = []
        for paragraph in text.split("\n", allow_blank=True):
            whole, start, end = paragraph.plain, 0, 0
            for number, line in enumerate(paragraph.wrap(self.console, width, overflow="fold")):
                marker = [make_soft_wrap_marker(whole[end:start])] if number else []
                line.rstrip()
                line.end = ""
                start = end = start + len(line.plain)
                while start < len(whole) and whole[start].isspace():
                    start += 1
                plain = not line.spans and line.plain
                lines.append(
                    [*marker, *([Segment(line.plain, base)] if plain else _render_segments(line, self.console))]
                )
        return lines

    def paint_text(self, text: str, style: Style, indent: int = 0) -> list[Strip]:
        """Wrap plain text between words, with an indent."""
        return indent_lines(self.wrap(Text(text, style=style), self.width - indent), indent)

    def paint_row(self, *pieces: tuple[str, Style | None]) -> Strip:
        """Return one line; `…` marks it if it had to be cut."""
        strip = Strip([Segment(text, style) for text, style in pieces if text])
        return strip if strip.cell_length <= self.width else truncate_strip(strip, self.width)


def get_spinner_frame(now: float) -> str:
    """Return the frame of the spinner at this time."""
    return _SPINNER[int(now / SPINNER_S) % len(_SPINNER)]


def _render_segments(line: Text, console: Console) -> Line:
    return [segment for segment in line.render(console) if segment.text]


_SOFT_WRAP_MARKER = "soft_wrap_marker"


@lru_cache(maxsize=64)
def make_soft_wrap_marker(space: str) -> Segment:
    """Return the invisible mark at which a wrapped line continues; `space` was between it and the line above."""
    return Segment("", Style(meta={_SOFT_WRAP_MARKER: space}))


def find_soft_wrap_marker(strip: Strip) -> tuple[int, str] | None:
    """Return where in a line the text of the line above continues, and the space between them; None if it does not."""
    index = 0
    for segment in strip:
        if not segment.text and segment.style is not None and _SOFT_WRAP_MARKER in segment.style.meta:
            return index, segment.style.meta[_SOFT_WRAP_MARKER]
        index += len(segment.text)
    return None


def drop_soft_wrap_markers(line: Line) -> Line:
    """For lines beside others, such as table cells: they cannot be copied as one text."""
    return [segment for segment in line if segment.text]


def wrap_cells(line: Line, width: int) -> list[Line]:
    """Wrap a line after a space if there is one, keeping all spaces, for code and output. Linear in its length."""
    width = max(width, 2)
    if sum(segment.cell_length for segment in line) <= width:
        return [line]
    lines: list[Line] = [[]]
    room = width
    for text, style, _ in line:
        start = 0
        while start < len(text):
            end, used = _fit_cells(text, start, room)
            if start < end < len(text) and text[end] != " ":
                space = text.rfind(" ", start, end) + 1
                end = space if text[start:space].strip() else end
            if end > start:
                lines[-1].append(Segment(text[start:end], style))
                start, room = end, room - used
            if start < len(text):
                above = "".join(segment.text for segment in lines[-1])
                lines.append([make_soft_wrap_marker(above[len(above.rstrip()) :])])
                room = width
    return lines


_CHARS_PER_CELL = (1, 4)
"""Characters to examine per free cell, first and second try. More in one cell would only be stacked combining marks."""


def _fit_cells(text: str, start: int, room: int) -> tuple[int, int]:
    """Return the end of the longest part from `start` that fits into `room` cells, and the cells it takes."""
    part = text[start : start + room]
    if part.isascii():
        return start + len(part), len(part)
    end = used = 0
    for stretch in _CHARS_PER_CELL:
        end = used = 0
        part = text[start : start + max(room, 2) * stretch]
        for _, last, cells in split_graphemes(part)[0]:
            if used + cells > room:
                return start + end, used
            end, used = last, used + cells
    return start + end, used


def style_spans(line: Iterable[Segment], spans: Sequence[tuple[int, int]], style: Style) -> Line:
    """Apply a style to the characters of a line within `spans`."""
    cuts = sorted({place for span in spans for place in span})
    styled: Line = []
    start = 0
    for text, own_style, _ in line:
        end = start + len(text)
        for first, last in pairwise([start, *(cut for cut in cuts if start < cut < end), end]):
            inside = any(low <= first and last <= high for low, high in spans)
            piece_style = (own_style or Style.null()) + style if inside else own_style
            styled.append(Segment(text[first - start : last - start], piece_style))
        start = end
    return styled


def truncate_strip(strip: Strip, width: int) -> Strip:
    return Strip([*strip.crop(0, max(width - 1, 0)), Segment("…")])


def make_strips(lines: Iterable[Line]) -> list[Strip]:
    return [Strip(line) for line in lines]


def indent_lines(lines: Iterable[Line], indent: int) -> list[Strip]:
    space = [Segment(" " * indent)] if indent else []
    return [Strip([*space, *line]) if line else make_blank() for line in lines]


def prefix_lines(lines: Sequence[Line], first: Line, rest: Line) -> list[Line]:
    """Prefix the first line, e.g. with a bullet, and the rest, e.g. with spaces."""
    return [[*(rest if number else first), *line] for number, line in enumerate(lines)]


def make_blank() -> Strip:
    return Strip([])


def with_gap(lines: Iterable[Strip]) -> list[Strip]:
    """Put a blank line above, which separates blocks."""
    return [make_blank(), *lines]


_OUTPUT_INDENT = 2
SHOWN_TAIL_LINES = 5
"""Output lines shown while a call runs."""
SHORT_OUTPUT = 12
"""Lines of a result that are shown until it is unfolded."""


def paint_output(text: str, canvas: Canvas, *, max_lines: int = 0, tail: bool = False) -> list[Strip]:
    """Paint all lines, or the first `max_lines` lines (with `tail` the last) and the number of lines left out."""
    palette = canvas.palette
    lines = parse_ansi(text.rstrip("\n"), palette.dim)
    shown = lines if not max_lines else lines[-max_lines:] if tail else lines[:max_lines]
    strips: list[Strip] = []
    for line in shown:
        strips += indent_lines(wrap_cells(line, canvas.width - _OUTPUT_INDENT), _OUTPUT_INDENT)
    left = len(lines) - len(shown)
    if left:
        words = pluralize(left, "earlier line" if tail else "more line")
        row = canvas.paint_row((f"{' ' * _OUTPUT_INDENT}… {words}", palette.dim))
        strips = [row, *strips] if tail else [*strips, row]
    return strips


def paint_tail(tail: list[str], canvas: Canvas) -> list[Strip]:
    """Paint the newest lines of output, each cut to one row."""
    if not tail:
        return []
    lines = parse_ansi("\n".join(tail[-SHOWN_TAIL_LINES:]), canvas.palette.dim)
    return indent_lines([wrap_cells(line, canvas.width - 2)[0] for line in lines], 2)


def paint_image(image: Image, canvas: Canvas) -> list[Strip]:
    """Paint the name of an image, and below it a thumbnail once that is loaded."""
    size = f", {image.width}×{image.height}" if image.width and image.height else ""
    label = canvas.paint_row(
        (f"  [image: {sanitize_line(image.name or Path(image.path).name)}{size}]", canvas.palette.dim)
    )
    pixels = canvas.thumbnails.find(image, max(canvas.width - 4, 4))
    return [label, *(Strip([Segment("  "), *line]) for line in _paint_half_blocks(pixels))] if pixels else [label]


def _paint_half_blocks(pixels: Pixels) -> list[Line]:
    """Paint two pixel rows per line: the upper as foreground of a half block, the lower as its background."""
    below = pixels[1::2] if len(pixels) % 2 == 0 else [*pixels[1::2], pixels[-1]]
    return [
        [
            Segment("▀", Style(color=Color.from_rgb(*high), bgcolor=Color.from_rgb(*low)))
            for high, low in zip(upper, lower, strict=True)
        ]
        for upper, lower in zip(pixels[::2], below, strict=True)
    ]
