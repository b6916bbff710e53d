"""The conversation: its story on the screen, and what keys and the mouse do with its cards.

Looking at the conversation: moving among its cards, and at another agent's work.
"""

from typing import TYPE_CHECKING, cast

from rich.segment import Segment
from textual import events
from textual.geometry import Offset
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from odin.core.tui_settings import DiffStyle
from odin.ui.tui.block_view import MARGIN, SelectableBlockView, find_word
from odin.ui.tui.blocks import AnswerBlock, EndBlock, PromptBlock, TranscriptBlock
from odin.ui.tui.keys import KeyTable, dispatch_key
from odin.ui.tui.paint.painter import can_fold, choose_fold, copy_text_of, is_folded
from odin.ui.tui.paint.sanitize import sanitize_line
from odin.ui.tui.palette import Palette
from odin.ui.tui.search import SearchBar, TranscriptSearch, highlight_matches, line_of
from odin.ui.tui.transcript_model import TranscriptModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from odin.ui.tui.app import OdinApp


class TranscriptView(SelectableBlockView):
    """`cursor` is the card that keys work on; it has a mark in the margin while the conversation has the focus."""

    class EditRequested(Message):
        """The person wants to say this prompt in another way and to go on from there."""

        def __init__(self, turn: str) -> None:
            super().__init__()
            self.turn = turn

    def __init__(
        self,
        keys: KeyTable,
        palette: Palette,
        diff: DiffStyle = "auto",
        *,
        clock: "Callable[[], float] | None" = None,
        id: str | None = None,
    ) -> None:
        if clock is None:
            super().__init__(palette, diff, id=id)
        else:
            super().__init__(palette, diff, clock=clock, id=id)
        self._keys = keys
        self._search = TranscriptSearch()
        self._auto_unfolded: tuple[TranscriptBlock, bool | None] | None = None
        self.cursor: TranscriptBlock | None = None

    @property
    def _odin(self) -> "OdinApp":
        return cast("OdinApp", self.app)

    def show(self, story: TranscriptModel, *, cwd: str | None = None, title: str = "") -> None:
        self.cursor = None
        self._search.clear()
        super().show(story, cwd=cwd, title=title)

    # --- drawing ---

    def draw_margin(self, block: TranscriptBlock, place: int) -> Segment:
        if block is self.cursor and self.has_focus and place:
            return Segment("▌ ", self.palette.cursor)
        return super().draw_margin(block, place)

    def is_plain(self, block: TranscriptBlock) -> bool:
        return not self._search.words and not (block is self.cursor and self.has_focus)

    def decorate(self, strip: Strip, block: TranscriptBlock, place: int) -> Strip:
        words, here = self._search.words, self._search.here
        if not words:
            return strip
        current = here is not None and here[0] is block and line_of(self.lines_of(block), words, here[1]) == place
        return highlight_matches(strip, words, self.palette.match_here if current else self.palette.match)

    def on_focus(self) -> None:
        if self.cursor not in self._index:
            self.cursor = self._find_last_visible()
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

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
        """The card that keys work on, in view."""
        self.cursor = block
        self.reveal(block)

    def action_next_card(self) -> None:
        self._step_cursor(1)

    def action_previous_card(self) -> None:
        self._step_cursor(-1)

    def action_first_card(self) -> None:
        cards = self._list_cards()
        if cards:
            self.point_at(cards[0])

    def action_last_card(self) -> None:
        cards = self._list_cards()
        if cards:
            self.cursor = cards[-1]
            self.to_end()

    def toggle(self, block: TranscriptBlock) -> None:
        """Fold it, or unfold it; its head stays where it is unless what comes to light would have no room."""
        if can_fold(block):
            block.folded = choose_fold(block)
            if self.following and not block.folded:
                self.following = False
            self.repaint([block], keep=block)
            if not block.folded:
                self.reveal(block)

    def action_fold(self) -> None:
        if self.cursor is not None:
            self.toggle(self.cursor)

    def action_fold_all(self) -> None:
        """Unfold all, or fold all when there is nothing left to unfold."""
        blocks = [block for block in self.blocks if can_fold(block)]
        fold = not any(is_folded(block) for block in blocks)
        for block in blocks:
            block.folded = fold
        self.repaint(blocks, keep=self.cursor)

    def action_copy_card(self) -> None:
        if self.cursor is not None:
            self._odin.copy_to_clipboard(copy_text_of(self.cursor))
            self._odin.show_toast("Copied.")

    def action_edit_prompt(self) -> None:
        """The prompt under the cursor, or the one that led to what is there."""
        if self.cursor not in self._index:
            return
        before = self.blocks[: self._index[self.cursor] + 1]
        prompt = next((block for block in reversed(before) if isinstance(block, PromptBlock)), None)
        if prompt is not None:
            self.post_message(self.EditRequested(prompt.key))

    def action_write(self) -> None:
        self._odin.composer.focus()

    async def action_stats(self) -> None:
        await self.run_action("app.stats")

    async def action_help_here(self) -> None:
        await self.run_action("app.help")

    async def action_quit(self) -> None:
        await self.run_action("app.quit")

    # --- searching ---

    def action_search(self) -> None:
        self.screen.query_one(SearchBar).open(self._update_search)

    def _update_search(self, words: str, done: bool) -> None:
        """Other words were typed; with `done` they are final."""
        bar = self.screen.query_one(SearchBar)
        self._search.search_for(words, self.story.blocks)
        self._find_match(1)
        bar.show_count(self._search.count_label)
        if done:
            self.focus()
            if not words:
                bar.close()
        self.refresh()

    def action_next_match(self) -> None:
        self._go_to_match(1)

    def action_previous_match(self) -> None:
        self._go_to_match(-1)

    def _go_to_match(self, step: int) -> None:
        here = self._search.here
        self._search.search_for(self._search.words, self.story.blocks)
        self._search.here = here
        self._find_match(step)
        self.screen.query_one(SearchBar).show_count(self._search.count_label)

    def _find_match(self, step: int) -> None:
        found = self._search.find_next(step, self.list_visible())
        if found is None:
            self._fold_again(None)
            return
        block, number = found
        self._fold_again(block)
        if can_fold(block) and (is_folded(block) or block.folded is None):
            self._auto_unfolded = block, block.folded
            block.folded = False
            self.repaint([block])
        self.cursor = block
        self.reveal(block, line_of(self.lines_of(block), self._search.words, number))

    def _fold_again(self, block: TranscriptBlock | None) -> None:
        """What was unfolded only to show a place in it is folded as before when that is elsewhere."""
        if self._auto_unfolded is not None and self._auto_unfolded[0] is not block:
            last, before = self._auto_unfolded
            self._auto_unfolded = None
            last.folded = before
            self.repaint([last])

    # --- keys and mouse ---

    async def _on_key(self, event: events.Key) -> None:
        if self._search.words and self._keys.find_action(event.key, "everywhere") == "stop":
            event.stop()
            event.prevent_default()
            self._search.clear()
            self._auto_unfolded = None
            self.screen.query_one(SearchBar).close()
            self.refresh()
        elif not await dispatch_key(self, self._keys, event, "transcript"):
            await super()._on_key(event)

    def on_click(self, event: events.Click) -> None:
        found = self.block_at(event.y)
        if found is None:
            return
        block, place = found
        if event.chain == 2:
            event.prevent_default()
            self._select_word(event.x, event.y)
        elif event.chain == 1 and not self.screen.get_selected_text():
            self.cursor = block
            if place == 1 and not isinstance(block, PromptBlock | AnswerBlock):
                self.toggle(block)
            self.refresh()

    def _select_word(self, x: int, y: int) -> None:
        found = self.block_at(y)
        if found is None:
            return
        block, place = found
        lines = self.lines_of(block)
        text = lines[place].text if place < len(lines) else ""
        cells = [lines[place].index_to_cell_position(index) for index in range(len(text))] if text else []
        index = next((i for i in range(len(cells) - 1, -1, -1) if cells[i] <= x - MARGIN), -1)
        span = find_word(text, index)
        if span is not None:
            line = self.scroll_offset.y + y
            selection = Selection(Offset(span[0] + MARGIN, line), Offset(span[1] + MARGIN, line))
            self.screen.selections = {self: selection}


