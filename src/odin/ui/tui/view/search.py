"""Finds words in a conversation, also in what is folded away or was never painted."""

from collections.abc import Sequence
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.ui.tui.paint.painter import search_text_of
from odin.ui.tui.story.block import TranscriptBlock


class TranscriptSearch:
    """`words` is what is looked for; `here` the block and which of its places is the current one."""

    def __init__(self) -> None:
        self.words = ""
        self.here: tuple[TranscriptBlock, int] | None = None
        self._places: list[tuple[TranscriptBlock, int]] = []

    def search_for(self, words: str, blocks: Sequence[TranscriptBlock]) -> None:
        self.words = words.casefold()
        self._places = []
        if self.words:
            for block in blocks:
                count = search_text_of(block).casefold().count(self.words)
                self._places += [(block, number) for number in range(count)]
        self.here = None

    def clear(self) -> None:
        self.search_for("", ())

    def find_next(self, step: int, near: Sequence[TranscriptBlock]) -> tuple[TranscriptBlock, int] | None:
        """The place after the current one, round and round; the first one is the next of the blocks in `near`."""
        if not self._places:
            return None
        if self.here in self._places:
            index = (self._places.index(self.here) + step) % len(self._places)
        else:
            wanted = set(near)
            start = 0 if step > 0 else len(self._places) - 1
            index = next((i for i, place in enumerate(self._places) if place[0] in wanted), start)
        self.here = self._places[index]
        return self.here

    @property
    def count_label(self) -> str:
        if not self.words:
            return ""
        if not self._places:
            return "nothing found"
        place = self._places.index(self.here) + 1 if self.here in self._places else 0
        return f"{place} of {len(self._places)}" if place else f"{len(self._places)} found"


def line_of(lines: Sequence[Strip], words: str, number: int) -> int:
    """The line with that occurrence of the words; the last with any when markup or a line's end hides some of them."""
    found = 0
    last = min(1, len(lines) - 1)
    for place, strip in enumerate(lines):
        count = strip.text.casefold().count(words)
        if count:
            found, last = found + count, place
        if found > number:
            return place
    return max(last, 0)


def highlight_matches(strip: Strip, words: str, style: Style) -> Strip:
    """The line with all its places of the words marked."""
    text = strip.text.casefold()
    if words not in text or len(text) != len(strip.text):
        return strip
    cuts: list[tuple[int, int]] = []
    at = text.find(words)
    while at >= 0:
        cuts.append((at, at + len(words)))
        at = text.find(words, at + len(words))
    found: list[Segment] = []
    start = 0
    for segment in strip:
        found += _split_segment(segment, start, cuts, style)
        start += len(segment.text)
    return Strip(found, strip.cell_length)


def _split_segment(segment: Segment, start: int, cuts: list[tuple[int, int]], style: Style) -> list[Segment]:
    end = start + len(segment.text)
    places = sorted({start, end, *(place for cut in cuts for place in cut if start < place < end)})
    pieces: list[Segment] = []
    for first, last in pairwise(places):
        inside = any(low <= first and last <= high for low, high in cuts)
        look = (segment.style or Style.null()) + style if inside else segment.style
        pieces.append(Segment(segment.text[first - start : last - start], look))
    return pieces
