"""The files an agent has read: their text, the lines seen, and whether they are still current.

An edit is only as good as the text it was planned on, so every read is recorded as it was made: the whole file or the
ranges that were seen, the file's hash at that moment, and the text as far as the limits allow. The cache also records
which agent wrote a file last.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from msgspec import Struct, field, structs

from odin.context.eviction import EvictionOrder
from odin.context.settings import CacheSettings
from odin.core.event_values import CachedFile
from odin.core.path_names import resolve_links

LineSpan = tuple[int, int]
"""First and last line, 1-based, both included."""

_TIMESTAMP_GRANULARITY_NS = 2_000_000_000
"""Two changes closer together than this may get the same timestamp on coarse file systems."""


HEAD_BYTES = 16
"""Enough to detect the file type."""


class Fingerprint(Struct, frozen=True):
    """One state of a file's content; `head` holds its first bytes. `is_text` is False if some bytes are not text.

    `ctime_ns` and `inode` are needed to recognize this state by stat alone.
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
        """True if the file still has the same timestamps, size and inode."""
        now = (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
        return now == (self.size, self.mtime_ns, self.ctime_ns, self.inode)

    @property
    def has_fine_timestamps(self) -> bool:
        """True if the file system tells apart changes within a second."""
        return self.mtime_ns % 1_000_000_000 != 0 and self.ctime_ns % 1_000_000_000 != 0

    def is_settled(self, at: float) -> bool:
        """True if the last change was long enough before `at` that any later one gets another timestamp."""
        return self.ctime_ns > 0 and at * 1e9 - max(self.mtime_ns, self.ctime_ns) > _TIMESTAMP_GRANULARITY_NS


def take_fingerprint(data: bytes, info: os.stat_result, *, lines: int | None = None, valid: bool = True) -> Fingerprint:
    """Return the fingerprint of a file that contains `data` and has this stat result.

    `lines` is given if the file is not UTF-8 and lines cannot be counted in bytes.
    """
    count = count_lines(data) if lines is None else lines
    times = info.st_mtime_ns, info.st_ctime_ns
    return Fingerprint(len(data), count, hash_bytes(data), *times, info.st_ino, valid, data[:HEAD_BYTES])


def hash_bytes(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def encode_text(text: str | None, limit: int) -> bytes | None:
    """Return the text as bytes, which take less memory than a string; None beyond `limit` bytes."""
    if text is None or len(text) > limit:
        return None
    content = text.encode("utf-8", "surrogatepass")
    return content if len(content) <= limit else None


def decode_text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


class Segment(Struct, frozen=True):
    """A range of lines that was seen, with their text unless too long. `key` looks like "100-149"."""

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
    """Consecutive lines that were seen."""

    first: int
    last: int
    lines: list[str]


class FileEntry(Struct):
    """One file in the cache. Files seen from first to last line are `whole`; others have segments.

    `fingerprint` is updated by Odin's own writes, `original_hash` is not. `truncated`: long lines were shown cut.
    `stale`: an earlier run of the session saw a part, but it is unknown which. `written`: the fingerprint was taken as
    Odin wrote the file.
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
    written: bool = False
    held_bytes: int = 0
    revision: int = 0

    def to_cached_file(self) -> CachedFile:
        partial = self.truncated or not (self.stale or self.is_complete)
        return CachedFile(
            self.path, self.fingerprint.size, self.cached_at, self.modified, partial, self.fingerprint.sha256
        )

    # --- seen lines ---

    @property
    def is_complete(self) -> bool:
        return self.whole or not self.list_unseen()

    def list_unseen(self) -> list[LineSpan]:
        """Return the ranges that were never seen, in order."""
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

    # --- cached text ---

    def get_lines(self, first: int, last: int) -> list[str] | None:
        """Return these lines if all of them are cached, in one segment or several."""
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
        """Return all cached lines in order, with adjacent and overlapping ranges merged."""
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

    # --- updates ---

    def keep_whole(self, text: str | None, limit: int) -> None:
        """Mark the whole file as seen. Text beyond `limit` bytes is not kept."""
        self.content = encode_text(text, limit)
        self.whole, self.held_bytes = True, len(self.content or b"")
        self.segments.clear()

    def keep_lines(self, ranges: Iterable[LineSpan], texts: Sequence[str] | None, limit: int, count: int) -> None:
        """Mark ranges as seen. Beyond `count` ranges or `limit` bytes, the oldest are dropped."""
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


MAIN_AGENT = "the main agent"


class FileOwnership:
    """Which agent wrote a file last; shared by all agents of a session."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}

    def record(self, path: str, agent: str, sha256: str) -> None:
        self._last[path] = (agent, sha256)


FileStanding = Literal["unread", "out_of_view", "stale", "changed", "current"]
"""How a file's content compares with what the agent has read.

`unread`: never read. `out_of_view`: the agent knew this content, but it is no longer part of its conversation. `stale`:
only a part was read before the session was resumed. `changed`: changed on disk since it was read. `current`: unchanged.
"""


class CachedLines(Struct, frozen=True):
    """Lines from the cache and the file state they belong to."""

    lines: list[str]
    fingerprint: Fingerprint


class CacheJournal(Struct):
    """The cache changes of a speculative call: each entry before and after the call.

    They are announced when the call is committed, and reverted if it is rolled back.
    """

    before: dict[str, FileEntry | None] = {}
    after: dict[str, FileEntry | None] = {}
    announced: dict[str, int] = {}


_journal: ContextVar[CacheJournal | None] = ContextVar("journal", default=None)


@contextmanager
def record_into(journal: CacheJournal) -> Generator[None]:
    """Record cache changes of this task and its threads in the journal."""
    token = _journal.set(journal)
    try:
        yield
    finally:
        _journal.reset(token)


class FileCache:
    """The files one agent knows. Keys are real paths, so a symbolic link and its target are one file.

    With `read_first=False` a file may be edited without having been read; a file that changed since it was read must
    always be read again. All methods are thread-safe, and only `list_files` visits every file.
    """

    def __init__(
        self,
        settings: CacheSettings | None = None,
        *,
        read_first: bool = True,
        clock: Callable[[], float] = time.time,
        ownership: FileOwnership | None = None,
        agent: str = "",
    ) -> None:
        self._ownership = ownership or FileOwnership()
        self._agent = agent
        self.settings = settings or CacheSettings()
        self.read_first = read_first
        self.now = clock
        self._entries: dict[str, FileEntry] = {}
        self._hashes_out_of_view: dict[str, str] = {}
        self._order = EvictionOrder(self.settings.eviction_policy)
        self._announced: OrderedDict[str, int] = OrderedDict()
        self._number = 0
        self._held_bytes = 0
        self._lock = threading.RLock()

    # --- recording ---

    def record_whole(
        self, path: str, seen: Fingerprint, *, text: str | None = None, truncated: bool = False, at: float | None = None
    ) -> None:
        """Record that every line was seen. `truncated`: long lines were cut; `at`: when reading started."""
        with self._lock:
            entry = self._copy_entry(path, seen, at)
            if text is not None or not entry.whole:
                entry.keep_whole(text, self._file_limit)
            entry.truncated = truncated
            self._store_entry(entry)

    def record_lines(
        self,
        path: str,
        seen: Fingerprint,
        ranges: Iterable[LineSpan],
        *,
        texts: Sequence[str] | None = None,
        truncated: bool = False,
        at: float | None = None,
    ) -> None:
        """Record that these ranges were seen; `texts` are their lines. Earlier ranges of the same content stay."""
        with self._lock:
            entry = self._copy_entry(path, seen, at)
            if not entry.whole:
                entry.truncated = entry.truncated or truncated
                entry.keep_lines(ranges, texts, self._file_limit, self.settings.max_segments)
            self._store_entry(entry)

    def record_write(self, path: str, written: Fingerprint, *, text: str | None = None) -> None:
        """Record that Odin wrote the file and thus knows all of it."""
        with self._lock:
            entry = self._copy_entry(path, written, None)
            known = self._get_entry(entry.path)
            entry.original_hash = known.original_hash if known else ""
            entry.keep_whole(text, self._file_limit)
            entry.modified, entry.truncated, entry.written = True, False, written.has_fine_timestamps
            self._ownership.record(entry.path, self._agent, written.sha256)
            self._store_entry(entry)

    def forget(self, path: str) -> None:
        with self._lock:
            key = resolve_links(path)
            self._remove_entry(key)
            self._hashes_out_of_view.pop(key, None)

    def forget_all(self) -> None:
        with self._lock:
            self._hashes_out_of_view.clear()
            for key in list(self._entries):
                self._remove_entry(key)

    def keep_in_view(self, paths: Collection[str]) -> None:
        """`paths` are still in the conversation; of all other files keep only the hash."""
        with self._lock:
            for key in [key for key in self._entries if key not in paths]:
                self._hashes_out_of_view[key] = self._entries[key].fingerprint.sha256
                self._remove_entry(key)

    def restore(self, files: Iterable[CachedFile], out_of_view: Iterable[tuple[str, str]] = ()) -> None:
        """Restore what an earlier run saw. Files seen in part must be read again before they are edited.

        `out_of_view` are the paths and hashes of files whose content had left the conversation.
        """
        with self._lock:
            self._hashes_out_of_view.update(out_of_view)
            for file in files:
                whole = bool(file.sha256) and not file.truncated
                seen = Fingerprint(file.size, 0, file.sha256, 0)
                entry = self._make_entry(file.path, seen, file.cached_at)
                entry.seen_at = self.now()
                entry.whole, entry.stale = whole, not whole
                entry.modified, entry.truncated = file.modified, file.truncated
                self._store_entry(entry)

    def _make_entry(self, key: str, seen: Fingerprint, at: float) -> FileEntry:
        return FileEntry(key, seen, at, at, at, seen.sha256)

    def _copy_entry(self, path: str, seen: Fingerprint, at: float | None) -> FileEntry:
        """Return a copy of the entry for this content. If the content differs, return an empty entry."""
        key = resolve_links(path)
        moment = self.now() if at is None else at
        known = self._get_entry(key)
        if known is None or known.fingerprint.sha256 != seen.sha256:
            entry = self._make_entry(key, seen, moment)
            entry.modified = known is not None and known.modified
            entry.access_count = known.access_count if known else 0
            return entry
        segments = known.segments.copy()
        return structs.replace(known, fingerprint=seen, seen_at=moment, stale=False, written=False, segments=segments)

    def _store_entry(self, entry: FileEntry) -> None:
        """Make room, store the entry and mark it changed, for `list_changed_since`, if it differs from before."""
        before = self._entries.get(entry.path)
        self._make_room(entry, before)
        self._held_bytes += entry.held_bytes - (before.held_bytes if before else 0)
        self._entries[entry.path] = entry
        self._touch(entry)
        if not self._note_in_journal(entry.path, before, entry) and (
            before is None or before.to_cached_file() != entry.to_cached_file()
        ):
            self._announce(entry)

    def _announce(self, entry: FileEntry) -> None:
        self._number += 1
        entry.revision = self._number
        self._announced[entry.path] = self._number
        self._announced.move_to_end(entry.path)

    def _note_in_journal(self, path: str, before: FileEntry | None, after: FileEntry | None) -> bool:
        """Return True if the change went into the journal of a speculative call."""
        journal = _journal.get()
        if journal is None:
            return False
        journal.before.setdefault(path, before)
        journal.after[path] = after
        return True

    def _make_room(self, entry: FileEntry, before: FileEntry | None) -> None:
        taken = before.held_bytes if before else 0
        while (before is None and len(self._entries) >= self.settings.max_entries) or (
            self._held_bytes - taken + entry.held_bytes > self.settings.max_bytes
        ):
            victim = self._order.pick_victim(spare=entry.path)
            if victim is None:
                return
            self._remove_entry(victim)

    def _remove_entry(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._held_bytes -= entry.held_bytes
            self._order.drop(key)
            news = self._announced.pop(key, None)
            if self._note_in_journal(key, entry, None) and news is not None and (journal := _journal.get()):
                journal.announced.setdefault(key, news)

    # --- speculative calls ---

    def commit(self, journal: CacheJournal) -> None:
        """Announce the changes of a committed call."""
        with self._lock:
            for path, after in journal.after.items():
                before = journal.before[path]
                known = after is not None and self._entries.get(path) is after
                if (
                    known
                    and after is not None
                    and (before is None or before.to_cached_file() != after.to_cached_file())
                ):
                    self._announce(after)

    def rollback(self, journal: CacheJournal) -> None:
        """Revert the changes of this journal. Entries that changed again since are left alone."""
        with self._lock:
            for path, before in journal.before.items():
                if self._entries.get(path) is not journal.after[path]:
                    continue
                self._remove_entry(path)
                if before is not None:
                    self._held_bytes += before.held_bytes
                    self._entries[path] = before
                    self._order.use(path, before.modified)
            announced = {path: number for path, number in journal.announced.items() if path in self._entries}
            if announced:
                self._announced = OrderedDict(
                    sorted({**announced, **self._announced}.items(), key=lambda item: item[1])
                )

    def _touch(self, entry: FileEntry) -> None:
        entry.last_accessed = self.now()
        entry.access_count += 1
        self._order.use(entry.path, entry.modified)

    @property
    def _file_limit(self) -> int:
        return min(self.settings.max_file_bytes, self.settings.max_bytes)

    # --- queries ---

    def find(self, path: str) -> FileEntry | None:
        """Return the entry of a file unless it has expired. Does not count as a use."""
        key = resolve_links(path)
        with self._lock:
            return self._get_entry(key)

    def _get_entry(self, key: str) -> FileEntry | None:
        entry = self._entries.get(key)
        if entry is not None and self._is_expired(entry):
            self._remove_entry(key)
            return None
        return entry

    def _is_expired(self, entry: FileEntry) -> bool:
        return 0 < self.settings.ttl_s < self.now() - entry.seen_at

    def recall(self, path: str, info: os.stat_result, first: int, last: int) -> CachedLines | None:
        """Return lines `first` to `last` (or to the end) without reading the disk; None if the file must be read.

        `info` is the file's current stat result. A file read so soon after a change that another change could have the
        same timestamp is not trusted until it is read again. What Odin wrote itself is trusted at once.
        """
        with self._lock:
            entry = self.find(path)
            if entry is None or entry.stale:
                return None
            seen = entry.fingerprint
            fresh = seen.matches(info) and (entry.written or seen.is_settled(entry.seen_at))
            if self.settings.auto_refresh and not fresh:
                return None
            lines = entry.get_lines(first, min(last, entry.fingerprint.lines))
            if lines is None:
                return None
            self._touch(entry)
            return CachedLines(lines, entry.fingerprint)

    def compare(self, path: str, sha256: str) -> FileStanding:
        """Return how the cached state compares with the content that has this hash."""
        entry = self.find(path)
        if entry is None:
            known = self._hashes_out_of_view.get(resolve_links(path), "")
            return "out_of_view" if known == sha256 else "unread"
        if entry.stale:
            return "stale"
        return "current" if entry.fingerprint.sha256 == sha256 else "changed"

    def find_writer(self, path: str, sha256: str) -> str:
        """Return the other agent of this session that wrote this content; empty if none did."""
        # The other agent that wrote this content; empty if it came from outside the session.
        agent, written = self._ownership._last.get(resolve_links(path), (self._agent, ""))
        return "" if agent == self._agent or written != sha256 else agent or MAIN_AGENT

    def list_unseen(self, path: str) -> list[LineSpan]:
        """Return the line ranges that were never seen, in order."""
        with self._lock:
            entry = self.find(path)
            return entry.list_unseen() if entry else []

    def list_segments(self, path: str) -> tuple[str, ...]:
        with self._lock:
            entry = self.find(path)
            return tuple(entry.segments) if entry else ()

    def list_parts(self, path: str) -> list[SeenPart]:
        """Return the cached lines of the file, in order."""
        with self._lock:
            entry = self.find(path)
            return entry.list_parts() if entry else []

    def get_cached_file(self, path: str) -> CachedFile | None:
        entry = self.find(path)
        return entry.to_cached_file() if entry and not entry.stale else None

    def list_files(self) -> tuple[CachedFile, ...]:
        """Return every known file, sorted by path."""
        with self._lock:
            known = [self._entries[path] for path in sorted(self._entries)]
            return tuple(entry.to_cached_file() for entry in known if not self._is_expired(entry))

    @property
    def held_bytes(self) -> int:
        """The size of all cached text in bytes."""
        return self._held_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def take_mark(self) -> int:
        """Return a mark for `list_changed_since`."""
        return self._number

    def list_changed_since(self, mark: int) -> tuple[CachedFile, ...]:
        """Return the files first read, read further or written after `mark`, oldest change first."""
        newer: list[CachedFile] = []
        with self._lock:
            for path in reversed(self._announced):
                if self._announced[path] <= mark:
                    break
                newer.append(self._entries[path].to_cached_file())
        return tuple(reversed(newer))
