"""Paints blocks and keeps what it painted, as long as that is not too much."""

from collections.abc import Callable

from rich.console import Console
from textual.strip import Strip

from odin.core.screen import DiffStyle
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.gallery import Gallery
from odin.ui.tui.paint.painter import Painted, estimate
from odin.ui.tui.palette import Palette
from odin.ui.tui.story.block import Block

KEPT_LINES = 8_000
"""Lines that are kept; those of blocks that nobody looked at for longest are made again when they come into view."""


class Brush:
    """The canvas that blocks are painted on, the same for all of them until it is changed.

    `failed` is told of a block whose painter failed; a line stands in its place.
    """

    def __init__(self, palette: Palette, diff: DiffStyle) -> None:
        self._palette = palette
        self._diff: DiffStyle = diff
        self.width = 0
        self.cwd = ""
        self.home = ""
        self.gallery = Gallery()
        self._console = Console(
            width=80, force_terminal=True, color_system="truecolor", legacy_windows=False, _environ={}
        )
        self._painted: dict[Block, Painted] = {}
        self._lines = 0
        self.failed: Callable[[Exception], None] = lambda error: None

    def recolour(self, palette: Palette, diff: DiffStyle) -> None:
        self._palette, self._diff = palette, diff
        self.forget()

    def forget(self) -> None:
        self._painted.clear()
        self._lines = 0

    def drop(self, block: Block) -> None:
        """It looks different now, though nothing happened to it."""
        painted = self._painted.get(block)
        if painted is not None:
            painted.version = -1

    def height(self, block: Block) -> int:
        """How high it is, or about how high it will be."""
        painted = self._painted.get(block)
        return len(painted.lines) if painted is not None and painted.holds(block) else estimate(block, self.width)

    def is_painted(self, block: Block) -> bool:
        painted = self._painted.get(block)
        return painted is not None and painted.holds(block)

    def lines(self, block: Block, now: float) -> list[Strip]:
        painted = self._painted.pop(block, None) or Painted()
        before = len(painted.lines)
        self._painted[block] = painted
        if not painted.holds(block):
            canvas = self._canvas(now)
            try:
                painted.paint(block, canvas)
            except Exception as error:
                painted.give_up(block, canvas, error)
                self.failed(error)
            self._lines += len(painted.lines) - before
        return painted.lines

    def shown(self, block: Block, now: float) -> list[Strip]:
        """The lines that were painted last, to which the heights belong, though more may have happened since."""
        painted = self._painted.get(block)
        return painted.lines if painted is not None and painted.lines else self.lines(block, now)

    def tidy(self, shown: int) -> None:
        """Let go of what is too much, never of the last `shown` blocks that were looked at."""
        while self._lines > KEPT_LINES and len(self._painted) > shown:
            block = next(iter(self._painted))
            self._lines -= len(self._painted.pop(block).lines)

    def _canvas(self, now: float) -> Canvas:
        return Canvas(
            max(self.width, 8),
            self._palette,
            self._diff,
            now=now,
            cwd=self.cwd,
            home=self.home,
            gallery=self.gallery,
            console=self._console,
        )
