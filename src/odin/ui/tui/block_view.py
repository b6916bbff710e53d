"""Where the blocks of a conversation stand: how high each is, and on which line it begins.

What is selected with the mouse, held by the blocks it is in, so that it goes where they go.

Lines as they were drawn last. While an answer streams in, most of the screen is the same in every frame.

A story on the screen. Only what is looked at is painted, so a long one scrolls like a short one.

How the lines of a conversation are drawn: with a margin, with what is selected, and what lies over them.
"""

import asyncio
import os
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from odin.core.tui_settings import DiffStyle
from odin.ui.tui.blocks import CallBlock, PromptBlock, TranscriptBlock
from odin.ui.tui.format import SPINNER_S
from odin.ui.tui.paint.canvas import load_thumbnail
from odin.ui.tui.paint.painter import RenderCache
from odin.ui.tui.palette import Palette
from odin.ui.tui.transcript_model import TranscriptModel


class BlockHeights:
    """Changes are added up when somebody asks where something is, from the first that changed."""

    def __init__(self) -> None:
        self._heights: list[int] = []
        self._tops: list[int] = [0]
        self._first = 0

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def reset(self, heights: Sequence[int]) -> None:
        self._heights = list(heights)
        self._first = 0

    def append(self, heights: Sequence[int]) -> None:
        self._first = min(self._first, len(self._heights))
        self._heights += heights

    def set(self, index: int, height: int) -> bool:
        """Whether that is a change."""
        if self._heights[index] == height:
            return False
        self._heights[index] = height
        self._first = min(self._first, index)
        return True

    def _update_tops(self) -> list[int]:
        if self._first < len(self._heights) or len(self._tops) != len(self._heights) + 1:
            first = min(self._first, len(self._tops) - 1)
            self._tops[first:] = accumulate(self._heights[first:], initial=self._tops[first])
        self._first = len(self._heights)
        return self._tops

    @property
    def total(self) -> int:
        return self._update_tops()[-1]

    def top_of(self, index: int) -> int:
        return self._update_tops()[index]

    def find_block(self, line: int) -> int:
        """The block that this line belongs to; -1 when there is none."""
        tops = self._update_tops()
        return bisect_right(tops, line) - 1 if 0 <= line < tops[-1] else -1

    def find_range(self, top: int, rows: int) -> range:
        """The blocks of which something is between these lines."""
        tops = self._update_tops()
        first = max(bisect_right(tops, top) - 1, 0)
        last = bisect_left(tops, top + max(rows, 1))
        return range(first, min(last, len(self._heights)))


class BlockSpot(NamedTuple):
    """A place in the conversation: a line of a block, and how far into it."""

    block: TranscriptBlock
    line: int
    x: int


class BlockSelection(NamedTuple):
    start: BlockSpot | None
    end: BlockSpot | None


def find_word(text: str, index: int) -> tuple[int, int] | None:
    """Where the word begins and ends that stands there."""
    for found in re.finditer(r"[\w./:@~+-]+", text):
        if found.start() <= index < found.end():
            return found.span()
    return None


