"""Compare the cost of a file cache operation in a small and in a full cache. Both should be equal.

`run.py` calls `rows()`; run directly, this file prints the results.
"""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from odin.context.file_cache import FileCache, Fingerprint
from odin.context.settings import CacheSettings, EvictionPolicy

FEW, MANY = 500, 50_000
_ROUNDS = 5
_CALLS = 1000
_BOUND = 2.0
_TEXT = "one line\n" * 10


class Figure(NamedTuple):
    """One row of the table: the cost with many files, and with few."""

    what: str
    value: float
    floor: float
    bound: float
    unit: str
    by_ratio: bool


class _Stat(NamedTuple):
    """The stat result of a file that has not changed recently."""

    st_size: int = len(_TEXT)
    st_mtime_ns: int = 1
    st_ctime_ns: int = 1
    st_ino: int = 1


def _seen(number: int) -> Fingerprint:
    return Fingerprint(len(_TEXT), 10, f"{number:064x}", 1, 1, 1)


def _full(policy: EvictionPolicy, entries: int) -> FileCache:
    cache = FileCache(
        CacheSettings(max_entries=entries, max_bytes=1 << 40, eviction_policy=policy), clock=lambda: 100.0
    )
    for number in range(entries):
        cache.record_whole(f"/{number}", _seen(number), text=_TEXT)
    return cache


class _Filled:
    """A full cache and the operations on it. File names are numbered on, so that every insert adds a new file."""

    def __init__(self, policy: EvictionPolicy, entries: int) -> None:
        self.cache = _full(policy, entries)
        self.entries = entries
        self.next = entries

    def get(self) -> None:
        info = _Stat()
        step = max(1, self.entries // _CALLS)
        for number in range(_CALLS):
            name = f"/{self.next - self.entries + (number * step) % self.entries}"
            self.cache.recall(name, info, 2, 5)  # pyright: ignore[reportArgumentType]

    def insert_and_evict(self) -> None:
        for number in range(self.next, self.next + _CALLS):
            self.cache.record_whole(f"/{number}", _seen(number), text=_TEXT)
        self.next += _CALLS

    def insert_and_tell(self) -> None:
        for number in range(self.next, self.next + _CALLS):
            mark = self.cache.take_mark()
            self.cache.record_whole(f"/{number}", _seen(number), text=_TEXT)
            self.cache.list_changed_since(mark)
        self.next += _CALLS


def _cost(work: Callable[[], None]) -> float:
    """Return the duration of one call in microseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) / _CALLS * 1e6


def _compare(policy: EvictionPolicy) -> list[Figure]:
    """Measure few and many files in turn and return the best round of each, because noise only adds time."""
    few, many = _Filled(policy, FEW), _Filled(policy, MANY)
    figures: list[Figure] = []
    for name in ("get", "insert_and_evict", "insert_and_tell"):
        pairs = [(_cost(getattr(few, name)), _cost(getattr(many, name))) for _ in range(_ROUNDS)]
        floor, value = (min(times) for times in zip(*pairs, strict=True))
        what = f"file cache, {policy}: {name.replace('_', ' ')}, {MANY:,} files against {FEW}"
        figures.append(Figure(what, value, floor, _BOUND, "us", True))
    return figures


def rows() -> list[Figure]:
    """Return (label, value, floor, bound, unit, by_ratio) for each operation and policy."""
    policies: tuple[EvictionPolicy, ...] = ("lfu", "hybrid")
    return [figure for policy in policies for figure in _compare(policy)]


def main() -> int:
    missed = 0
    for what, value, floor, bound, unit, _ in rows():
        ratio = value / floor
        missed += ratio > bound
        print(f"{what}: {value:.2f} {unit} against {floor:.2f} {unit}, x{ratio:.2f} (bound {bound})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
