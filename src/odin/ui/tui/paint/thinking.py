"""What the model thought: folded, with how long it took."""

from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, with_gap
from odin.ui.tui.paint.foreign import sanitize
from odin.ui.tui.paint.words import format_elapsed
from odin.ui.tui.story.block import ReasoningBlock

_MAX_LIVE_CHARS = 4_000
"""Of a thought that goes on only its end is shown, so that a long one costs no more than a short one."""


def paint_thinking(block: ReasoningBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    lines = [
        canvas.paint_row(("▸ " if folded else "▾ ", palette.dim), (_describe_thinking(block, canvas.now), palette.dim))
    ]
    if not folded:
        text = block.text.strip()
        if block.live and len(text) > _MAX_LIVE_CHARS:
            text = "…" + text[-_MAX_LIVE_CHARS:]
        lines += canvas.paint_text(sanitize(text) or "(nothing to read)", palette.dim, indent=2)
    return with_gap(lines)


def _describe_thinking(block: ReasoningBlock, now: float) -> str:
    if block.live:
        return f"Thinking… {format_elapsed(block.ts, now)}".rstrip()
    if block.seconds <= 0:
        return "Thought"
    if block.seconds < 1:
        return "Thought for less than a second"
    whole = round(block.seconds)
    return f"Thought for {whole} s" if whole < 60 else f"Thought for {whole // 60} min {whole % 60} s"
