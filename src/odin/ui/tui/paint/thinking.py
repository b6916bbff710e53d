"""What the model thought: folded, with how long it took."""

from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, with_gap
from odin.ui.tui.paint.foreign import foreign
from odin.ui.tui.paint.words import since
from odin.ui.tui.story.block import ThinkingBlock

_LIVE_CHARS = 4_000
"""Of a thought that goes on only its end is shown, so that a long one costs no more than a short one."""


def paint_thinking(block: ThinkingBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    lines = [canvas.row(("▸ " if folded else "▾ ", palette.dim), (_head(block, canvas.now), palette.dim))]
    if not folded:
        text = block.text.strip()
        if block.live and len(text) > _LIVE_CHARS:
            text = "…" + text[-_LIVE_CHARS:]
        lines += canvas.text(foreign(text) or "(nothing to read)", palette.dim, indent=2)
    return with_gap(lines)


def _head(block: ThinkingBlock, now: float) -> str:
    if block.live:
        return f"Thinking… {since(block.ts, now)}".rstrip()
    if block.seconds <= 0:
        return "Thought"
    if block.seconds < 1:
        return "Thought for less than a second"
    whole = round(block.seconds)
    return f"Thought for {whole} s" if whole < 60 else f"Thought for {whole // 60} min {whole % 60} s"
