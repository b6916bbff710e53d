"""How the lines of a conversation are drawn: with a margin, with what is selected, and what lies over them."""

from typing import Any

from rich.segment import Segment
from textual.selection import Selection
from textual.strip import Strip

from odin.ui.tui.story.block import Block
from odin.ui.tui.view.drawn import Drawn
from odin.ui.tui.view.selecting import Picked, Spot, cut_out, marked, moved
from odin.ui.tui.view.view import MARGIN, View

_NOTHING = Strip([])


class Surface(View):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._picked: Picked | None = None
        self._again = Drawn()

    def begin_again(self) -> None:
        self._again.clear()
        super().begin_again()

    def settled(self) -> None:
        self._move_selection()

    # --- drawing ---

    def render_line(self, y: int) -> Strip:
        line = self.scroll_offset.y + y
        index = self._heights.at(line)
        block = self._blocks[index] if index >= 0 else None
        lines = self.brush.shown(block, self._clock()) if block is not None else []
        place = line - self._heights.top(index) if block is not None else 0
        strip = lines[place] if place < len(lines) else _NOTHING
        overlaid = (self.title and not y) or (self.news and y == self.size.height - 1)
        if block is None or overlaid or self.text_selection is not None or not self.plain(block):
            return self._drawn(strip, block, place, y)
        return self._again.find(strip, line, lambda: self._drawn(strip, block, place, y))

    def plain(self, block: Block) -> bool:
        """Whether nothing is drawn upon its lines: then one that was drawn before is as good as new."""
        return True

    def _drawn(self, strip: Strip, block: Block | None, place: int, y: int) -> Strip:
        width, line = self.brush.width + MARGIN, self.scroll_offset.y + y
        if block is not None:
            strip = self.decorated(strip, block, place)
            strip = Strip([self.margin(block, place), *strip])
        strip = self._with_selection(strip.crop_extend(0, width, None), line)
        return self._overlaid(strip, y).apply_style(self._again.ground(self)).apply_offsets(0, line)

    def notify_style_update(self) -> None:
        self._again.clear()
        super().notify_style_update()

    def margin(self, block: Block, place: int) -> Segment:
        return Segment(" " * MARGIN)

    def decorated(self, strip: Strip, block: Block, place: int) -> Strip:
        return strip

    def _overlaid(self, strip: Strip, y: int) -> Strip:
        """Whose work is shown, at the top; that there is something new below, at the bottom."""
        width = self.brush.width + MARGIN
        if self.title and not y:
            head = Strip([Segment(f" {self.title}", self.palette.strong)]).crop_extend(0, width, None)
            return head.apply_style(self.palette.user_block)
        if self.news and y == self.size.height - 1:
            hint = Strip([Segment(" ↓ new below ", self.palette.match_here)])
            return Strip.join([strip.crop(0, max(width - hint.cell_length, 0)), hint])
        return strip

    # --- selecting ---

    def _with_selection(self, strip: Strip, line: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return strip
        return marked(strip, (max(span[0], MARGIN), span[1]), self.selection_style)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        total = self._heights.total
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else total - 1
        found: list[str] = []
        for line in range(max(first, 0), min(last, total - 1) + 1):
            index = self._heights.at(line)
            lines = self.lines(self._blocks[index])
            place = line - self._heights.top(index)
            text = lines[place].text if place < len(lines) else ""
            found.append(cut_out(text, selection, line, MARGIN))
        return "\n".join(found), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._picked = None
        if selection is not None:
            start, end = (self._spot(place.y, place.x) if place else None for place in selection)
            self._picked = Picked(start, end)
        self.refresh()

    def _spot(self, line: int, x: int) -> Spot | None:
        index = self._heights.at(line)
        return Spot(self._blocks[index], line - self._heights.top(index), x) if index >= 0 else None

    def _line_of(self, spot: Spot | None) -> int | None:
        index = self._index.get(spot.block) if spot is not None else None
        return self._heights.top(index) + spot.line if index is not None and spot is not None else None

    def _move_selection(self) -> None:
        """The selection goes with what is selected."""
        selection = self.text_selection if self._picked is not None and self.is_attached else None
        if selection is None or self._picked is None:
            return
        wanted = moved(selection, self._line_of(self._picked.start), self._line_of(self._picked.end))
        if wanted != selection:
            self.screen.selections = {**self.screen.selections, self: wanted}
