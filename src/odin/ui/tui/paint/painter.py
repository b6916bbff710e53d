"""Paints each kind of block, and caches painted blocks up to a number of lines."""

from collections.abc import Callable
from typing import Any

from rich.console import Console
from textual.strip import Strip

from odin.core.tool import get_display_name
from odin.core.tui_settings import DiffStyle
from odin.ui.transcript.blocks import (
    AgentBlock,
    AnswerBlock,
    CallBlock,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    SummaryBlock,
    TranscriptBlock,
)
from odin.ui.transcript.words import ShownFolders, is_folded
from odin.ui.tui.paint.answer import AnswerPainter
from odin.ui.tui.paint.canvas import SHORT_OUTPUT, Canvas, ThumbnailCache, make_blank
from odin.ui.tui.paint.cards import (
    LONG_PROMPT,
    is_call_cut,
    is_one_line,
    paint_agent,
    paint_call,
    paint_command,
    paint_end,
    paint_notice,
    paint_process,
    paint_prompt,
    paint_summary,
    paint_thinking,
)
from odin.ui.tui.palette import Palette

_PAINTERS: dict[type[TranscriptBlock], Callable[[Any, Canvas, bool], list[Strip]]] = {
    PromptBlock: paint_prompt,
    ReasoningBlock: paint_thinking,
    CallBlock: paint_call,
    CommandBlock: paint_command,
    AgentBlock: paint_agent,
    ProcessBlock: paint_process,
    NoticeBlock: paint_notice,
    SummaryBlock: paint_summary,
    EndBlock: paint_end,
}
_NARROW = 20
"""A prompt of more characters than lines of this width hold may be folded on a narrow screen."""

_FOLDABLE = (ReasoningBlock, SummaryBlock, CommandBlock, CallBlock, AgentBlock, ProcessBlock)


class PaintedBlock:
    """The cached lines of one block. A growing answer keeps its painter, so that only new text is painted."""

    __slots__ = ("_growing", "folded", "lines", "version")

    def __init__(self) -> None:
        self.version = -1
        self.folded: bool | None = None
        self.lines: list[Strip] = []
        self._growing: AnswerPainter | None = None

    def is_current(self, block: TranscriptBlock) -> bool:
        return self.version == block.version and self.folded == block.folded

    def paint(self, block: TranscriptBlock, canvas: Canvas) -> list[Strip]:
        """Return the lines of the block, including the blank line above it."""
        if isinstance(block, AnswerBlock):
            if self._growing is None or not self._growing.fits(block.text):
                self._growing = AnswerPainter()
            self.lines = self._growing.paint(block, canvas)
        else:
            self.lines = _PAINTERS[type(block)](block, canvas, is_folded(block))
        self.version, self.folded = block.version, block.folded
        return self.lines

    def paint_error(self, block: TranscriptBlock, canvas: Canvas, error: Exception) -> list[Strip]:
        """Replace a block whose painter failed by one line; otherwise the session could never be shown again."""
        self._growing = None
        words = f"Could not display this block ({type(error).__name__}). /export contains it."
        self.lines = [make_blank(), canvas.paint_row((words, canvas.palette.bad))]
        self.version, self.folded = block.version, block.folded
        return self.lines


def paint_block(block: TranscriptBlock, canvas: Canvas) -> list[Strip]:
    """Return the lines of a block, including the blank line above it."""
    return PaintedBlock().paint(block, canvas)


def is_joined(block: TranscriptBlock, before: TranscriptBlock | None) -> bool:
    """True if no blank line separates the block from the one before it: both are cards of a single line."""
    return before is not None and _is_slim(block) and _is_slim(before)


def _is_slim(block: TranscriptBlock) -> bool:
    if isinstance(block, ReasoningBlock):
        return not block.live and is_folded(block)
    return isinstance(block, CallBlock) and is_one_line(block, is_folded(block))


def can_fold(block: TranscriptBlock) -> bool:
    if isinstance(block, PromptBlock):
        return block.text.count("\n") >= LONG_PROMPT or len(block.text) > LONG_PROMPT * _NARROW
    return isinstance(block, _FOLDABLE)


def choose_fold(block: TranscriptBlock) -> bool:
    """Return the fold state after a toggle. A partly shown block is first shown completely."""
    if isinstance(block, CallBlock) and is_call_cut(block):
        return False
    return not is_folded(block)


