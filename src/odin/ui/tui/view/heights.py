"""Where the blocks of a conversation stand: how high each is, and on which line it begins."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate


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
