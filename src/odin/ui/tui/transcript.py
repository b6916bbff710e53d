"""The transcript widget: draws the blocks of one agent, scrolls them, and handles keys and mouse on its cards.

A frame moves no widget: when an answer grows, only the range of the scroll bar changes. Lines are drawn as painted with
the last frame, because the block heights belong to that frame.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from functools import partialmethod
from typing import ClassVar, cast

from msgspec import Struct
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
from odin.ui.transcript.blocks import (
    AgentBlock,
    AnswerBlock,
    CallBlock,
    EndBlock,
    ProcessBlock,
    PromptBlock,
    TranscriptBlock,
)
from odin.ui.transcript.model import TranscriptModel
from odin.ui.transcript.words import is_folded
from odin.ui.tui.keys import KeyScope, KeyTable, dispatch_key
from odin.ui.tui.paint.canvas import SPINNER_S, load_thumbnail
from odin.ui.tui.paint.painter import RenderCache, can_fold, choose_fold, get_copy_text
from odin.ui.tui.palette import Palette
from odin.ui.tui.search import SearchBar, TranscriptSearch, find_match_line, highlight_matches
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.timers import call_after
from odin.ui.tui.transcript_layout import (
    Anchor,
    BlockLayout,
    BlockSelection,
    LineCache,
    find_word_at,
    get_selected_text,
    move_selection,
    select_blocks,
    style_selection,
)

MARGIN = 2
"""Cells at the left of every line; the card cursor is drawn there."""

_BLANK_LINE = Strip([])


class AgentTitle(Struct, frozen=True):
    """The heading over the transcript of a sub-agent: its name in its color, and what it is about."""

    agent: str
    color: str
    about: str


class TranscriptView(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows one `TranscriptModel`.

    `following`: stay at the end while the transcript grows. `has_news`: something was added below while scrolled up.
    `cursor`: the card that keys act on; marked in the margin in card mode, while the transcript has the focus. A click
    moves the cursor but leaves the keyboard to the composer.
    """

    FOCUS_ON_CLICK = False
    KEY_SCOPE: ClassVar[KeyScope] = "transcript"

    DEFAULT_CSS = """
    TranscriptView {
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
        """The view reached the end, or left it."""

    class OutputWanted(Message):
        """The card of a background process was unfolded."""

        def __init__(self, block: ProcessBlock) -> None:
            super().__init__()
            self.block = block

    class EditRequested(Message):
        """The user wants to edit this prompt and continue from there in a fork."""

        def __init__(self, turn: str) -> None:
            super().__init__()
            self.turn = turn

    def __init__(
        self,
        keys: KeyTable,
        palette: Palette,
        diff: DiffStyle = "auto",
        *,
        clock: Callable[[], float] = time.time,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._keys = keys
        self.palette = palette
        self.render_cache = RenderCache(palette, diff)
        self.render_cache.home = os.path.expanduser("~")  # noqa: PTH111
        self.block_layout = BlockLayout(self.render_cache, clock)
        self.model = TranscriptModel()
        self.following = True
        self.has_news = False
        self.title: AgentTitle | None = None
        self.cursor: TranscriptBlock | None = None
        self._is_settling = False
        self._is_ticking = False
        self._is_loading = False
        self._line_cache = LineCache()
        self._selected_blocks: BlockSelection | None = None
        self._search = TranscriptSearch()
        self._auto_unfolded: tuple[TranscriptBlock, bool | None] | None = None
        self._revealed: tuple[TranscriptBlock, int] | None = None

    @property
    def _odin(self) -> SessionApp:
        return cast(SessionApp, self.app)

    @property
    def blocks(self) -> list[TranscriptBlock]:
        return self.block_layout.blocks

    # --- content ---

    def show(self, model: TranscriptModel, *, cwd: str | None = None, title: AgentTitle | None = None) -> None:
        """Show the end of this model. A `title` is drawn over the first row."""
        self.cursor = None
        self._search.clear()
        self.model = model
        self.title = title
        if cwd is not None:
            self.render_cache.cwd = cwd
        model.take_changes()
        self.following, self.has_news = True, False
        self._revealed = None
        self.rebuild()

    def set_palette(self, palette: Palette, diff: DiffStyle) -> None:
        self.palette = palette
        self.render_cache.set_palette(palette, diff)
        self.rebuild()

    def sync(self) -> None:
        """Lay out the blocks that changed since the last call."""
        changed, reshaped = self.model.take_changes()
        if not changed and not reshaped:
            return
        self.has_news = not self.following
        self._update_layout(self._measure_all if reshaped else lambda: self._measure(changed))

    def rebuild(self) -> None:
        self._line_cache.clear()
        self.render_cache.clear()
        self._update_layout(self._measure_all)

    def repaint(self, blocks: Iterable[TranscriptBlock], keep: TranscriptBlock | None = None) -> None:
        """Paint these blocks again; `keep` stays on its row if it can."""
        changed = set(blocks)
        for block in changed:
            self.render_cache.invalidate(block)
        self._update_layout(lambda: self._measure(changed), keep)

    def _measure_all(self) -> None:
        self.block_layout.measure_all(self.model.blocks)

    def _measure(self, changed: Iterable[TranscriptBlock]) -> None:
        self.block_layout.measure(self.model.blocks, changed)

    def _update_layout(self, measure: Callable[[], None], keep: TranscriptBlock | None = None) -> None:
        anchors = self._find_anchors(keep)
        measure()
        self._settle(anchors)
        self._move_selection()
        self.refresh()

    # --- scrolling ---

    def _find_anchors(self, keep: TranscriptBlock | None = None) -> list[Anchor]:
        return self.block_layout.find_anchors(self.scroll_offset.y, self.size.height, keep)

    def _settle(self, anchors: list[Anchor]) -> None:
        """Paint the visible blocks, replace their estimated heights, and keep the best anchor on its row."""
        if self._is_settling or not self.render_cache.width:
            return
        self._is_settling = True
        try:
            rows = self.size.height
            if self.following:
                self.block_layout.settle_at_end(rows)
                self._go_to(self.block_layout.heights.total)
            else:
                self._go_to(self.block_layout.settle_in_place(anchors, self.scroll_offset.y, rows))
        finally:
            self._is_settling = False
        self.render_cache.evict(self.size.height + 1)
        if not self._is_ticking and self.is_attached and any(block.is_animated for block in self.list_visible()):
            self._is_ticking = True
            call_after(self, SPINNER_S, self._tick)
        if self.render_cache.thumbnails.missing and not self._is_loading and self.is_attached:
            self._is_loading = True
            self.run_worker(self._load_missing_images(), exit_on_error=False)

    def _go_to(self, line: int) -> None:
        size = Size(self.render_cache.width + MARGIN, self.block_layout.heights.total)
        if size != self.virtual_size:
            # Set the virtual size without Textual's layout pass: only the scroll range changes.
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
            if self.show_vertical_scrollbar:
                self.vertical_scrollbar.window_virtual_size = size.height
        self.scroll_to(y=max(0, min(line, self.max_scroll_y)), animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._is_settling or round(old_value) == round(new_value):
            return
        self._revealed = None
        at_end = new_value >= self.max_scroll_y - 0.5
        if at_end != self.following:
            self.following = at_end
            self.has_news = self.has_news and not at_end
            self.post_message(self.Moved())
        self._settle(self._find_anchors() if new_value > 0 or not self.blocks else [Anchor(self.blocks[0], 0)])

    def to_end(self) -> None:
        self.following, self.has_news = True, False
        self._settle([])
        self.refresh()
        self.post_message(self.Moved())

    def reveal(self, block: TranscriptBlock, line: int = 0) -> None:
        """Scroll as little as possible to make this line of the block visible. It stays so if the view shrinks."""
        index = self.block_layout.index.get(block)
        if index is None:
            return
        self._revealed = block, line
        height, _ = self.block_layout.measure_exactly(index)
        top, rows, start = self.block_layout.heights.get_top(index), self.size.height, self.scroll_offset.y
        target = top + line
        last = target if line else top + min(height, rows) - 1
        if target < start or last >= start + rows:
            self.following = False
            place = max(0, target if target < start else last - rows + 1)
            self._settle([Anchor(block, top - place)])
            self.following = self.scroll_offset.y >= self.max_scroll_y
        self.refresh()

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        """Lay out for a new size at once: Textual draws it before the event arrives."""
        is_changed = super()._size_updated(size, virtual_size, container_size, layout)
        if is_changed:
            self._fit()
        return is_changed

    def on_resize(self, event: events.Resize) -> None:
        self._fit()
        self.refresh()

    def _fit(self) -> None:
        width = self.scrollable_content_region.width - MARGIN
        anchors = self._find_anchors()
        if width != self.render_cache.width:
            self.render_cache.width = max(width, 1)
            self.render_cache.clear()
            self._measure_all()
        self._settle(anchors)
        if self._revealed is not None and not self.following:
            self.reveal(*self._revealed)

    # --- animation and images ---

    def list_visible(self) -> list[TranscriptBlock]:
        return self.block_layout.list_visible(self.scroll_offset.y, self.size.height)

    def _tick(self) -> None:
        self._is_ticking = False
        animated = [block for block in self.list_visible() if block.is_animated]
        if animated:
            self.repaint(animated)

    async def _load_missing_images(self) -> None:
        thumbnails = self.render_cache.thumbnails
        while thumbnails.missing:
            key = next(iter(thumbnails.missing))
            thumbnails.store(key, await asyncio.to_thread(load_thumbnail, *key))
        self._is_loading = False
        self.repaint([block for block in self.blocks if isinstance(block, CallBlock | PromptBlock) and block.images])

    # --- drawing ---

    def render_line(self, y: int) -> Strip:
        line = self.scroll_offset.y + y
        located = self.block_layout.block_at(line)
        if located is None:
            return self._draw_line(_BLANK_LINE, None, 0, y)
        block, place = located
        lines = self.block_layout.get_painted_lines(block)
        strip = lines[place] if place < len(lines) else _BLANK_LINE
        if self._has_overlay(y) or self.text_selection is not None or not self._is_plain(block):
            return self._draw_line(strip, block, place, y)
        return self._line_cache.get_or_draw(strip, line, lambda: self._draw_line(strip, block, place, y))

    def _is_plain(self, block: TranscriptBlock) -> bool:
        """True if the block has neither search matches nor the cursor, so that its drawn lines can be cached."""
        return not self._search.words and not (block is self.cursor and self.has_focus)

    def _has_overlay(self, y: int) -> bool:
        return (self.title is not None and not y) or (self.has_news and y == self.size.height - 1)

    def _draw_line(self, strip: Strip, block: TranscriptBlock | None, place: int, y: int) -> Strip:
        width, line = self.render_cache.width + MARGIN, self.scroll_offset.y + y
        if block is not None:
            strip = Strip([self._draw_margin(block, place), *self._highlight(strip, block, place)])
        strip = self._draw_selection(strip.crop_extend(0, width, None), line)
        return self._draw_overlay(strip, y).apply_style(self._line_cache.get_style(self)).apply_offsets(0, line)

    def _draw_margin(self, block: TranscriptBlock, place: int) -> Segment:
        if block is self.cursor and self.has_focus and place >= self.block_layout.get_gap(block):
            return Segment("▌ ", self.palette.cursor)
        return Segment(" " * MARGIN)

    def _highlight(self, strip: Strip, block: TranscriptBlock, place: int) -> Strip:
        words, here = self._search.words, self._search.here
        if not words:
            return strip
        lines = self.block_layout.get_lines(block)
        current = here is not None and here[0] is block and find_match_line(lines, words, here[1]) == place
        return highlight_matches(strip, words, self.palette.match_here if current else self.palette.match)

    def _draw_selection(self, strip: Strip, line: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return strip
        # The text color of Textual's selection is transparent, which Rich would paint as the background.
        style = self.palette.text + Style(bgcolor=self.selection_style.bgcolor, dim=False)
        return style_selection(strip, (max(span[0], MARGIN), span[1]), style)

    def _draw_overlay(self, strip: Strip, y: int) -> Strip:
        """Draw the title over the first row and the hint at new blocks over the last one."""
        width = self.render_cache.width + MARGIN
        if (title := self.title) is not None and not y:
            palette = self.palette
            name = Segment(f" {title.agent}", palette.strong + palette.get_agent_style(title.agent, title.color))
            head = Strip([name, Segment(f": {title.about}", palette.strong)]).crop_extend(0, width, None)
            return head.apply_style(palette.user_block)
        if self.has_news and y == self.size.height - 1:
            hint = Strip([Segment(" ↓ new below ", self.palette.match_here)])
            return Strip.join([strip.crop(0, max(width - hint.cell_length, 0)), hint])
        return strip

    def notify_style_update(self) -> None:
        self._line_cache.clear()
        super().notify_style_update()

    def on_focus(self) -> None:
        if self.cursor not in self.block_layout.index:
            self.cursor = self._find_last_visible()
        self._redraw_mode()

    def on_blur(self) -> None:
        self._redraw_mode()

    def _redraw_mode(self) -> None:
        """Card mode began or ended, or its cursor has moved: redraw the cursor and the hint line."""
        self.refresh()
        self._odin.request_frame()

    # --- text selection ---

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return get_selected_text(self.block_layout, selection, MARGIN), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._selected_blocks = select_blocks(self.block_layout, selection) if selection is not None else None
        self.refresh()

    def _move_selection(self) -> None:
        """Move the selection to the lines where the selected text is now."""
        if self._selected_blocks is None or not self.is_attached or (selection := self.text_selection) is None:
            return
        moved = move_selection(self.block_layout, selection, self._selected_blocks)
        if moved != selection:
            self.screen.selections = {**self.screen.selections, self: moved}

    # --- cards ---

    def _list_cards(self) -> list[TranscriptBlock]:
        return [block for block in self.blocks if not (isinstance(block, EndBlock) and not block.error)]

    def _find_last_visible(self) -> TranscriptBlock | None:
        cards = set(self._list_cards())
        return next((block for block in reversed(self.list_visible()) if block in cards), None)

    def _step_cursor(self, step: int) -> None:
        cards = self._list_cards()
        if not cards:
            return
        if self.cursor in cards:
            place = cards.index(self.cursor) + step
        else:
            here = self._find_last_visible()
            place = cards.index(here) if here is not None else len(cards) - 1
        self.point_at(cards[max(0, min(place, len(cards) - 1))])

    def point_at(self, block: TranscriptBlock) -> None:
        """Move the cursor to this card and scroll it into view."""
        self.cursor = block
        self.reveal(block)
        self._redraw_mode()

    action_next_card = partialmethod(_step_cursor, 1)
    action_previous_card = partialmethod(_step_cursor, -1)

    def action_first_card(self) -> None:
        cards = self._list_cards()
        if cards:
            self.point_at(cards[0])

    def action_last_card(self) -> None:
        cards = self._list_cards()
        if cards:
            self.point_at(cards[-1])
            self.to_end()

    def toggle(self, block: TranscriptBlock) -> None:
        """Fold or unfold the block. Its first line stays on its row unless the unfolded block needs the room."""
        if can_fold(block):
            block.folded = choose_fold(block)
            if self.following and not block.folded:
                self.following = False
            self.repaint([block], keep=block)
            if not block.folded:
                self.reveal(block)
                if isinstance(block, ProcessBlock):
                    self.post_message(self.OutputWanted(block))

    def action_fold(self) -> None:
        if self.cursor is not None:
            self.toggle(self.cursor)

    def action_fold_all(self) -> None:
        """Unfold all blocks, or fold all if none is folded."""
        blocks = [block for block in self.blocks if can_fold(block)]
        fold = not any(is_folded(block) for block in blocks)
        for block in blocks:
            block.folded = fold
        self.repaint(blocks, keep=self.cursor)

    def action_copy_card(self) -> None:
        if self.cursor is not None:
            self._odin.copy_to_clipboard(get_copy_text(self.cursor))
            self._odin.show_toast("Copied.")

    def action_edit_prompt(self) -> None:
        """Edit the prompt under the cursor, or the last one above it."""
        if self.cursor not in self.block_layout.index:
            return
        before = self.blocks[: self.block_layout.index[self.cursor] + 1]
        prompts = (block for block in reversed(before) if isinstance(block, PromptBlock) and not block.is_mail)
        prompt = next(prompts, None)
        if prompt is not None:
            self.post_message(self.EditRequested(prompt.key))

    async def action_open_agent(self) -> None:
        """Show the transcript of the agent that the card is about."""
        if isinstance(self.cursor, AgentBlock):
            await self.run_action(f"app.show_agent({self.cursor.key!r})")
        else:
            self._odin.show_toast("This card is not about an agent.")

    # --- search ---

    def action_search(self) -> None:
        self.screen.query_one(SearchBar).open(self._update_search)

    def _update_search(self, words: str, done: bool) -> None:
        """Search for `words`; `done` when the user pressed Enter."""
        bar = self.screen.query_one(SearchBar)
        self._search.search_for(words, self.model.blocks)
        self._find_match(1)
        bar.show_count(self._search.count_label)
        if done:
            self.focus()
            if not words:
                bar.close()
        self.refresh()

    def _go_to_match(self, step: int) -> None:
        here = self._search.here
        self._search.search_for(self._search.words, self.model.blocks)
        self._search.here = here
        self._find_match(step)
        self.screen.query_one(SearchBar).show_count(self._search.count_label)

    action_next_match = partialmethod(_go_to_match, 1)
    action_previous_match = partialmethod(_go_to_match, -1)

    def _find_match(self, step: int) -> None:
        match = self._search.find_next(step, self.list_visible())
        if match is None:
            self._restore_fold(None)
            return
        block, number = match
        self._restore_fold(block)
        if can_fold(block) and (is_folded(block) or block.folded is None):
            self._auto_unfolded = block, block.folded
            block.folded = False
            self.repaint([block])
        self.cursor = block
        self.reveal(block, find_match_line(self.block_layout.get_lines(block), self._search.words, number))

    def _restore_fold(self, current: TranscriptBlock | None) -> None:
        """Fold the block that was unfolded only to show a match, unless it is the `current` one."""
        if self._auto_unfolded is not None and self._auto_unfolded[0] is not current:
            block, folded = self._auto_unfolded
            self._auto_unfolded = None
            block.folded = folded
            self.repaint([block])

    # --- keys and mouse ---

    async def _on_key(self, event: events.Key) -> None:
        if self._search.words and self._keys.find_action(event.key, "everywhere") == "stop":
            event.stop()
            event.prevent_default()
            self._search.clear()
            self._auto_unfolded = None
            self.screen.query_one(SearchBar).close()
            self.refresh()
        elif not await dispatch_key(self, self._keys, event, self.KEY_SCOPE):
            await super()._on_key(event)

    def on_click(self, event: events.Click) -> None:
        located = self.block_layout.block_at(self.scroll_offset.y + event.y)
        if located is None:
            return
        block, place = located
        if event.chain == 2:
            event.prevent_default()
            lines = self.block_layout.get_lines(block)
            span = find_word_at(lines[place], event.x - MARGIN) if place < len(lines) else None
            if span is not None:
                line = self.scroll_offset.y + event.y
                selection = Selection(Offset(span[0] + MARGIN, line), Offset(span[1] + MARGIN, line))
                self.screen.selections = {self: selection}
        elif event.chain == 1 and not self.screen.get_selected_text():
            self.cursor = block
            if place == self.block_layout.get_gap(block) and not isinstance(block, PromptBlock | AnswerBlock):
                self.toggle(block)
            self.refresh()
