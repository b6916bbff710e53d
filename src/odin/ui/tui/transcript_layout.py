"""Layout of the transcript: block heights, scroll anchors, and the geometry of the mouse selection.

Nothing here is a widget. Only visible blocks are painted; the others have an estimated height until they are scrolled
into view, so a long transcript opens and scrolls as fast as a short one.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from odin.ui.transcript.blocks import TranscriptBlock
from odin.ui.tui.paint.canvas import find_soft_wrap_marker
from odin.ui.tui.paint.painter import RenderCache, is_joined

EXACT_BLOCKS = 40
"""Up to this many blocks, all of them are painted, so the scroll bar is exact."""

_MAX_PASSES = 8
_MAX_CACHED_LINES = 400


class BlockHeights:
    """Height and first line of each block. Tops are recomputed on demand, from the first changed block on."""

    def __init__(self) -> None:
        self._heights: list[int] = []
        self._tops: list[int] = [0]
        self._first_changed = 0

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def reset(self, heights: Sequence[int]) -> None:
        self._heights = list(heights)
        self._first_changed = 0

    def append(self, heights: Sequence[int]) -> None:
        self._first_changed = min(self._first_changed, len(self._heights))
        self._heights += heights

    def set(self, index: int, height: int) -> bool:
        """Set the height and return True if it changed."""
        if self._heights[index] == height:
            return False
        self._heights[index] = height
        self._first_changed = min(self._first_changed, index)
        return True

    def _update_tops(self) -> list[int]:
        if self._first_changed < len(self._heights) or len(self._tops) != len(self._heights) + 1:
            first = min(self._first_changed, len(self._tops) - 1)
            self._tops[first:] = accumulate(self._heights[first:], initial=self._tops[first])
        self._first_changed = len(self._heights)
        return self._tops

    @property
    def total(self) -> int:
        return self._update_tops()[-1]

    def get_top(self, index: int) -> int:
        return self._update_tops()[index]

    def find_block(self, line: int) -> int:
        """Return the index of the block on this line, or -1."""
        tops = self._update_tops()
        return bisect_right(tops, line) - 1 if 0 <= line < tops[-1] else -1

    def find_range(self, top: int, rows: int) -> range:
        """Return the indexes of the blocks that overlap `rows` lines from `top` on."""
        tops = self._update_tops()
        first = max(bisect_right(tops, top) - 1, 0)
        last = bisect_left(tops, top + max(rows, 1))
        return range(first, min(last, len(self._heights)))


class Anchor(NamedTuple):
    """A block, and the row of the viewport its top is on. Scrolling keeps an anchor on its row."""

    block: TranscriptBlock
    row: int


class BlockLayout:
    """The blocks of one transcript with their heights and painted lines.

    Each block has a blank line above it, except cards of a single line that follow each other.
    """

    def __init__(self, render_cache: RenderCache, clock: Callable[[], float]) -> None:
        self._render_cache = render_cache
        self._clock = clock
        self.blocks: list[TranscriptBlock] = []
        self.index: dict[TranscriptBlock, int] = {}
        self.heights = BlockHeights()
        self._joined: set[TranscriptBlock] = set()

    def measure_all(self, blocks: Sequence[TranscriptBlock]) -> None:
        self.blocks = list(blocks)
        self.index = {block: number for number, block in enumerate(self.blocks)}
        self._joined.clear()
        self._join(range(len(self.blocks)))
        self.heights.reset([self._get_height(block) for block in self.blocks])

    def measure(self, blocks: Sequence[TranscriptBlock], changed: Iterable[TranscriptBlock]) -> None:
        """Append the new blocks at the end of `blocks` and measure the `changed` ones."""
        known = len(self.blocks)
        if known > len(blocks):
            self.measure_all(blocks)
            return
        new = blocks[known:]
        self.index.update((block, known + number) for number, block in enumerate(new))
        self.blocks += new
        places = {self.index[block] for block in changed if block in self.index}
        places |= {place + 1 for place in places if place + 1 < len(self.blocks)}
        self._join((*places, *range(known, len(self.blocks))))
        for index in places:
            if index < known:
                self.heights.set(index, self._get_height(self.blocks[index]))
        self.heights.append([self._get_height(block) for block in new])

    def _join(self, places: Iterable[int]) -> None:
        """Find out which of the blocks at these places have no blank line above them."""
        for index in places:
            block = self.blocks[index]
            if is_joined(block, self.blocks[index - 1] if index else None):
                self._joined.add(block)
            else:
                self._joined.discard(block)

    def _get_height(self, block: TranscriptBlock) -> int:
        if len(self.blocks) <= EXACT_BLOCKS and self._render_cache.width:
            return len(self.get_lines(block))
        return self._render_cache.get_height(block) - (block in self._joined)

    def get_gap(self, block: TranscriptBlock) -> int:
        """Return the number of blank lines above the block."""
        return 0 if block in self._joined else 1

    def get_lines(self, block: TranscriptBlock) -> list[Strip]:
        return self._without_gap(block, self._render_cache.get_lines(block, self._clock()))

    def get_painted_lines(self, block: TranscriptBlock) -> list[Strip]:
        """Return the lines of the last frame, which the heights match, even if the block has changed since."""
        return self._without_gap(block, self._render_cache.get_shown_lines(block, self._clock()))

    def _without_gap(self, block: TranscriptBlock, lines: list[Strip]) -> list[Strip]:
        return lines[1:] if block in self._joined else lines

    def measure_exactly(self, index: int) -> tuple[int, bool]:
        """Paint a block; return its height and whether that differs from the height known so far."""
        height = len(self.get_lines(self.blocks[index]))
        return height, self.heights.set(index, height)

    def block_at(self, line: int) -> tuple[TranscriptBlock, int] | None:
        """Return the block on this line, and the number of the line within the block."""
        index = self.heights.find_block(line)
        return (self.blocks[index], line - self.heights.get_top(index)) if index >= 0 else None

    def find_line(self, block: TranscriptBlock, line: int) -> int | None:
        """Return the line of the transcript that holds this line of the block."""
        index = self.index.get(block)
        return self.heights.get_top(index) + line if index is not None else None

    def list_visible(self, top: int, rows: int) -> list[TranscriptBlock]:
        return [self.blocks[index] for index in self.heights.find_range(top, rows)]

    def find_anchors(self, top: int, rows: int, keep: TranscriptBlock | None) -> list[Anchor]:
        """Return the visible blocks as scroll anchors, best first: `keep`, then blocks whose top is visible."""
        visible = self.heights.find_range(top, rows) if self.blocks else range(0)
        anchors = [Anchor(self.blocks[index], self.heights.get_top(index) - top) for index in visible]
        anchors.sort(
            key=lambda anchor: (
                anchor.block is not keep,
                anchor.row < 0,
                not self._render_cache.is_painted(anchor.block),
            )
        )
        return anchors

    def settle_at_end(self, rows: int) -> None:
        """Paint the blocks that fill the last `rows` lines."""
        index = len(self.blocks)
        while index and rows > 0:
            index -= 1
            rows -= self.measure_exactly(index)[0]

    def settle_in_place(self, anchors: Sequence[Anchor], top: int, rows: int) -> int:
        """Paint the visible blocks; return the scroll position that keeps the first known anchor on its row."""
        anchor = next((anchor for anchor in anchors if anchor.block in self.index), None)
        for _ in range(_MAX_PASSES):
            if anchor is not None:
                top = self.heights.get_top(self.index[anchor.block]) - anchor.row
            top = max(0, min(top, self.heights.total - rows))
            changed = [self.measure_exactly(index)[1] for index in self.heights.find_range(top, rows)]
            if True not in changed:
                break
        return top


class LineCache:
    """Lines as drawn last, by line number. An entry is valid while its source strip is the same object.

    While an answer streams in, most of the screen is the same in every frame.
    """

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Strip, Strip]] = {}
        self._style: Style | None = None

    def clear(self) -> None:
        self._lines.clear()
        self._style = None

    def get_style(self, widget: Widget) -> Style:
        """Return the widget's own style, which Textual recomputes on every access."""
        if self._style is None:
            self._style = widget.rich_style
        return self._style

    def get_or_draw(self, strip: Strip, line: int, draw: Callable[[], Strip]) -> Strip:
        cached = self._lines.get(line)
        if cached is not None and cached[0] is strip:
            return cached[1]
        drawn = draw()
        if len(self._lines) >= _MAX_CACHED_LINES:
            self._lines.clear()
        self._lines[line] = strip, drawn
        return drawn


