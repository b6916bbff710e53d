"""What is known of one file: the state its bytes were in, and the lines of it that were seen.

Which agent of a session wrote a file last, so that another one that has read it is told whose change it meets.

What this agent has read of which files, kept so that it is not read twice, and whether it is still true.

An edit is only as good as the text it was planned on, so every read is remembered as it was made: the whole file or the
ranges that were really seen, with the hash of the file at that moment and the text itself as far as the limits allow.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from msgspec import Struct, field, structs

from odin.context.eviction import make_order
from odin.context.settings import CacheSettings
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


MAIN_AGENT = "the main agent"


class LastWriters:
    """One for all agents of a session."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}

    def record(self, path: str, agent: str, sha256: str) -> None:
        self._last[path] = (agent, sha256)

    def find_other_writer(self, path: str, sha256: str, reader: str) -> str:
        """The other agent that left the file with these bytes; empty when it was somebody outside the session."""
        agent, written = self._last.get(path, (reader, ""))
        return "" if agent == reader or written != sha256 else agent or MAIN_AGENT


FileStanding = Literal["unread", "stale", "changed", "current"]
"""Never read; read before this session was resumed; changed on disk since; known as it is."""


class CachedLines(Struct, frozen=True):
    """Lines from the cache, and what they are a part of."""

    lines: list[str]
    fingerprint: Fingerprint


class CacheJournal:
    """What a call did to the cache before it counts: every entry as it was first and as the call left it.

    Until it counts, nobody is told of these entries; if it never does, they are taken back.
    """

    def __init__(self) -> None:
        self.before: dict[str, FileEntry | None] = {}
        self.after: dict[str, FileEntry | None] = {}
        self.announced: dict[str, int] = {}


_journal: ContextVar[CacheJournal | None] = ContextVar("journal", default=None)


@contextmanager
def record_into(journal: CacheJournal) -> Generator[None]:
    """What this task, and the threads it starts, do to any cache goes into the journal."""
    token = _journal.set(journal)
    try:
        yield
    finally:
        _journal.reset(token)


