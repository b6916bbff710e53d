"""What is known of one file: the state its bytes were in, and the lines of it that were seen."""

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from odin.core.event import CachedFile

LineSpan = tuple[int, int]
"""First and last line, counted from 1, both included."""

_TIMESTAMP_GRANULARITY_NS = 2_000_000_000
"""Two changes closer together than this may leave the same time stamps, on the coarsest file systems."""


HEAD_BYTES = 16
"""Enough to tell what kind of file it is."""


class Fingerprint(Struct, frozen=True):
    """One state of a file's bytes, of which `head` are the first. `valid` is false when some are not text.

    Without `ctime_ns` and `inode` the state cannot be recognised later without reading the file.
    """

    size: int
    lines: int
    sha256: str
    mtime_ns: int
    ctime_ns: int = 0
    inode: int = 0
    is_text: bool = True
    head: bytes = b""

    def matches(self, info: os.stat_result) -> bool:
        """Whether the file still has the time stamps, the size and the number it had."""
        now = (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
        return now == (self.size, self.mtime_ns, self.ctime_ns, self.inode)

    def is_settled(self, at: float) -> bool:
        """Whether a change after `at`, when the file was read, is sure to leave another time stamp."""
        return self.ctime_ns > 0 and at * 1e9 - max(self.mtime_ns, self.ctime_ns) > _TIMESTAMP_GRANULARITY_NS


def take_fingerprint(
    data: bytes, state: os.stat_result | int, *, lines: int | None = None, valid: bool = True
) -> Fingerprint:
    """The state of a file that holds `data`. `state` is what the system says of it, or only its time in nanoseconds.

    `lines` is given when the file is not UTF-8, where bytes cannot be counted.
    """
    count = count_lines(data) if lines is None else lines
    head = data[:HEAD_BYTES]
    if isinstance(state, int):
        return Fingerprint(len(data), count, hash_bytes(data), state, is_text=valid, head=head)
    times = state.st_mtime_ns, state.st_ctime_ns
    return Fingerprint(len(data), count, hash_bytes(data), *times, state.st_ino, valid, head)


def hash_bytes(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def encode_text(text: str | None, limit: int) -> bytes | None:
    """Text as it is kept: less memory than a string, and its size is what is counted. None beyond `limit` bytes."""
    if text is None or len(text) > limit:
        return None
    content = text.encode("utf-8", "surrogatepass")
    return content if len(content) <= limit else None


def decode_text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


class Segment(Struct, frozen=True):
    """A range of lines that was seen, with their text unless it was too much to keep. `key` is as in "100-149"."""

    first: int
    last: int
    content: bytes | None = None

    @property
    def key(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def held_bytes(self) -> int:
        return len(self.content or b"")

    def contains(self, first: int, last: int) -> bool:
        return self.first <= first and last <= self.last


class SeenPart(Struct, frozen=True):
    """Lines that were seen, in one piece."""

    first: int
    last: int
    lines: list[str]


class FileEntry(Struct):
    """One file in the cache. `whole` files were seen from the first line to the last; others have segments.

    `original_hash` is the hash before this session changed the file, `print.sha256` the one it is known by now: that is
    what an edit compares with the disk, because a change of one's own is no surprise. `truncated` says that long lines
    were shown cut; `stale` that an earlier run of the session saw a part and nothing says which.
    """

    path: str
    fingerprint: Fingerprint
    cached_at: float
    seen_at: float
    last_accessed: float
    original_hash: str
    access_count: int = 0
    whole: bool = False
    content: bytes | None = None
    segments: OrderedDict[str, Segment] = field(default_factory=OrderedDict[str, Segment])
    truncated: bool = False
    modified: bool = False
    stale: bool = False
    held_bytes: int = 0
    revision: int = 0

    def to_cached_file(self) -> CachedFile:
        partial = self.truncated or not (self.stale or self.is_complete)
        return CachedFile(
            self.path, self.fingerprint.size, self.cached_at, self.modified, partial, self.fingerprint.sha256
        )

    # --- what was seen ---

    @property
    def is_complete(self) -> bool:
        return self.whole or not self.list_unseen()

    def list_unseen(self) -> list[LineSpan]:
        """The ranges that were never seen, in order."""
        if self.whole:
            return []
        gaps: list[LineSpan] = []
        following = 1
        for segment in sorted(self.segments.values(), key=lambda part: part.first):
            if segment.first > following:
                gaps.append((following, segment.first - 1))
            following = max(following, segment.last + 1)
        if following <= self.fingerprint.lines:
            gaps.append((following, self.fingerprint.lines))
        return gaps

    # --- what is kept of it ---

    def get_lines(self, first: int, last: int) -> list[str] | None:
        """These lines if all of them are kept, alone or by several segments together."""
        if self.whole:
            return None if self.content is None else decode_text(self.content).split("\n")[first - 1 : last]
        for segment in self.segments.values():
            if segment.content is not None and segment.contains(first, last):
                return decode_text(segment.content).split("\n")[first - segment.first : last - segment.first + 1]
        for part in self.list_parts():
            if part.first <= first and last <= part.last:
                return part.lines[first - part.first : last - part.first + 1]
        return None

    def list_parts(self) -> list[SeenPart]:
        """All lines that are kept, in order; neighbours and overlaps are one part."""
        if self.whole:
            kept = None if self.content is None else decode_text(self.content).split("\n")[: self.fingerprint.lines]
            return [SeenPart(1, len(kept), kept)] if kept else []
        parts: list[SeenPart] = []
        for segment in sorted(self.segments.values(), key=lambda part: part.first):
            if segment.content is None:
                continue
            lines = decode_text(segment.content).split("\n")
            before = parts[-1] if parts else None
            if before is None or segment.first > before.last + 1:
                parts.append(SeenPart(segment.first, segment.last, lines))
            elif segment.last > before.last:
                parts[-1] = SeenPart(
                    before.first, segment.last, before.lines + lines[before.last + 1 - segment.first :]
                )
        return parts

    # --- adding to it ---

    def keep_whole(self, text: str | None, limit: int) -> None:
        """All of it was seen. Text beyond `limit` bytes is known to have been seen and not kept."""
        self.content = encode_text(text, limit)
        self.whole, self.held_bytes = True, len(self.content or b"")
        self.segments.clear()

    def keep_lines(self, ranges: Iterable[LineSpan], texts: Sequence[str] | None, limit: int, count: int) -> None:
        """Ranges of it were seen. The oldest ones are forgotten beyond `count` of them or `limit` bytes."""
        for at, (first, last) in enumerate(ranges):
            self._add_segment(Segment(first, last, encode_text(texts[at] if texts is not None else None, limit)))
        while len(self.segments) > count or (self.held_bytes > limit and len(self.segments) > 1):
            self.held_bytes -= self.segments.popitem(last=False)[1].held_bytes

    def _add_segment(self, new: Segment) -> None:
        for key, old in list(self.segments.items()):
            if old.contains(new.first, new.last) and (old.content is not None or new.content is None):
                self.segments.move_to_end(key)
                return
            if new.contains(old.first, old.last) and (new.content is not None or old.content is None):
                self.held_bytes -= self.segments.pop(key).held_bytes
        self.segments[new.key] = new
        self.held_bytes += new.held_bytes
