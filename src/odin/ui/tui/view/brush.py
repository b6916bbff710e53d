"""Paints blocks and keeps what it painted, as long as that is not too much."""

from collections.abc import Callable

from rich.console import Console
from textual.strip import Strip

from odin.core.screen import DiffStyle
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.gallery import ThumbnailCache
from odin.ui.tui.paint.painter import PaintedBlock, estimate_height
from odin.ui.tui.palette import Palette
from odin.ui.tui.story.block import TranscriptBlock

MAX_CACHED_LINES = 8_000
"""Lines that are kept; those of blocks that nobody looked at for longest are made again when they come into view."""


class RenderCache:
    """The canvas that blocks are painted on, the same for all of them until it is changed.

    `failed` is told of a block whose painter failed; a line stands in its place.
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
        """It looks different now, though nothing happened to it."""
        painted = self._painted.get(block)
        if painted is not None:
            painted.version = -1

    def height_of(self, block: TranscriptBlock) -> int:
        """How high it is, or about how high it will be."""
        painted = self._painted.get(block)
        return (
            len(painted.lines)
            if painted is not None and painted.is_current(block)
            else estimate_height(block, self.width)
        )

    def is_painted(self, block: TranscriptBlock) -> bool:
        painted = self._painted.get(block)
        return painted is not None and painted.is_current(block)

    def lines_of(self, block: TranscriptBlock, now: float) -> list[Strip]:
        painted = self._painted.pop(block, None) or PaintedBlock()
        before = len(painted.lines)
        self._painted[block] = painted
        if not painted.is_current(block):
            canvas = self._make_canvas(now)
            try:
                painted.paint(block, canvas)
            except Exception as error:
                painted.paint_error(block, canvas, error)
                self.on_failure(error)
            self._lines += len(painted.lines) - before
        return painted.lines

    def shown_lines_of(self, block: TranscriptBlock, now: float) -> list[Strip]:
        """The lines that were painted last, to which the heights belong, though more may have happened since."""
        painted = self._painted.get(block)
        return painted.lines if painted is not None and painted.lines else self.lines_of(block, now)

    def evict(self, shown: int) -> None:
        """Let go of what is too much, never of the last `shown` blocks that were looked at."""
        while self._lines > MAX_CACHED_LINES and len(self._painted) > shown:
            block = next(iter(self._painted))
            self._lines -= len(self._painted.pop(block).lines)

    def _make_canvas(self, now: float) -> Canvas:
        return Canvas(
            max(self.width, 8),
            self._palette,
            self._diff,
            now=now,
            cwd=self.cwd,
            home=self.home,
            thumbnails=self.thumbnails,
            console=self._console,
        )
