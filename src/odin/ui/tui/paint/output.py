"""What a tool or a command printed, below its card."""

from textual.strip import Strip

from odin.ui.tui.paint.ansi import coloured
from odin.ui.tui.paint.canvas import Canvas, hard_wrapped, indented

TAIL = 5
"""Lines of a running call's output that are seen."""
SHORT = 12
"""Lines of a result that are shown before somebody asks for more."""


def output_lines(text: str, canvas: Canvas, *, most: int = 0, indent: int = 2) -> list[Strip]:
    """All of it, or its first `most` lines and how many there are beyond."""
    palette = canvas.palette
    lines = coloured(text.rstrip("\n"), palette.dim)
    shown = lines[:most] if most else lines
    found: list[Strip] = []
    for line in shown:
        found += indented(hard_wrapped(line, canvas.width - indent), indent)
    if len(shown) < len(lines):
        found.append(canvas.row((" " * indent, None), (f"… {len(lines) - len(shown):,} more lines", palette.dim)))
    return found


def tail_lines(tail: list[str], canvas: Canvas) -> list[Strip]:
    """The newest lines, each as one line."""
    found: list[Strip] = []
    if not tail:
        return found
    for line in coloured("\n".join(tail[-TAIL:]), canvas.palette.dim):
        found += indented([hard_wrapped(line, canvas.width - 2)[0]], 2)
    return found
