"""The newest of many files.

Asking the system for the time of a file takes longer than listing it, so `read` runs in a thread and asks while the
list is still being printed, and only the few that are shown are put in order.
"""

import heapq
import os
import time
from collections.abc import Callable, Iterable

PathFilter = Callable[[list[str]], Iterable[str]]
"""Which of these are wanted."""


class NewestFiles:
    """Files with their times. `complete` is false when some were left out because it took too long."""

    def __init__(self, seconds: float) -> None:
        self.complete = True
        self._deadline = time.monotonic() + seconds
        self._dated: list[tuple[int, str]] = []

    @property
    def total(self) -> int:
        return len(self._dated)

    def list_newest(self, count: int) -> list[str]:
        """The newest first; those of the same age by path."""
        return [path for _, path in heapq.nsmallest(count, self._dated)]

    def read_chunks(self, next_chunk: Callable[[], bytes | None], choose: PathFilter) -> None:
        """Take paths that end with a NUL byte, in pieces of any size, until there is no further piece."""
        rest = b""
        while (piece := next_chunk()) is not None:
            whole, found, rest = (rest + piece).rpartition(b"\0")
            if found:
                self.add_paths(choose(os.fsdecode(whole).split("\0")))

    def add_paths(self, paths: Iterable[str]) -> None:
        """Files that are gone meanwhile are left out."""
        stat, keep = os.stat, self._dated.append
        for path in paths:
            try:
                keep((-stat(path).st_mtime_ns, path))
            except OSError:
                continue
        self.complete = self.complete and time.monotonic() < self._deadline
