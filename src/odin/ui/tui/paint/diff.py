"""Parses unified diffs and paints them, unified or side by side, with highlighted code and marked words."""

import re
from pathlib import PurePath
from typing import Literal

from msgspec import Struct, field
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.core.format import pluralize
from odin.ui.clean_text import sanitize, sanitize_line
from odin.ui.tui.paint.canvas import Canvas, Line, drop_soft_wrap_markers, style_spans, wrap_cells

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)
_MAX_COMPARED = 400
"""Longer lines are not compared by words."""

_MIN_RATIO = 0.5
_MAX_CANDIDATES = 6
"""Added lines compared to find the new version of a removed line."""

Sign = Literal[" ", "-", "+"]
Span = tuple[int, int]


class DiffRow(Struct):
    """One line of a hunk. `old` and `new` are its line numbers, or 0; `words` the spans of its changed words."""

    sign: Sign
    text: str
    old: int = 0
    new: int = 0
    words: list[Span] = field(default_factory=list[Span])


class DiffHunk(Struct):
    rows: list[DiffRow]
    skipped: int = 0
    """Unchanged lines between the previous hunk, or the start of the file, and this one."""


class FileDiff(Struct):
    path: str
    hunks: list[DiffHunk]
    trailer: str = ""
    """Text after the hunks, such as a note that the diff was cut."""

    @property
    def row_count(self) -> int:
        return sum(len(hunk.rows) for hunk in self.hunks)


def parse_diff(text: str) -> list[FileDiff]:
    """Return the changed files of a unified diff, with changed words marked."""
    reader = _DiffParser()
    for line in text.rstrip("\n").split("\n"):
        reader.read(line)
    for changes in reader.files:
        for hunk in changes.hunks:
            for group in group_rows(hunk.rows):
                removed = [row for row in group if row.sign == "-"]
                added = [row for row in group if row.sign == "+"]
                first = 0
                for old in removed:
                    candidates = range(first, min(first + _MAX_CANDIDATES, len(added)))
                    match = next((i for i in candidates if _compare(old, added[i])), None)
                    first = first if match is None else match + 1
    return reader.files


class _DiffParser:
    """Counts the lines of each hunk, because a removed line may look like a file header."""

    def __init__(self) -> None:
        self.files: list[FileDiff] = []
        self._old = self._new = self._old_left = self._new_left = 0

    def read(self, line: str) -> None:
        sign = line[:1]
        if (sign == "-" and self._old_left) or (sign == "+" and self._new_left):
            self._add_row(sign, line[1:])
        elif sign in (" ", "") and self._old_left and self._new_left:
            self._add_row(" ", line[1:])
        elif line.startswith("--- "):
            self.files.append(FileDiff(line[4:], []))
            self._old = 0
        elif line.startswith("+++ ") and self.files:
            self.files[-1].path = line[4:]
        elif self.files:
            head = _HUNK.match(line)
            changes = self.files[-1]
            if head:
                start = int(head[1])
                changes.hunks.append(DiffHunk([], max(start - max(self._old, 1), 0)))
                self._old, self._new = start, int(head[3])
                self._old_left, self._new_left = int(head[2] or 1), int(head[4] or 1)
            elif line.strip() and not line.startswith("\\"):
                changes.trailer = f"{changes.trailer}\n{line}".strip()

    def _add_row(self, sign: str, text: str) -> None:
        in_old, in_new = sign != "+", sign != "-"
        row = DiffRow("+" if not in_old else "-" if not in_new else " ", text, self._old * in_old, self._new * in_new)
        self.files[-1].hunks[-1].rows.append(row)
        self._old, self._new = self._old + in_old, self._new + in_new
        self._old_left, self._new_left = self._old_left - in_old, self._new_left - in_new


def group_rows(rows: list[DiffRow]) -> list[list[DiffRow]]:
    """Group rows: removed lines with the added lines that replace them, and runs of unchanged lines."""
    groups: list[list[DiffRow]] = []
    for row in rows:
        last = groups[-1][-1] if groups else None
        joins = last is not None and (row.sign == last.sign or (last.sign == "-" and row.sign == "+"))
        if joins:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _compare(old: DiffRow, new: DiffRow) -> bool:
    """Mark the differing words and return True, if the lines are similar enough."""
    if max(len(old.text), len(new.text)) > _MAX_COMPARED:
        return False
    from difflib import SequenceMatcher

    before, after = _WORD.findall(old.text), _WORD.findall(new.text)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.real_quick_ratio() < _MIN_RATIO or matcher.quick_ratio() < _MIN_RATIO or matcher.ratio() < _MIN_RATIO:
        return False
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            old.words += _make_spans(before, a, b)
            new.words += _make_spans(after, c, d)
    return True


def _make_spans(words: list[str], first: int, last: int) -> list[Span]:
    start = sum(map(len, words[:first]))
    size = sum(map(len, words[first:last]))
    return [(start, start + size)] if size else []


SPLIT_COLUMNS = 140
"""Columns of a terminal from which diffs are side by side, if no line has to be wrapped for it."""
_FRAME_COLUMNS = 4
_SIGN_COLUMNS = 3
SHORT_DIFF = 30
"""Rows of a diff that are shown until it is unfolded."""


