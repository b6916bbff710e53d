"""Changes of files: with line numbers, in the colours of the language, side by side where there is room."""

from itertools import pairwise
from pathlib import PurePath

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, Line, wrap_cells
from odin.ui.tui.paint.changes import DiffHunk, DiffRow, FileDiff, Span, group_rows, parse_diff
from odin.ui.tui.paint.foreign import sanitize, sanitize_line
from odin.ui.tui.paint.subject import shorten_paths

SPLIT_WIDTH = 120
SHORT_DIFF = 30
"""Rows of a diff that are shown before somebody asks for more."""


def paint_diff(text: str, canvas: Canvas, *, whole: bool, indent: int = 2, shows_names: bool = False) -> list[Strip]:
    """The diff as lines. With `named` the files are named above their changes; without `whole` long ones are cut."""
    width = max(canvas.width - indent, 14)
    split = canvas.diff_style == "split" or (canvas.diff_style == "auto" and width >= SPLIT_WIDTH)
    lines: list[Line] = []
    files = parse_diff(text)
    left = 10**9 if whole else SHORT_DIFF
    for changes in files:
        if shows_names or len(files) > 1:
            lines.append([Segment(shorten_paths(sanitize_line(changes.path), canvas), canvas.palette.strong)])
        left, painted = _paint_file(changes, canvas, width, split, left)
        lines += painted
        if changes.trailer:
            lines.append([Segment(sanitize_line(changes.trailer), canvas.palette.dim)])
    missing = sum(changes.row_count for changes in files) - (10**9 if whole else SHORT_DIFF)
    if missing > 0:
        lines.append([Segment(f"… {missing:,} more lines of changes (unfold to see them)", canvas.palette.dim)])
    space = [Segment(" " * indent)] if indent else []
    return [Strip([*space, *line]) for line in lines]


def is_cut(text: str) -> bool:
    """Whether a diff is longer than what is shown of it at first."""
    return sum(line[:1] in (" ", "-", "+") for line in text.split("\n")) - 2 > SHORT_DIFF


def _paint_file(changes: FileDiff, canvas: Canvas, width: int, split: bool, left: int) -> tuple[int, list[Line]]:
    lines: list[Line] = []
    digits = len(str(max((row.old or row.new for hunk in changes.hunks for row in hunk.rows), default=1))) + 1
    look = _FilePainter(canvas, PurePath(changes.path).name, max(digits, 3))
    for number, hunk in enumerate(changes.hunks):
        if left <= 0:
            break
        if number:
            unit = "line" if hunk.skipped == 1 else "lines"
            lines.append([Segment(f"{'⋯':>{digits}} {hunk.skipped} {unit}", canvas.palette.dim)])
        shown = DiffHunk(hunk.rows[:left], hunk.skipped)
        left -= len(shown.rows)
        lines += look.paint_split(shown, width) if split else look.paint_unified(shown, width)
    return left, lines


class _FilePainter:
    """How the lines of one file look."""

    def __init__(self, canvas: Canvas, name: str, digits: int) -> None:
        self._palette = canvas.palette
        from odin.ui.tui.paint.code import find_lexer_by_file, highlight_code

        self._highlight_code = highlight_code
        self._lexer = find_lexer_by_file(name)
        self._digits = digits

    def paint_unified(self, hunk: DiffHunk, width: int) -> list[Line]:
        code = self._highlight_hunk(hunk)
        lines: list[Line] = []
        for row in hunk.rows:
            lines += self._paint_cell(row, row.new or row.old, code[id(row)], width)
        return lines

    def paint_split(self, hunk: DiffHunk, width: int) -> list[Line]:
        code = self._highlight_hunk(hunk)
        half = (width - 1) // 2
        lines: list[Line] = []
        for group in group_rows(hunk.rows):
            old = [row for row in group if row.sign != "+"]
            new = [row for row in group if row.sign != "-"]
            for number in range(max(len(old), len(new))):
                left = (
                    self._paint_cell(old[number], old[number].old, code[id(old[number])], half)
                    if number < len(old)
                    else []
                )
                right = (
                    self._paint_cell(new[number], new[number].new, code[id(new[number])], half)
                    if number < len(new)
                    else []
                )
                for place in range(max(len(left), len(right))):
                    first = left[place] if place < len(left) else [Segment(" " * half)]
                    second = right[place] if place < len(right) else []
                    lines.append([*first, Segment("│", self._palette.dim), *second])
        return lines

    def _paint_side(self, rows: list[DiffRow], number: int, code: dict[int, Line], width: int, side: str) -> list[Line]:
        if number >= len(rows):
            return []
        row = rows[number]
        return self._paint_cell(row, row.old if side == "old" else row.new, code[id(row)], width)

    def _highlight_hunk(self, hunk: DiffHunk) -> dict[int, Line]:
        """Each side is coloured as a whole, so that what spans several lines is seen as such."""
        found: dict[int, Line] = {}
        for sign in "-+":
            rows = [row for row in hunk.rows if row.sign in (" ", sign)]
            text = "\n".join(row.text.replace("\n", " ") for row in rows)
            painted = self._highlight_code(text, self._lexer, self._palette.code, self._palette.text)
            found.update((id(row), line) for row, line in zip(rows, painted, strict=False))
        return found

    def _paint_cell(self, row: DiffRow, number: int, code: Line, width: int) -> list[Line]:
        """A line with its number and sign, in as many rows as it needs, on the ground of its kind."""
        palette = self._palette
        ground, word = {
            "+": (palette.added, palette.added_word),
            "-": (palette.removed, palette.removed_word),
            " ": (Style.null(), Style.null()),
        }[row.sign]
        sign = {"+": palette.good, "-": palette.bad, " ": palette.dim}[row.sign]
        room = max(width - self._digits - 3, 4)
        lines: list[Line] = []
        for place, piece in enumerate(wrap_cells(_sanitize_segments(_style_spans(code, row.words, word)), room)):
            label = f"{number:>{self._digits}} " if not place else " " * (self._digits + 1)
            used = sum(segment.cell_length for segment in piece)
            mark = f"{row.sign} " if not place else "↪ "
            line = [Segment(mark, sign), *piece, Segment(" " * max(room - used, 0))]
            lines.append([Segment(label, palette.dim), *_apply_ground(line, ground)])
        return lines


def _apply_ground(line: Line, ground: Style) -> Line:
    return list(Segment.apply_style(line, ground)) if ground else line


def _sanitize_segments(line: Line) -> Line:
    return [Segment(sanitize(segment.text), segment.style) for segment in line]


def _style_spans(line: Line, words: list[Span], style: Style) -> Line:
    """The line with these places of it on another ground."""
    if not words:
        return line
    cuts = sorted({place for span in words for place in span})
    found: Line = []
    at = 0
    for segment in line:
        start, end = at, at + len(segment.text)
        places = [start, *(place for place in cuts if start < place < end), end]
        for first, last in pairwise(places):
            inside = any(low <= first and last <= high for low, high in words)
            look = (segment.style or Style.null()) + style if inside else segment.style
            found.append(Segment(segment.text[first - start : last - start], look))
        at = end
    return found