class FileCache:
    """The files one agent knows. Keys are real paths, so a symbolic link and its target are one file.

    With `read_first` false a file may be edited that was never read; one that changed since it was read still may not.
    Every method may be called from any thread, and none looks at all the files but `listing`.
    """

    def __init__(
        self,
        settings: CacheSettings | None = None,
        *,
        read_first: bool = True,
        clock: Callable[[], float] = time.time,
        writers: LastWriters | None = None,
        agent: str = "",
    ) -> None:
        self._writers = writers or LastWriters()
        self._agent = agent
        self.settings = settings or CacheSettings()
        self.read_first = read_first
        self.now = clock
        self._entries: dict[str, FileEntry] = {}
        self._order = make_order(self.settings.eviction_policy)
        self._announced: OrderedDict[str, int] = OrderedDict()
        self._number = 0
        self._held_bytes = 0
        self._lock = threading.RLock()

    # --- recording ---

    def record_whole(
        self, path: str, seen: Fingerprint, *, text: str | None = None, truncated: bool = False, at: float | None = None
    ) -> None:
        """Every line was seen. `truncated` says that long ones were cut; `at` is when reading began."""
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
        """Only these ranges were seen; `texts` are their lines. What was known of the same bytes stays known."""
        with self._lock:
            entry = self._copy_entry(path, seen, at)
            if not entry.whole:
                entry.truncated = entry.truncated or truncated
                entry.keep_lines(ranges, texts, self._file_limit, self.settings.max_segments)
            self._store_entry(entry)

    def record_write(self, path: str, written: Fingerprint, *, text: str | None = None) -> None:
        """Odin wrote the file, so it knows all of it."""
        with self._lock:
            entry = self._copy_entry(path, written, None)
            known = self._get_entry(entry.path)
            entry.original_hash = known.original_hash if known else ""
            entry.keep_whole(text, self._file_limit)
            entry.modified, entry.truncated = True, False
            self._writers.record(entry.path, self._agent, written.sha256)
            self._store_entry(entry)

    def forget(self, path: str) -> None:
        with self._lock:
            self._remove_entry(os.path.realpath(path))

    def restore(self, files: Iterable[CachedFile]) -> None:
        """Take over what an earlier run of the session saw. What it saw in part must be read again to be edited."""
        with self._lock:
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
        """A copy of what is known of these bytes. Other bytes under the same name start from nothing."""
        key = os.path.realpath(path)
        moment = self.now() if at is None else at
        known = self._get_entry(key)
        if known is None or known.fingerprint.sha256 != seen.sha256:
            entry = self._make_entry(key, seen, moment)
            entry.modified = known is not None and known.modified
            entry.access_count = known.access_count if known else 0
            return entry
        return structs.replace(known, fingerprint=seen, seen_at=moment, stale=False, segments=known.segments.copy())

    def _store_entry(self, entry: FileEntry) -> None:
        """Make room, then put it in, with a new number when the model would be told something new about it."""
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
        """Whether it went into the journal of a call that does not count yet."""
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

    # --- calls that may not count ---

    def commit(self, journal: CacheJournal) -> None:
        """The call of this journal counts: whoever wants to know is told of what it saw and wrote."""
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
        """Know what was known before the call of this journal. What others learned since stays."""
        with self._lock:
            for path, before in journal.before.items():
                if self._entries.get(path) is not journal.after[path]:
                    continue
                self._remove_entry(path)
                if before is not None:
                    self._held_bytes += before.held_bytes
                    self._entries[path] = before
                    self._order.use(path, before.modified)
            told = {path: number for path, number in journal.announced.items() if path in self._entries}
            if told:
                self._announced = OrderedDict(sorted({**told, **self._announced}.items(), key=lambda item: item[1]))

    def _touch(self, entry: FileEntry) -> None:
        entry.last_accessed = self.now()
        entry.access_count += 1
        self._order.use(entry.path, entry.modified)

    @property
    def _file_limit(self) -> int:
        return min(self.settings.max_file_bytes, self.settings.max_bytes)

    # --- asking ---

    def find(self, path: str) -> FileEntry | None:
        """Everything about one file, unless its time is over. To look is not to use."""
        key = os.path.realpath(path)
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
        """Lines `first` to `last` or to the end, without reading the disk; None when it must be read.

        `info` is what the system says of the file now. A file that was read so soon after a change that another change
        could have left the same time stamps is not trusted until it has been read again.
        """
        with self._lock:
            entry = self.find(path)
            if entry is None or entry.stale:
                return None
            fresh = entry.fingerprint.matches(info) and entry.fingerprint.is_settled(entry.seen_at)
            if self.settings.auto_refresh and not fresh:
                return None
            lines = entry.get_lines(first, min(last, entry.fingerprint.lines))
            if lines is None:
                return None
            self._touch(entry)
            return CachedLines(lines, entry.fingerprint)

    def compare(self, path: str, sha256: str) -> FileStanding:
        """How what is known compares with the bytes that are there now."""
        entry = self.find(path)
        if entry is None:
            return "unread"
        if entry.stale:
            return "stale"
        return "current" if entry.fingerprint.sha256 == sha256 else "changed"

    def writer_of(self, path: str, sha256: str) -> str:
        """The other agent of this session that gave a file these bytes; empty when none did."""
        return self._writers.find_other_writer(os.path.realpath(path), sha256, self._agent)

    def list_unseen(self, path: str) -> list[LineSpan]:
        """The line ranges of the file that were never seen, in order. Empty when all of it was."""
        with self._lock:
            entry = self.find(path)
            return entry.list_unseen() if entry else []

    def list_segments(self, path: str) -> tuple[str, ...]:
        with self._lock:
            entry = self.find(path)
            return tuple(entry.segments) if entry else ()

    def list_parts(self, path: str) -> list[SeenPart]:
        """The lines of the file that are kept, in order."""
        with self._lock:
            entry = self.find(path)
            return entry.list_parts() if entry else []

    def get_cached_file(self, path: str) -> CachedFile | None:
        entry = self.find(path)
        return entry.to_cached_file() if entry and not entry.stale else None

    def list_files(self) -> tuple[CachedFile, ...]:
        """Every known file, by path."""
        with self._lock:
            known = [self._entries[path] for path in sorted(self._entries)]
            return tuple(entry.to_cached_file() for entry in known if not self._is_expired(entry))

    @property
    def held_bytes(self) -> int:
        """Bytes of text that are kept in all."""
        return self._held_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def take_mark(self) -> int:
        """Now, for `changed_since`."""
        return self._number

    def list_changed_since(self, mark: int) -> tuple[CachedFile, ...]:
        """The files whose standing changed after `mark` (first read, read further, written), in that order."""
        newer: list[CachedFile] = []
        with self._lock:
            for path in reversed(self._announced):
                if self._announced[path] <= mark:
                    break
                newer.append(self._entries[path].to_cached_file())
        return tuple(reversed(newer))