def paint_diff(text: str, canvas: Canvas, *, whole: bool, indent: int = 2) -> list[Strip]:
    """Paint a diff: all of it if `whole`, else its first rows. File names are shown if there are several files."""
    width = max(canvas.width - indent, 14)
    lines: list[Line] = []
    files = parse_diff(text)
    left = 10**9 if whole else SHORT_DIFF
    for changes in files:
        if len(files) > 1:
            lines.append([Segment(canvas.folders.shorten(sanitize_line(changes.path)), canvas.palette.strong)])
        left, painted = _paint_file(changes, canvas, width, left)
        lines += painted
        if changes.trailer:
            lines.append([Segment(sanitize_line(changes.trailer), canvas.palette.dim)])
    missing = sum(changes.row_count for changes in files) - (10**9 if whole else SHORT_DIFF)
    if missing > 0:
        lines.append(
            [Segment(f"… {pluralize(missing, 'more line')} of changes (unfold to see them)", canvas.palette.dim)]
        )
    space = [Segment(" " * indent)] if indent else []
    return [Strip([*space, *line]) for line in lines]


def is_cut(text: str) -> bool:
    """True if a diff has more rows than are shown while folded."""
    return sum(line[:1] in (" ", "-", "+") for line in text.split("\n")) - 2 > SHORT_DIFF


def _paint_file(changes: FileDiff, canvas: Canvas, width: int, left: int) -> tuple[int, list[Line]]:
    lines: list[Line] = []
    rows = [row for hunk in changes.hunks for row in hunk.rows]
    digits = max(len(str(max((row.old or row.new for row in rows), default=1))) + 1, 3)
    look = _FilePainter(canvas, PurePath(changes.path).name, digits)
    # One side of a new or deleted file would be empty.
    split = any(row.old for row in rows) and any(row.new for row in rows) and canvas.diff_style != "unified"
    if split and canvas.diff_style == "auto":
        room = (width - 1) // 2 - digits - _SIGN_COLUMNS
        is_wide = canvas.width + _FRAME_COLUMNS >= SPLIT_COLUMNS
        split = is_wide and all(cell_len(row.text.expandtabs(4)) <= room for row in rows)
    for number, hunk in enumerate(changes.hunks):
        if left <= 0:
            break
        if number:
            lines.append([Segment(f"{'⋯':>{digits}} {pluralize(hunk.skipped, 'line')}", canvas.palette.dim)])
        shown = DiffHunk(hunk.rows[:left], hunk.skipped)
        left -= len(shown.rows)
        lines += look.paint_split(shown, width) if split else look.paint_unified(shown, width)
    return left, lines


class _FilePainter:
    """Paints the hunks of one file."""

    def __init__(self, canvas: Canvas, name: str, digits: int) -> None:
        self._palette = canvas.palette
        from odin.ui.tui.paint.markdown import find_lexer_by_file, highlight_code

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
                left = self._paint_side(old, number, code, half, "old")
                right = self._paint_side(new, number, code, half, "new")
                for place in range(max(len(left), len(right))):
                    first = left[place] if place < len(left) else [Segment(" " * half)]
                    second = right[place] if place < len(right) else []
                    lines.append(drop_soft_wrap_markers([*first, Segment("│", self._palette.dim), *second]))
        return lines

    def _paint_side(self, rows: list[DiffRow], number: int, code: dict[int, Line], width: int, side: str) -> list[Line]:
        if number >= len(rows):
            return []
        row = rows[number]
        return self._paint_cell(row, row.old if side == "old" else row.new, code[id(row)], width)

    def _highlight_hunk(self, hunk: DiffHunk) -> dict[int, Line]:
        """Highlight each side as a whole, so that multi-line tokens are recognized."""
        highlighted: dict[int, Line] = {}
        for sign in "-+":
            rows = [row for row in hunk.rows if row.sign in (" ", sign)]
            text = "\n".join(row.text.replace("\n", " ") for row in rows)
            painted = self._highlight_code(text, self._lexer, self._palette.code, self._palette.text)
            highlighted.update((id(row), line) for row, line in zip(rows, painted, strict=False))
        return highlighted

    def _paint_cell(self, row: DiffRow, number: int, code: Line, width: int) -> list[Line]:
        """Paint a line with its number and sign, wrapped to `width`, on the background of its sign."""
        palette = self._palette
        background, word = {
            "+": (palette.added, palette.added_word),
            "-": (palette.removed, palette.removed_word),
            " ": (Style.null(), Style.null()),
        }[row.sign]
        sign = {"+": palette.good, "-": palette.bad, " ": palette.dim}[row.sign]
        room = max(width - self._digits - _SIGN_COLUMNS, 4)
        lines: list[Line] = []
        for place, piece in enumerate(wrap_cells(_sanitize_segments(style_spans(code, row.words, word)), room)):
            label = f"{number:>{self._digits}} " if not place else " " * (self._digits + 1)
            used = sum(segment.cell_length for segment in piece)
            mark = f"{row.sign} " if not place else "↪ "
            line = [Segment(mark, sign), *piece, Segment(" " * max(room - used, 0))]
            lines.append([Segment(label, palette.dim), *_apply_background(line, background)])
        return lines


def _apply_background(line: Line, background: Style) -> Line:
    return list(Segment.apply_style(line, background)) if background else line


def _sanitize_segments(line: Line) -> Line:
    return [Segment(sanitize(segment.text), segment.style) for segment in line]
