"""Tables that fit: narrower columns first, and when there is no room for columns at all, one field below the other."""

from dataclasses import dataclass

from rich.segment import Segment
from rich.text import Text

from odin.ui.tui.paint.canvas import Canvas, Line

_MIN_COLUMN = 8
"""Cells that a column needs to be read."""


@dataclass(frozen=True, slots=True)
class MarkdownTable:
    """The first row is the head. `aligned` is left, right, center or empty for each column."""

    rows: list[list[Text]]
    alignments: list[str]


def paint_table(table: MarkdownTable, canvas: Canvas, width: int) -> list[Line]:
    columns = len(table.rows[0]) if table.rows else 0
    if not columns:
        return []
    wanted = [max(max((row[i].cell_len for row in table.rows if i < len(row)), default=1), 1) for i in range(columns)]
    room = width - 3 * (columns - 1)
    if sum(wanted) > room and room < sum(min(want, _MIN_COLUMN) for want in wanted):
        return _paint_stacked(table, canvas, width)
    widths = _fit_widths(wanted, room)
    bar = Segment(" │ ", canvas.palette.dim)
    lines: list[Line] = []
    for number, row in enumerate(table.rows):
        cells = [canvas.wrap(row[i] if i < len(row) else Text(), widths[i]) for i in range(columns)]
        for height in range(max(len(cell) for cell in cells)):
            line: Line = []
            for i, cell in enumerate(cells):
                line += [bar] if i else []
                line += _align_cell(cell[height] if height < len(cell) else [], widths[i], table.alignments[i])
            lines.append(line)
        if not number:
            lines.append([Segment("─┼─".join("─" * size for size in widths), canvas.palette.dim)])
    return lines


def _fit_widths(wanted: list[int], room: int) -> list[int]:
    """As wide as wanted where there is room; the widest give way."""
    widths = list(wanted)
    over = sum(widths) - room
    while over > 0:
        widest = max(widths)
        places = [i for i, size in enumerate(widths) if size == widest]
        second = max((size for size in widths if size < widest), default=_MIN_COLUMN)
        step = max(1, min(widest - max(second, _MIN_COLUMN), over // len(places)))
        for i in places:
            if over <= 0:
                break
            widths[i] -= step
            over -= step
    return widths


def _align_cell(line: Line, width: int, alignment: str) -> Line:
    left = max(width - sum(segment.cell_length for segment in line), 0)
    before = left if alignment == "right" else left // 2 if alignment == "center" else 0
    return [Segment(" " * before), *line, Segment(" " * (left - before))]


def _paint_stacked(table: MarkdownTable, canvas: Canvas, width: int) -> list[Line]:
    """Each row as its fields with their names, for screens that are too narrow for columns."""
    head, *rows = table.rows
    lines: list[Line] = []
    for number, row in enumerate(rows or [head]):
        lines += [[Segment("─" * min(width, 20), canvas.palette.dim)]] if number else []
        for name, cell in zip(head, row, strict=False):
            field = Text(end="")
            if rows and name.plain:
                field.append_text(name)
                field.append(": ", canvas.palette.dim)
            field.append_text(cell)
            lines += canvas.wrap(field, width)
    return lines