class BlockSpot(NamedTuple):
    """A position in the transcript: a line of a block and a column."""

    block: TranscriptBlock
    line: int
    x: int


class BlockSelection(NamedTuple):
    """A mouse selection stored by block, so that it moves with the selected text."""

    start: BlockSpot | None
    end: BlockSpot | None


def select_blocks(layout: BlockLayout, selection: Selection) -> BlockSelection:
    def get_spot(place: Offset | None) -> BlockSpot | None:
        located = layout.block_at(place.y) if place else None
        return BlockSpot(*located, place.x) if located is not None and place is not None else None

    return BlockSelection(get_spot(selection.start), get_spot(selection.end))


def move_selection(layout: BlockLayout, selection: Selection, blocks: BlockSelection) -> Selection:
    """Return the selection on the lines where its blocks are now."""

    def moved(place: Offset | None, spot: BlockSpot | None) -> Offset | None:
        line = layout.find_line(spot.block, spot.line) if spot is not None else None
        return Offset(place.x, line) if place is not None and line is not None else place

    return Selection(moved(selection.start, blocks.start), moved(selection.end, blocks.end))


def get_selected_text(layout: BlockLayout, selection: Selection, margin: int) -> str:
    """Return the selected text without the `margin` cells at the left of each line; wrapped lines are joined."""
    total = layout.heights.total
    first = selection.start.y if selection.start is not None else 0
    last = selection.end.y if selection.end is not None else total - 1
    selected: list[str] = []
    for line in range(max(first, 0), min(last, total - 1) + 1):
        located = layout.block_at(line)
        strip = _get_strip_at(layout, *located) if located is not None else Strip([])
        marker = find_soft_wrap_marker(strip) if selected else None
        if marker is None:
            selected.append(_cut_selection(strip.text, selection, line, margin))
        else:
            start, space = marker
            rest = _cut_selection(strip.text, selection, line, margin, start)
            selected[-1] = f"{selected[-1].rstrip()}{space}{rest}" if rest else selected[-1]
    return "\n".join(selected)