def style_selection(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """The strip with the selected part of it in the colours of what is selected."""
    text = strip.text
    start, end = span[0], len(text) if span[1] == -1 else min(span[1], len(text))
    if start >= end:
        return strip
    first, last = strip.index_to_cell_position(start), strip.index_to_cell_position(end)
    middle = Strip(Segment.apply_style(iter(strip.crop(first, last)), post_style=style))
    return Strip.join([strip.crop(0, first), middle, strip.crop(last)])


def cut_out(text: str, selection: Selection, line: int, margin: int) -> str:
    """The selected part of a line; `margin` cells before it are not text."""
    span = selection.get_span(line)
    if span is None:
        return ""
    start = max(span[0] - margin, 0)
    return text[start:].rstrip() if span[1] == -1 else text[start : max(span[1] - margin, 0)]


def move_selection(selection: Selection, start: int | None, end: int | None) -> Selection:
    """The selection on other lines."""
    first = Offset(selection.start.x, start) if selection.start is not None and start is not None else selection.start
    last = Offset(selection.end.x, end) if selection.end is not None and end is not None else selection.end
    return Selection(first, last)


_MAX_LINES = 400


class LineCache:
    """By the number of the line; one counts only as long as it is drawn from the same strip."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Strip, Strip]] = {}
        self._ground: Style | None = None

    def clear(self) -> None:
        self._lines.clear()
        self._ground = None

    def style_of(self, widget: Widget) -> Style:
        """The colours of the widget itself, which are dear to ask for."""
        if self._ground is None:
            self._ground = widget.rich_style
        return self._ground

    def find(self, strip: Strip, line: int, draw: Callable[[], Strip]) -> Strip:
        found = self._lines.get(line)
        if found is not None and found[0] is strip:
            return found[1]
        drawn = draw()
        if len(self._lines) >= _MAX_LINES:
            self._lines.clear()
        self._lines[line] = strip, drawn
        return drawn


MARGIN = 2
"""Cells at the left that belong to no block: the mark of the card that keys work on stands there."""

EXACT_BLOCKS = 40
"""As long as there are no more blocks than that all of them are painted, and the scroll bar tells the truth."""

_NOTHING = Strip([])

WARM_S = 1.0
WARM_MODULES = ("odin.ui.tui.paint.markdown", "odin.ui.tui.dialogs.permission", "odin.ui.tui.dialogs.questions")
"""What the first answer and the first question need, loaded aside when the app has been there for a moment."""

Anchor = tuple[TranscriptBlock, int]
"""A block, and on which line of the view its top is."""


class BlockView(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows one story. `following` says that it stays at the end while the story grows.

    Blocks that were never looked at have an estimated height; when one comes into view it gets its real one, and what
    is on the screen stays where it is.
    """

    DEFAULT_CSS = """
    BlockView {
        background: $background;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
        scrollbar-color: $panel;
    }
    """

    class Moved(Message):
        """The view went to the end, or left it."""

    def __init__(
        self,
        palette: Palette,
        diff: DiffStyle = "auto",
        *,
        clock: Callable[[], float] = time.time,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.palette = palette
        self.render_cache = RenderCache(palette, diff)
        self.render_cache.home = os.path.expanduser("~")  # noqa: PTH111
        self._clock = clock
        self.story = TranscriptModel()
        self._blocks: list[TranscriptBlock] = []
        self._index: dict[TranscriptBlock, int] = {}
        self._heights = BlockHeights()
        self._settling = False
        self._ticking = False
        self._loading = False
        self.following = True
        self.has_news = False
        self.title = ""

    # --- what is shown ---

    def show(self, story: TranscriptModel, *, cwd: str | None = None, title: str = "") -> None:
        """Show this story from now on, at its end. A `title` says whose it is."""
        self.story = story
        self.title = title
        if cwd is not None:
            self.render_cache.cwd = cwd
        story.take_changes()
        self.following, self.has_news = True, False
        self.rebuild()

    def set_palette(self, palette: Palette, diff: DiffStyle) -> None:
        self.palette = palette
        self.render_cache.set_palette(palette, diff)
        self.rebuild()

    def sync(self) -> None:
        """Take over what happened in the story since the last time."""
        changed, reshaped = self.story.take_changes()
        if not changed and not reshaped:
            return
        self.has_news = not self.following
        self.update_layout(self._measure_all if reshaped else lambda: self._measure(changed))

    def rebuild(self) -> None:
        self.render_cache.clear()
        self.update_layout(self._measure_all)

    def update_layout(self, measure: Callable[[], None], keep: TranscriptBlock | None = None) -> None:
        """Measure anew, and keep what is on the screen where it is: above all the block to `keep`."""
        anchors = self._find_anchors(keep)
        measure()
        self._settle(anchors)
        self.finish_layout()
        self.refresh()

    def finish_layout(self) -> None:
        """What is on the screen has its place again."""

    def repaint(self, blocks: Iterable[TranscriptBlock], keep: TranscriptBlock | None = None) -> None:
        """These blocks look different now."""
        changed = set(blocks)
        for block in changed:
            self.render_cache.invalidate(block)
        self.update_layout(lambda: self._measure(changed), keep)

    @property
    def blocks(self) -> list[TranscriptBlock]:
        return self._blocks

    # --- heights ---

    def _measure_all(self) -> None:
        self._blocks = list(self.story.blocks)
        self._index = {block: number for number, block in enumerate(self._blocks)}
        self._heights.reset([self._height_of(block) for block in self._blocks])

    def _height_of(self, block: TranscriptBlock) -> int:
        """Its height; in a long conversation about its height, when nobody has looked at it yet."""
        if len(self._blocks) <= EXACT_BLOCKS and self.render_cache.width:
            return len(self.lines_of(block))
        return self.render_cache.height_of(block)

    def _measure(self, changed: Iterable[TranscriptBlock]) -> None:
        blocks, known = self.story.blocks, len(self._blocks)
        if known > len(blocks):
            self._measure_all()
            return
        new = blocks[known:]
        for block in changed:
            index = self._index.get(block)
            if index is not None:
                self._heights.set(index, self._height_of(block))
        self._index.update((block, known + number) for number, block in enumerate(new))
        self._blocks += new
        self._heights.append([self._height_of(block) for block in new])

    def lines_of(self, block: TranscriptBlock) -> list[Strip]:
        return self.render_cache.lines_of(block, self._clock())

    # --- the view ---

    def _find_anchors(self, keep: TranscriptBlock | None) -> list[Anchor]:
        """Blocks on the screen by which one can tell that it stayed where it was, the best first."""
        top = self.scroll_offset.y
        seen = self._heights.find_range(top, self.size.height) if self._blocks else range(0)
        found = [(self._blocks[index], self._heights.top_of(index) - top) for index in seen]
        found.sort(
            key=lambda anchor: (anchor[0] is not keep, anchor[1] < 0, not self.render_cache.is_painted(anchor[0]))
        )
        return found

    def _settle(self, anchors: list[Anchor]) -> None:
        """Paint what is in view, give it its real height, and keep what is on the screen where it is."""
        if self._settling or not self.render_cache.width:
            return
        self._settling = True
        try:
            if self.following:
                self._settle_at_the_end()
            else:
                self._settle_in_place(anchors)
        finally:
            self._settling = False
        self.render_cache.evict(self.size.height + 1)
        self._keep_moving()
        self._load_images()

    def _settle_at_the_end(self) -> None:
        room, index = self.size.height, len(self._blocks)
        while index and room > 0:
            index -= 1
            height = len(self.lines_of(self._blocks[index]))
            self._heights.set(index, height)
            room -= height
        self._go_to(self._heights.total)

    def _settle_in_place(self, anchors: list[Anchor]) -> None:
        anchor = next((anchor for anchor in anchors if anchor[0] in self._index), None)
        place = self.scroll_offset.y
        for _ in range(8):
            if anchor is not None:
                place = self._heights.top_of(self._index[anchor[0]]) - anchor[1]
            place = max(0, min(place, self._heights.total - self.size.height))
            changed = False
            for index in self._heights.find_range(place, self.size.height):
                changed |= self._heights.set(index, len(self.lines_of(self._blocks[index])))
            if not changed:
                break
        self._go_to(place)

    def _go_to(self, line: int) -> None:
        size = Size(self.render_cache.width + MARGIN, self._heights.total)
        if size != self.virtual_size:
            self._grow_to(size)
        self.scroll_to(y=max(0, min(line, self.max_scroll_y)), animate=False, immediate=True)

    def _grow_to(self, size: Size) -> None:
        """Only how far one can scroll has changed: nothing on the screen has to find its place anew."""
        self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.window_virtual_size = size.height

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._settling or round(old_value) == round(new_value):
            return
        at_end = new_value >= self.max_scroll_y - 0.5
        if at_end != self.following:
            self.following = at_end
            self.has_news = self.has_news and not at_end
            self.post_message(self.Moved())
        self._settle(self._find_anchors(None) if new_value > 0 or not self._blocks else [(self._blocks[0], 0)])

    def to_end(self) -> None:
        self.following, self.has_news = True, False
        self._settle([])
        self.refresh()
        self.post_message(self.Moved())

    def reveal(self, block: TranscriptBlock, line: int = 0, *, high: bool = False) -> None:
        """Scroll as little as is needed to have this line of the block on the screen; `high` puts it near the top."""
        index = self._index.get(block)
        if index is None:
            return
        height = len(self.lines_of(block))
        self._heights.set(index, height)
        top, rows = self._heights.top_of(index), self.size.height
        start = self.scroll_offset.y
        wanted = top + line
        last = wanted if line else top + min(height, rows) - 1
        if high or wanted < start or last >= start + rows:
            self.following = False
            place = wanted - 2 if high else wanted if wanted < start else last - rows + 1
            place = max(0, place)
            self._settle([(block, top - place)])
            self.following = self.scroll_offset.y >= self.max_scroll_y
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_content_region.width - MARGIN
        if width != self.render_cache.width:
            anchors = self._find_anchors(None)
            self.render_cache.width = max(width, 1)
            self.render_cache.clear()
            self._measure_all()
            self._settle(anchors)
        else:
            self._settle(self._find_anchors(None))

    def on_mount(self) -> None:
        self.set_timer(WARM_S, self._warm)

    def _warm(self) -> None:
        self.run_worker(asyncio.to_thread(_load_warm_modules), exit_on_error=False)

    # --- what moves by itself ---

    def list_visible(self) -> list[TranscriptBlock]:
        return [self._blocks[index] for index in self._heights.find_range(self.scroll_offset.y, self.size.height)]

    def _keep_moving(self) -> None:
        if not self._ticking and self.is_attached and any(block.is_animated for block in self.list_visible()):
            self._ticking = True
            self.set_timer(SPINNER_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        moving = [block for block in self.list_visible() if block.is_animated]
        if moving:
            self.repaint(moving)

    def _load_images(self) -> None:
        if self.render_cache.thumbnails.missing and not self._loading and self.is_attached:
            self._loading = True
            self.run_worker(self._fetch_images(), exit_on_error=False)

    async def _fetch_images(self) -> None:
        gallery = self.render_cache.thumbnails
        while gallery.missing:
            key = next(iter(gallery.missing))
            gallery.store(key, await asyncio.to_thread(load_thumbnail, *key))
        self._loading = False
        self.repaint([block for block in self._blocks if isinstance(block, CallBlock | PromptBlock) and block.images])

    def block_at(self, y: int) -> tuple[TranscriptBlock, int] | None:
        """The block at a line of the view, and which of its lines that is."""
        line = self.scroll_offset.y + y
        index = self._heights.find_block(line)
        return (self._blocks[index], line - self._heights.top_of(index)) if index >= 0 else None


def _load_warm_modules() -> None:
    for name in WARM_MODULES:
        import_module(name)


_BLANK_LINE = Strip([])


class SelectableBlockView(BlockView):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._selected_span: BlockSelection | None = None
        self._line_cache = LineCache()

    def rebuild(self) -> None:
        self._line_cache.clear()
        super().rebuild()

    def finish_layout(self) -> None:
        self._move_selection()

    # --- drawing ---

    def render_line(self, y: int) -> Strip:
        line = self.scroll_offset.y + y
        index = self._heights.find_block(line)
        block = self._blocks[index] if index >= 0 else None
        lines = self.render_cache.shown_lines_of(block, self._clock()) if block is not None else []
        place = line - self._heights.top_of(index) if block is not None else 0
        strip = lines[place] if place < len(lines) else _BLANK_LINE
        overlaid = (self.title and not y) or (self.has_news and y == self.size.height - 1)
        if block is None or overlaid or self.text_selection is not None or not self.is_plain(block):
            return self._draw_strip(strip, block, place, y)
        return self._line_cache.find(strip, line, lambda: self._draw_strip(strip, block, place, y))

    def is_plain(self, block: TranscriptBlock) -> bool:
        """Whether nothing is drawn upon its lines: then one that was drawn before is as good as new."""
        return True

    def _draw_strip(self, strip: Strip, block: TranscriptBlock | None, place: int, y: int) -> Strip:
        width, line = self.render_cache.width + MARGIN, self.scroll_offset.y + y
        if block is not None:
            strip = self.decorate(strip, block, place)
            strip = Strip([self.draw_margin(block, place), *strip])
        strip = self._with_selection(strip.crop_extend(0, width, None), line)
        return self._overlay(strip, y).apply_style(self._line_cache.style_of(self)).apply_offsets(0, line)

    def notify_style_update(self) -> None:
        self._line_cache.clear()
        super().notify_style_update()

    def draw_margin(self, block: TranscriptBlock, place: int) -> Segment:
        return Segment(" " * MARGIN)

    def decorate(self, strip: Strip, block: TranscriptBlock, place: int) -> Strip:
        return strip

    def _overlay(self, strip: Strip, y: int) -> Strip:
        """Whose work is shown, at the top; that there is something new below, at the bottom."""
        width = self.render_cache.width + MARGIN
        if self.title and not y:
            head = Strip([Segment(f" {self.title}", self.palette.strong)]).crop_extend(0, width, None)
            return head.apply_style(self.palette.user_block)
        if self.has_news and y == self.size.height - 1:
            hint = Strip([Segment(" ↓ new below ", self.palette.match_here)])
            return Strip.join([strip.crop(0, max(width - hint.cell_length, 0)), hint])
        return strip

    # --- selecting ---

    def _with_selection(self, strip: Strip, line: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return strip
        return style_selection(strip, (max(span[0], MARGIN), span[1]), self.selection_style)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        total = self._heights.total
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else total - 1
        found: list[str] = []
        for line in range(max(first, 0), min(last, total - 1) + 1):
            index = self._heights.find_block(line)
            lines = self.lines_of(self._blocks[index])
            place = line - self._heights.top_of(index)
            text = lines[place].text if place < len(lines) else ""
            found.append(cut_out(text, selection, line, MARGIN))
        return "\n".join(found), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._selected_span = None
        if selection is not None:
            start, end = (self._find_spot(place.y, place.x) if place else None for place in selection)
            self._selected_span = BlockSelection(start, end)
        self.refresh()

    def _find_spot(self, line: int, x: int) -> BlockSpot | None:
        index = self._heights.find_block(line)
        return BlockSpot(self._blocks[index], line - self._heights.top_of(index), x) if index >= 0 else None

    def _line_of(self, spot: BlockSpot | None) -> int | None:
        index = self._index.get(spot.block) if spot is not None else None
        return self._heights.top_of(index) + spot.line if index is not None and spot is not None else None

    def _move_selection(self) -> None:
        """The selection goes with what is selected."""
        selection = self.text_selection if self._selected_span is not None and self.is_attached else None
        if selection is None or self._selected_span is None:
            return
        wanted = move_selection(
            selection, self._line_of(self._selected_span.start), self._line_of(self._selected_span.end)
        )
        if wanted != selection:
            self.screen.selections = {**self.screen.selections, self: wanted}