def focus_cards(app: "OdinApp") -> None:
    """From the composer to the last card."""
    app.transcript.focus()
    if app.transcript.cursor is None:
        app.transcript.action_last_card()


def show_next_agent(app: "OdinApp") -> None:
    """Show the work of the next agent; after the last one comes the main one again."""
    app.agent = app.transcripts.find_next(app.agent)
    show_agent(app)


def show_agent(app: "OdinApp") -> None:
    agent = app.agent
    title = ""
    if agent:
        key = app.keys.label_of("next_agent")
        task = next((block.task for block in app.transcripts[""].agents if block.key == agent), "")
        title = f"{sanitize_line(agent)} at work: {sanitize_line(task)}  ({key}: the next one)"
    app.transcript.show(app.transcripts[agent], title=title)


def go_to_agent(app: "OdinApp", agent: str) -> None:
    """Show the work of this one."""
    if agent in app.transcripts:
        app.agent = agent
        show_agent(app)
        app.request_frame()


def go_to_change(app: "OdinApp", call_id: str) -> None:
    """Show the card of the call that changed a file, in the story of whoever made it."""
    for agent, story in app.transcripts.items():
        block = next((block for block in reversed(story.blocks) if block.key == call_id), None)
        if block is not None:
            if agent != app.agent:
                go_to_agent(app, agent)
            app.transcript.focus()
            app.transcript.point_at(block)
            return
    app.show_toast("What changed this file is not on the screen: a command did it, or it was rewound.")