def _get_strip_at(layout: BlockLayout, block: TranscriptBlock, line: int) -> Strip:
    lines = layout.get_lines(block)
    return lines[line] if line < len(lines) else Strip([])


def _cut_selection(text: str, selection: Selection, line: int, margin: int, first: int = 0) -> str:
    """Return the selected part of a line of the transcript, from character `first` on."""
    span = selection.get_span(line)
    if span is None:
        return ""
    start = max(span[0] - margin, first)
    return text[start:].rstrip() if span[1] == -1 else text[start : max(span[1] - margin, 0)]


def find_word(text: str, index: int) -> tuple[int, int] | None:
    """Return the start and end of the word at `index`."""
    for match in re.finditer(r"[\w./:@~+-]+", text):
        if match.start() <= index < match.end():
            return match.span()
    return None


def find_word_at(strip: Strip, x: int) -> tuple[int, int] | None:
    """Return the start and end of the word at cell `x` of a drawn line."""
    cells = [strip.index_to_cell_position(index) for index in range(len(strip.text))]
    return find_word(strip.text, next((i for i in range(len(cells) - 1, -1, -1) if cells[i] <= x), -1))


def style_selection(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """Return the strip with the characters in `span` styled as selected; an end of -1 is the end of the line."""
    text = strip.text
    start, end = span[0], len(text) if span[1] == -1 else min(span[1], len(text))
    if start >= end:
        return strip
    first, last = strip.index_to_cell_position(start), strip.index_to_cell_position(end)
    middle = Strip(Segment.apply_style(iter(strip.crop(first, last)), post_style=style))
    return Strip.join([strip.crop(0, first), middle, strip.crop(last)])
