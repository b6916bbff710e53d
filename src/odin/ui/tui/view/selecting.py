"""What is selected with the mouse, held by the blocks it is in, so that it goes where they go."""

import re
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.selection import Selection
from textual.strip import Strip

from odin.ui.tui.story.block import TranscriptBlock


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