def estimate_height(block: TranscriptBlock, width: int) -> int:
    """Return the estimated number of lines of a block that was never painted."""
    width = max(width, 1)
    if isinstance(block, AnswerBlock | PromptBlock):
        return 2 + block.text.count("\n") + len(block.text) // width
    if isinstance(block, EndBlock):
        return 2 if block.error or block.duration_ms >= 1_000 or block.cost_usd else 0
    if isinstance(block, CallBlock) and block.is_over and not is_folded(block):
        shown = block.view or block.result
        lines = shown.count("\n") + 1
        return 2 + (lines if block.folded is False else min(lines, SHORT_OUTPUT))
    return 2


def get_search_text(block: TranscriptBlock) -> str:
    """Return all text of a block, including folded parts."""
    if isinstance(block, AnswerBlock | PromptBlock | ReasoningBlock | NoticeBlock | SummaryBlock):
        return block.text
    if isinstance(block, CallBlock):
        args = "\n".join(str(value) for value in block.args.values())
        head = f"{get_display_name(block.name)} {block.description}"
        return f"{head}\n{args}\n{block.view or block.result}\n{block.explanation}"
    if isinstance(block, CommandBlock):
        return f"{block.command}\n{block.output}"
    if isinstance(block, AgentBlock):
        return f"{block.key} {block.type} {block.task}\n{block.note}\n{block.answer}"
    if isinstance(block, ProcessBlock):
        return f"{block.key} {block.command} {block.description}\n{block.output}"
    return f"{block.error} {block.hint}" if isinstance(block, EndBlock) else ""


def get_copy_text(block: TranscriptBlock) -> str:
    """Return the text that copying a block puts on the clipboard."""
    if isinstance(block, CallBlock):
        return block.view or block.result or str(block.args.get("command", "")) or block.description
    if isinstance(block, CommandBlock):
        return f"{block.command}\n{block.output}".strip()
    if isinstance(block, AgentBlock):
        return block.answer or block.note or block.task
    if isinstance(block, ProcessBlock):
        return block.output or block.command
    return get_search_text(block).strip()


MAX_CACHED_LINES = 8_000
"""Cached lines; beyond this, the least recently used blocks are evicted and painted again on demand."""


class RenderCache:
    """Paints blocks on a common canvas and caches their lines.

    `on_failure` is called with the exception of a failed painter; the block is replaced by an error line.
    """

    def __init__(self, palette: Palette, diff: DiffStyle) -> None:
        self._palette = palette
        self._diff: DiffStyle = diff
        self.width = 0
        self.cwd = ""
        self.home = ""
        self.thumbnails = ThumbnailCache()
        self._console = Console(
            width=80, force_terminal=True, color_system="truecolor", legacy_windows=False, _environ={}
        )
        self._painted: dict[TranscriptBlock, PaintedBlock] = {}
        self._lines = 0
        self.on_failure: Callable[[Exception], None] = lambda error: None

    def set_palette(self, palette: Palette, diff: DiffStyle) -> None:
        self._palette, self._diff = palette, diff
        self.clear()

    def clear(self) -> None:
        self._painted.clear()
        self._lines = 0

    def invalidate(self, block: TranscriptBlock) -> None:
        """Paint the block again on next use, although it has not changed."""
        painted = self._painted.get(block)
        if painted is not None:
            painted.version = -1

    def get_height(self, block: TranscriptBlock) -> int:
        """Return the height of the block, estimated if it is not painted."""
        painted = self._painted.get(block)
        if painted is not None and painted.is_current(block):
            return len(painted.lines)
        return estimate_height(block, self.width)

    def is_painted(self, block: TranscriptBlock) -> bool:
        painted = self._painted.get(block)
        return painted is not None and painted.is_current(block)

    def get_lines(self, block: TranscriptBlock, now: float) -> list[Strip]:
        painted = self._painted.pop(block, None) or PaintedBlock()
        before = len(painted.lines)
        self._painted[block] = painted
        if not painted.is_current(block):
            canvas = Canvas(
                max(self.width, 8),
                self._palette,
                self._diff,
                now=now,
                folders=ShownFolders(self.cwd, self.home),
                thumbnails=self.thumbnails,
                console=self._console,
            )
            try:
                painted.paint(block, canvas)
            except Exception as error:
                painted.paint_error(block, canvas, error)
                self.on_failure(error)
            self._lines += len(painted.lines) - before
        return painted.lines

    def get_shown_lines(self, block: TranscriptBlock, now: float) -> list[Strip]:
        """Return the lines painted last, even if the block has changed since."""
        painted = self._painted.get(block)
        return painted.lines if painted is not None and painted.lines else self.get_lines(block, now)

    def evict(self, shown: int) -> None:
        """Drop the least recently used blocks beyond the limit, but never the last `shown` ones."""
        while self._lines > MAX_CACHED_LINES and len(self._painted) > shown:
            block = next(iter(self._painted))
            self._lines -= len(self._painted.pop(block).lines)
