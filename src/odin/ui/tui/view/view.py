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
from odin.ui.tui.paint.gallery import load
from odin.ui.tui.paint.words import TURN_S
from odin.ui.tui.palette import Palette
from odin.ui.tui.story.block import Block, CallBlock, PromptBlock
from odin.ui.tui.story.story import Story
from odin.ui.tui.view.brush import Brush
from odin.ui.tui.view.heights import Heights

MARGIN = 2
"""Cells at the left that belong to no block: the mark of the card that keys work on stands there."""

EXACT = 40
"""As long as there are no more blocks than that all of them are painted, and the scroll bar tells the truth."""

_NOTHING = Strip([])

WARM_S = 1.0
WARM = ("odin.ui.tui.paint.markdown", "odin.ui.tui.dialogs.permission", "odin.ui.tui.dialogs.questions")
"""What the first answer and the first question need, loaded aside when the app has been there for a moment."""

Anchor = tuple[Block, int]
"""A block, and on which line of the view its top is."""


class View(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows one story. `following` says that it stays at the end while the story grows.

    Blocks that were never looked at have an estimated height; when one comes into view it gets its real one, and what
    is on the screen stays where it is.
    """

    DEFAULT_CSS = """
    View {
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
        self.brush = Brush(palette, diff)
        self.brush.home = os.path.expanduser("~")  # noqa: PTH111
        self._clock = clock
        self.story = Story()
        self._blocks: list[Block] = []
        self._index: dict[Block, int] = {}
        self._heights = Heights()
        self._settling = False
        self._ticking = False
        self._loading = False
        self.following = True
        self.news = False
        self.title = ""

    # --- what is shown ---

    def show(self, story: Story, *, cwd: str | None = None, title: str = "") -> None:
        """Show this story from now on, at its end. A `title` says whose it is."""
        self.story = story
        self.title = title
        if cwd is not None:
            self.brush.cwd = cwd
        story.take()
        self.following, self.news = True, False
        self.begin_again()

    def recolour(self, palette: Palette, diff: DiffStyle) -> None:
        self.palette = palette
        self.brush.recolour(palette, diff)
        self.begin_again()

    def sync(self) -> None:
        """Take over what happened in the story since the last time."""
        changed, reshaped = self.story.take()
        if not changed and not reshaped:
            return
        self.news = not self.following
        self.relayout(self._measure_all if reshaped else lambda: self._measure(changed))

    def begin_again(self) -> None:
        self.brush.forget()
        self.relayout(self._measure_all)

    def relayout(self, measure: Callable[[], None], keep: Block | None = None) -> None:
        """Measure anew, and keep what is on the screen where it is: above all the block to `keep`."""
        anchors = self._anchors(keep)
        measure()
        self._settle(anchors)
        self.settled()
        self.refresh()

    def settled(self) -> None:
        """What is on the screen has its place again."""

    def repaint(self, blocks: Iterable[Block], keep: Block | None = None) -> None:
        """These blocks look different now."""
        changed = set(blocks)
        for block in changed:
            self.brush.drop(block)
        self.relayout(lambda: self._measure(changed), keep)

    @property
    def blocks(self) -> list[Block]:
        return self._blocks

    # --- heights ---

    def _measure_all(self) -> None:
        self._blocks = list(self.story.blocks)
        self._index = {block: number for number, block in enumerate(self._blocks)}
        self._heights.begin([self._height(block) for block in self._blocks])

    def _height(self, block: Block) -> int:
        """Its height; in a long conversation about its height, when nobody has looked at it yet."""
        if len(self._blocks) <= EXACT and self.brush.width:
            return len(self.lines(block))
        return self.brush.height(block)

    def _measure(self, changed: Iterable[Block]) -> None:
        blocks, known = self.story.blocks, len(self._blocks)
        if known > len(blocks):
            self._measure_all()
            return
        new = blocks[known:]
        for block in changed:
            index = self._index.get(block)
            if index is not None:
                self._heights.set(index, self._height(block))
        self._index.update((block, known + number) for number, block in enumerate(new))
        self._blocks += new
        self._heights.append([self._height(block) for block in new])

    def lines(self, block: Block) -> list[Strip]:
        return self.brush.lines(block, self._clock())

    # --- the view ---

    def _anchors(self, keep: Block | None) -> list[Anchor]:
        """Blocks on the screen by which one can tell that it stayed where it was, the best first."""
        top = self.scroll_offset.y
        seen = self._heights.within(top, self.size.height) if self._blocks else range(0)
        found = [(self._blocks[index], self._heights.top(index) - top) for index in seen]
        found.sort(key=lambda anchor: (anchor[0] is not keep, anchor[1] < 0, not self.brush.is_painted(anchor[0])))
        return found

    def _settle(self, anchors: list[Anchor]) -> None:
        """Paint what is in view, give it its real height, and keep what is on the screen where it is."""
        if self._settling or not self.brush.width:
            return
        self._settling = True
        try:
            if self.following:
                self._settle_at_the_end()
            else:
                self._settle_in_place(anchors)
        finally:
            self._settling = False
        self.brush.tidy(self.size.height + 1)
        self._keep_moving()
        self._load_pictures()

    def _settle_at_the_end(self) -> None:
        room, index = self.size.height, len(self._blocks)
        while index and room > 0:
            index -= 1
            height = len(self.lines(self._blocks[index]))
            self._heights.set(index, height)
            room -= height
        self._go_to(self._heights.total)

    def _settle_in_place(self, anchors: list[Anchor]) -> None:
        anchor = next((anchor for anchor in anchors if anchor[0] in self._index), None)
        place = self.scroll_offset.y
        for _ in range(8):
            if anchor is not None:
                place = self._heights.top(self._index[anchor[0]]) - anchor[1]
            place = max(0, min(place, self._heights.total - self.size.height))
            changed = False
            for index in self._heights.within(place, self.size.height):
                changed |= self._heights.set(index, len(self.lines(self._blocks[index])))
            if not changed:
                break
        self._go_to(place)

    def _go_to(self, line: int) -> None:
        size = Size(self.brush.width + MARGIN, self._heights.total)
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
            self.news = self.news and not at_end
            self.post_message(self.Moved())
        self._settle(self._anchors(None) if new_value > 0 or not self._blocks else [(self._blocks[0], 0)])

    def to_end(self) -> None:
        self.following, self.news = True, False
        self._settle([])
        self.refresh()
        self.post_message(self.Moved())

    def reveal(self, block: Block, line: int = 0, *, high: bool = False) -> None:
        """Scroll as little as is needed to have this line of the block on the screen; `high` puts it near the top."""
        index = self._index.get(block)
        if index is None:
            return
        height = len(self.lines(block))
        self._heights.set(index, height)
        top, rows = self._heights.top(index), self.size.height
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
        if width != self.brush.width:
            anchors = self._anchors(None)
            self.brush.width = max(width, 1)
            self.brush.forget()
            self._measure_all()
            self._settle(anchors)
        else:
            self._settle(self._anchors(None))

    def on_mount(self) -> None:
        self.set_timer(WARM_S, self._warm)

    def _warm(self) -> None:
        self.run_worker(asyncio.to_thread(_load), exit_on_error=False)

    # --- what moves by itself ---

    def in_view(self) -> list[Block]:
        return [self._blocks[index] for index in self._heights.within(self.scroll_offset.y, self.size.height)]

    def _keep_moving(self) -> None:
        if not self._ticking and self.is_attached and any(block.moving for block in self.in_view()):
            self._ticking = True
            self.set_timer(TURN_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        moving = [block for block in self.in_view() if block.moving]
        if moving:
            self.repaint(moving)

    def _load_pictures(self) -> None:
        if self.brush.gallery.wanted and not self._loading and self.is_attached:
            self._loading = True
            self.run_worker(self._pictures(), exit_on_error=False)

    async def _pictures(self) -> None:
        gallery = self.brush.gallery
        while gallery.wanted:
            key = next(iter(gallery.wanted))
            gallery.keep(key, await asyncio.to_thread(load, *key))
        self._loading = False
        self.repaint([block for block in self._blocks if isinstance(block, CallBlock | PromptBlock) and block.images])

    def block_at(self, y: int) -> tuple[Block, int] | None:
        """The block at a line of the view, and which of its lines that is."""
        line = self.scroll_offset.y + y
        index = self._heights.at(line)
        return (self._blocks[index], line - self._heights.top(index)) if index >= 0 else None


def _load() -> None:
    for name in WARM:
        import_module(name)
