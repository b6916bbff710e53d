"""What a tool or a command printed, below its card."""

from textual.strip import Strip

from odin.ui.tui.paint.ansi import parse_ansi
from odin.ui.tui.paint.canvas import Canvas, indent_lines, wrap_cells

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
