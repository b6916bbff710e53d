"""What this agent has seen of which files, and whether that is still true.

An edit is only as good as the text it was planned on, so every read is remembered: the whole file or the line ranges
that were really shown, with the hash of the file at that moment. The bytes themselves stay on disk.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from odin.core.event import CachedFile

Standing = Literal["unread", "stale", "changed", "current"]
"""Never read; read before this session was resumed; changed on disk since; known as it is."""

Lines = tuple[int, int]
"""First and last line, counted from 1, both included."""


class Fingerprint(Struct, frozen=True):
    """One state of a file's bytes."""

    size: int
    lines: int
    sha256: str
    mtime_ns: int


def fingerprint(data: bytes, mtime_ns: int) -> Fingerprint:
    return Fingerprint(len(data), count_lines(data), digest(data), mtime_ns)


def digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


class Segment(Struct, frozen=True):
    """A range of lines that was shown. `key` is its name, as in "100-149"."""

    first: int
    last: int

    @property
    def key(self) -> str:
        return f"{self.first}-{self.last}"


class _Entry(Struct):
    path: str
    print: Fingerprint
    cached_at: float
    number: int = 0
    full: bool = False
    truncated: bool = False
    modified: bool = False
    stale: bool = False
    segments: dict[str, Segment] = {}

    def public(self) -> CachedFile:
        partial = self.truncated or not (self.full or self.stale)
        return CachedFile(self.path, self.print.size, self.cached_at, self.modified, partial, self.print.sha256)


class FileCache:
    """The files one agent knows. Keys are real paths, so a symbolic link and its target are one file.

    The least recently used file is forgotten when there are too many, the oldest range when one file has too many.
    With `read_first` false a file may be edited that was never read; one that changed since it was read still may not.
    """

    def __init__(
        self,
        *,
        read_first: bool = True,
        max_entries: int = 500,
        max_segments: int = 50,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.read_first = read_first
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._max_entries = max_entries
        self._max_segments = max_segments
        self._clock = clock
        self._number = 0

    # --- recording ---

    def saw_all(self, path: str, seen: Fingerprint, *, truncated: bool = False) -> None:
        """Every line was shown. `truncated` says that long lines were cut."""
        entry = self._entry(path, seen)
        entry.full, entry.truncated = True, truncated
        entry.segments.clear()
        self._keep(entry)

    def saw_lines(self, path: str, seen: Fingerprint, ranges: Iterable[Lines], *, truncated: bool = False) -> None:
        """Only these lines were shown. What was already known of the same bytes stays known."""
        entry = self._entry(path, seen)
        entry.truncated = entry.truncated or truncated
        for first, last in () if entry.full else ranges:
            segment = Segment(first, last)
            entry.segments.pop(segment.key, None)
            entry.segments[segment.key] = segment
        while len(entry.segments) > self._max_segments:
            del entry.segments[next(iter(entry.segments))]
        entry.full = not _gaps(entry)
        self._keep(entry)

    def wrote(self, path: str, written: Fingerprint) -> None:
        """Odin wrote the file, so it knows all of it."""
        entry = self._entry(path, written)
        entry.full, entry.modified, entry.truncated = True, True, False
        entry.segments.clear()
        self._keep(entry)

    def forget(self, path: str) -> None:
        self._entries.pop(os.path.realpath(path), None)

    def restore(self, files: Iterable[CachedFile]) -> None:
        """Take over what an earlier run of the session saw. What it saw in part must be read again to be edited."""
        for file in files:
            whole = bool(file.sha256) and not file.truncated
            entry = _Entry(file.path, Fingerprint(file.size, 0, file.sha256, 0), file.cached_at, full=whole)
            entry.modified, entry.truncated, entry.stale = file.modified, file.truncated, not whole
            self._keep(entry)

    def _entry(self, path: str, seen: Fingerprint) -> _Entry:
        """A copy of what is known of these bytes. Other bytes under the same name start from nothing."""
        key = os.path.realpath(path)
        known = self._entries.get(key)
        if known is None or known.print.sha256 != seen.sha256:
            return _Entry(key, seen, self._clock(), modified=known is not None and known.modified)
        return msgspec.structs.replace(known, print=seen, segments=dict(known.segments))

    def _keep(self, entry: _Entry) -> None:
        """Put it last in line, with a new number when the model would be told something new about it."""
        before = self._entries.pop(entry.path, None)
        if before is None or before.public() != entry.public():
            self._number += 1
            entry.number = self._number
        self._entries[entry.path] = entry
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    # --- asking ---

    def standing(self, path: str, sha256: str) -> Standing:
        """How what is known compares with the bytes that are there now."""
        entry = self._entries.get(os.path.realpath(path))
        if entry is None:
            return "unread"
        if entry.stale:
            return "stale"
        return "current" if entry.print.sha256 == sha256 else "changed"

    def unseen(self, path: str) -> list[Lines]:
        """The line ranges of the file that were never shown, in order. Empty when all of it was."""
        entry = self._entries.get(os.path.realpath(path))
        return _gaps(entry) if entry else []

    def segments(self, path: str) -> tuple[str, ...]:
        entry = self._entries.get(os.path.realpath(path))
        return tuple(entry.segments) if entry else ()

    def get(self, path: str) -> CachedFile | None:
        entry = self._entries.get(os.path.realpath(path))
        return entry.public() if entry and not entry.stale else None

    def listing(self) -> tuple[CachedFile, ...]:
        """Every known file, by path."""
        return tuple(self._entries[path].public() for path in sorted(self._entries))

    def mark(self) -> int:
        """Now, for `changed_since`."""
        return self._number

    def changed_since(self, mark: int) -> tuple[CachedFile, ...]:
        """The files whose standing changed after `mark` (first read, read further, written), in that order."""
        newer = sorted((entry for entry in self._entries.values() if entry.number > mark), key=lambda e: e.number)
        return tuple(entry.public() for entry in newer)


def _gaps(entry: _Entry) -> list[Lines]:
    if entry.full:
        return []
    gaps: list[Lines] = []
    following = 1
    for segment in sorted(entry.segments.values(), key=lambda part: part.first):
        if segment.first > following:
            gaps.append((following, segment.first - 1))
        following = max(following, segment.last + 1)
    if following <= entry.print.lines:
        gaps.append((following, entry.print.lines))
    return gaps
