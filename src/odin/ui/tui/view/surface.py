"""How the lines of a conversation are drawn: with a margin, with what is selected, and what lies over them."""

from typing import Any

from rich.segment import Segment
from textual.selection import Selection
from textual.strip import Strip

from odin.ui.tui.story.block import TranscriptBlock
from odin.ui.tui.view.drawn import LineCache
from odin.ui.tui.view.selecting import BlockSelection, BlockSpot, cut_out, move_selection, style_selection
from odin.ui.tui.view.view import MARGIN, BlockView

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
