"""A story on the screen. Only what is looked at is painted, so a long one scrolls like a short one."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from importlib import import_module

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from odin.core.screen import DiffStyle
from odin.ui.tui.paint.gallery import load_thumbnail
from odin.ui.tui.paint.words import SPINNER_S
from odin.ui.tui.palette import Palette
from odin.ui.tui.story.block import CallBlock, PromptBlock, TranscriptBlock
from odin.ui.tui.story.story import TranscriptModel
from odin.ui.tui.view.brush import RenderCache
from odin.ui.tui.view.heights import BlockHeights

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
