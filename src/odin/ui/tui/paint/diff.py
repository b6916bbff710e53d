"""Changes of files: with line numbers, in the colours of the language, side by side where there is room."""

from itertools import pairwise
from pathlib import PurePath

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, Line, hard_wrapped
from odin.ui.tui.paint.changes import Changes, Hunk, Row, Span, read_changes, runs
from odin.ui.tui.paint.foreign import foreign, one_line
from odin.ui.tui.paint.subject import from_here

SIDE_BY_SIDE = 120
SHORT = 30
"""Rows of a diff that are shown before somebody asks for more."""


def diff_lines(text: str, canvas: Canvas, *, whole: bool, indent: int = 2, named: bool = False) -> list[Strip]:
    """The diff as lines. With `named` the files are named above their changes; without `whole` long ones are cut."""
    width = max(canvas.width - indent, 14)
    split = canvas.diff == "split" or (canvas.diff == "auto" and width >= SIDE_BY_SIDE)
    lines: list[Line] = []
    files = read_changes(text)
    left = 10**9 if whole else SHORT
    for changes in files:
        if named or len(files) > 1:
            lines.append([Segment(from_here(one_line(changes.path), canvas), canvas.palette.strong)])
        left, painted = _file(changes, canvas, width, split, left)
        lines += painted
        if changes.rest:
            lines.append([Segment(one_line(changes.rest), canvas.palette.dim)])
    missing = sum(changes.rows for changes in files) - (10**9 if whole else SHORT)
    if missing > 0:
        lines.append([Segment(f"… {missing:,} more lines of changes (unfold to see them)", canvas.palette.dim)])
    space = [Segment(" " * indent)] if indent else []
    return [Strip([*space, *line]) for line in lines]


def is_cut(text: str) -> bool:
    """Whether a diff is longer than what is shown of it at first."""
    return sum(line[:1] in (" ", "-", "+") for line in text.split("\n")) - 2 > SHORT


def _file(changes: Changes, canvas: Canvas, width: int, split: bool, left: int) -> tuple[int, list[Line]]:
    lines: list[Line] = []
    digits = len(str(max((row.old or row.new for hunk in changes.hunks for row in hunk.rows), default=1))) + 1
    look = _Look(canvas, PurePath(changes.path).name, max(digits, 3))
    for number, hunk in enumerate(changes.hunks):
        if left <= 0:
            break
        if number:
            unit = "line" if hunk.skipped == 1 else "lines"
            lines.append([Segment(f"{'⋯':>{digits}} {hunk.skipped} {unit}", canvas.palette.dim)])
        shown = Hunk(hunk.rows[:left], hunk.skipped)
        left -= len(shown.rows)
        lines += look.side_by_side(shown, width) if split else look.unified(shown, width)
    return left, lines


class _Look:
    """How the lines of one file look."""

    def __init__(self, canvas: Canvas, name: str, digits: int) -> None:
        self._palette = canvas.palette
        from odin.ui.tui.paint.code import highlighted, lexer_for

        self._highlighted = highlighted
        self._lexer = lexer_for(name)
        self._digits = digits

    def unified(self, hunk: Hunk, width: int) -> list[Line]:
        code = self._code(hunk)
        lines: list[Line] = []
        for row in hunk.rows:
            lines += self._cell(row, row.new or row.old, code[id(row)], width)
        return lines

    def side_by_side(self, hunk: Hunk, width: int) -> list[Line]:
        code = self._code(hunk)
        half = (width - 1) // 2
        lines: list[Line] = []
        for group in runs(hunk.rows):
            old = [row for row in group if row.sign != "+"]
            new = [row for row in group if row.sign != "-"]
            for number in range(max(len(old), len(new))):
                left = (
                    self._cell(old[number], old[number].old, code[id(old[number])], half) if number < len(old) else []
                )
                right = (
                    self._cell(new[number], new[number].new, code[id(new[number])], half) if number < len(new) else []
                )
                for place in range(max(len(left), len(right))):
                    first = left[place] if place < len(left) else [Segment(" " * half)]
                    second = right[place] if place < len(right) else []
                    lines.append([*first, Segment("│", self._palette.dim), *second])
        return lines

    def _side(self, rows: list[Row], number: int, code: dict[int, Line], width: int, side: str) -> list[Line]:
        if number >= len(rows):
            return []
        row = rows[number]
        return self._cell(row, row.old if side == "old" else row.new, code[id(row)], width)

    def _code(self, hunk: Hunk) -> dict[int, Line]:
        """Each side is coloured as a whole, so that what spans several lines is seen as such."""
        found: dict[int, Line] = {}
        for sign in "-+":
            rows = [row for row in hunk.rows if row.sign in (" ", sign)]
            text = "\n".join(row.text.replace("\n", " ") for row in rows)
            painted = self._highlighted(text, self._lexer, self._palette.code, self._palette.text)
            found.update((id(row), line) for row, line in zip(rows, painted, strict=False))
        return found

    def _cell(self, row: Row, number: int, code: Line, width: int) -> list[Line]:
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
        for place, piece in enumerate(hard_wrapped(_harmless(_marked(code, row.words, word)), room)):
            label = f"{number:>{self._digits}} " if not place else " " * (self._digits + 1)
            used = sum(segment.cell_length for segment in piece)
            mark = f"{row.sign} " if not place else "↪ "
            line = [Segment(mark, sign), *piece, Segment(" " * max(room - used, 0))]
            lines.append([Segment(label, palette.dim), *_on(line, ground)])
        return lines


def _on(line: Line, ground: Style) -> Line:
    return list(Segment.apply_style(line, ground)) if ground else line


def _harmless(line: Line) -> Line:
    return [Segment(foreign(segment.text), segment.style) for segment in line]


def _marked(line: Line, words: list[Span], style: Style) -> Line:
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
