"""What this agent has read of which files, kept so that it is not read twice, and whether it is still true.

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

from msgspec import Struct, structs

from odin.context.eviction import order_for
from odin.context.known import Entry, Fingerprint, Lines, Part, Segment, count_lines, digest, fingerprint
from odin.context.settings import CacheSettings
from odin.context.writers import Writers
from odin.core.event import CachedFile

__all__ = [
    "Entry",
    "FileCache",
    "Fingerprint",
    "Journal",
    "Lines",
    "Part",
    "Recalled",
    "Segment",
    "Standing",
    "count_lines",
    "digest",
    "fingerprint",
    "journaled",
]

Standing = Literal["unread", "stale", "changed", "current"]
"""Never read; read before this session was resumed; changed on disk since; known as it is."""


class Recalled(Struct, frozen=True):
    """Lines from the cache, and what they are a part of."""

    lines: list[str]
    of: Fingerprint


class Journal:
    """What a call did to the cache before it counts: every entry as it was first and as the call left it.

    Until it counts, nobody is told of these entries; if it never does, they are taken back.
    """

    def __init__(self) -> None:
        self.before: dict[str, Entry | None] = {}
        self.after: dict[str, Entry | None] = {}
        self.news: dict[str, int] = {}


_JOURNAL: ContextVar[Journal | None] = ContextVar("journal", default=None)


@contextmanager
def journaled(journal: Journal) -> Generator[None]:
    """What this task, and the threads it starts, do to any cache goes into the journal."""
    token = _JOURNAL.set(journal)
    try:
        yield
    finally:
        _JOURNAL.reset(token)


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
        writers: Writers | None = None,
        agent: str = "",
    ) -> None:
        self._writers = writers or Writers()
        self._agent = agent
        self.settings = settings or CacheSettings()
        self.read_first = read_first
        self.now = clock
        self._entries: dict[str, Entry] = {}
        self._order = order_for(self.settings.policy)
        self._news: OrderedDict[str, int] = OrderedDict()
        self._number = 0
        self._held = 0
        self._lock = threading.RLock()

    # --- recording ---

    def saw_all(
        self, path: str, seen: Fingerprint, *, text: str | None = None, truncated: bool = False, at: float | None = None
    ) -> None:
        """Every line was seen. `truncated` says that long ones were cut; `at` is when reading began."""
        with self._lock:
            entry = self._draft(path, seen, at)
            if text is not None or not entry.whole:
                entry.keep_whole(text, self._file_limit)
            entry.truncated = truncated
            self._keep(entry)

    def saw_lines(
        self,
        path: str,
        seen: Fingerprint,
        ranges: Iterable[Lines],
        *,
        texts: Sequence[str] | None = None,
        truncated: bool = False,
        at: float | None = None,
    ) -> None:
        """Only these ranges were seen; `texts` are their lines. What was known of the same bytes stays known."""
        with self._lock:
            entry = self._draft(path, seen, at)
            if not entry.whole:
                entry.truncated = entry.truncated or truncated
                entry.keep_lines(ranges, texts, self._file_limit, self.settings.max_segments)
            self._keep(entry)

    def wrote(self, path: str, written: Fingerprint, *, text: str | None = None) -> None:
        """Odin wrote the file, so it knows all of it."""
        with self._lock:
            entry = self._draft(path, written, None)
            known = self._at(entry.path)
            entry.original_hash = known.original_hash if known else ""
            entry.keep_whole(text, self._file_limit)
            entry.modified, entry.truncated = True, False
            self._writers.wrote(entry.path, self._agent, written.sha256)
            self._keep(entry)

    def forget(self, path: str) -> None:
        with self._lock:
            self._drop(os.path.realpath(path))

    def restore(self, files: Iterable[CachedFile]) -> None:
        """Take over what an earlier run of the session saw. What it saw in part must be read again to be edited."""
        with self._lock:
            for file in files:
                whole = bool(file.sha256) and not file.truncated
                seen = Fingerprint(file.size, 0, file.sha256, 0)
                entry = self._new(file.path, seen, file.cached_at)
                entry.seen_at = self.now()
                entry.whole, entry.stale = whole, not whole
                entry.modified, entry.truncated = file.modified, file.truncated
                self._keep(entry)

    def _new(self, key: str, seen: Fingerprint, at: float) -> Entry:
        return Entry(key, seen, at, at, at, seen.sha256)

    def _draft(self, path: str, seen: Fingerprint, at: float | None) -> Entry:
        """A copy of what is known of these bytes. Other bytes under the same name start from nothing."""
        key = os.path.realpath(path)
        moment = self.now() if at is None else at
        known = self._at(key)
        if known is None or known.print.sha256 != seen.sha256:
            entry = self._new(key, seen, moment)
            entry.modified = known is not None and known.modified
            entry.access_count = known.access_count if known else 0
            return entry
        return structs.replace(known, print=seen, seen_at=moment, stale=False, segments=known.segments.copy())

    def _keep(self, entry: Entry) -> None:
        """Make room, then put it in, with a new number when the model would be told something new about it."""
        before = self._entries.get(entry.path)
        self._make_room(entry, before)
        self._held += entry.held - (before.held if before else 0)
        self._entries[entry.path] = entry
        self._touch(entry)
        if not self._noted(entry.path, before, entry) and (before is None or before.public() != entry.public()):
            self._announce(entry)

    def _announce(self, entry: Entry) -> None:
        self._number += 1
        entry.number = self._number
        self._news[entry.path] = self._number
        self._news.move_to_end(entry.path)

    def _noted(self, path: str, before: Entry | None, after: Entry | None) -> bool:
        """Whether it went into the journal of a call that does not count yet."""
        journal = _JOURNAL.get()
        if journal is None:
            return False
        journal.before.setdefault(path, before)
        journal.after[path] = after
        return True

    def _make_room(self, entry: Entry, before: Entry | None) -> None:
        taken = before.held if before else 0
        while (before is None and len(self._entries) >= self.settings.max_entries) or (
            self._held - taken + entry.held > self.settings.max_bytes
        ):
            victim = self._order.victim(spare=entry.path)
            if victim is None:
                return
            self._drop(victim)

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._held -= entry.held
            self._order.drop(key)
            news = self._news.pop(key, None)
            if self._noted(key, entry, None) and news is not None and (journal := _JOURNAL.get()):
                journal.news.setdefault(key, news)

    # --- calls that may not count ---

    def count(self, journal: Journal) -> None:
        """The call of this journal counts: whoever wants to know is told of what it saw and wrote."""
        with self._lock:
            for path, after in journal.after.items():
                before = journal.before[path]
                known = after is not None and self._entries.get(path) is after
                if known and after is not None and (before is None or before.public() != after.public()):
                    self._announce(after)

    def take_back(self, journal: Journal) -> None:
        """Know what was known before the call of this journal. What others learned since stays."""
        with self._lock:
            for path, before in journal.before.items():
                if self._entries.get(path) is not journal.after[path]:
                    continue
                self._drop(path)
                if before is not None:
                    self._held += before.held
                    self._entries[path] = before
                    self._order.use(path, before.modified)
            told = {path: number for path, number in journal.news.items() if path in self._entries}
            if told:
                self._news = OrderedDict(sorted({**told, **self._news}.items(), key=lambda item: item[1]))

    def _touch(self, entry: Entry) -> None:
        entry.last_accessed = self.now()
        entry.access_count += 1
        self._order.use(entry.path, entry.modified)

    @property
    def _file_limit(self) -> int:
        return min(self.settings.max_file_bytes, self.settings.max_bytes)

    # --- asking ---

    def find(self, path: str) -> Entry | None:
        """Everything about one file, unless its time is over. To look is not to use."""
        key = os.path.realpath(path)
        with self._lock:
            return self._at(key)

    def _at(self, key: str) -> Entry | None:
        entry = self._entries.get(key)
        if entry is not None and self._expired(entry):
            self._drop(key)
            return None
        return entry

    def _expired(self, entry: Entry) -> bool:
        return 0 < self.settings.ttl_s < self.now() - entry.seen_at

    def recall(self, path: str, info: os.stat_result, first: int, last: int) -> Recalled | None:
        """Lines `first` to `last` or to the end, without reading the disk; None when it must be read.

        `info` is what the system says of the file now. A file that was read so soon after a change that another change
        could have left the same time stamps is not trusted until it has been read again.
        """
        with self._lock:
            entry = self.find(path)
            if entry is None or entry.stale:
                return None
            fresh = entry.print.fits(info) and entry.print.settled(entry.seen_at)
            if self.settings.auto_refresh and not fresh:
                return None
            lines = entry.lines(first, min(last, entry.print.lines))
            if lines is None:
                return None
            self._touch(entry)
            return Recalled(lines, entry.print)

    def standing(self, path: str, sha256: str) -> Standing:
        """How what is known compares with the bytes that are there now."""
        entry = self.find(path)
        if entry is None:
            return "unread"
        if entry.stale:
            return "stale"
        return "current" if entry.print.sha256 == sha256 else "changed"

    def modified_by(self, path: str, sha256: str) -> str:
        """The other agent of this session that gave a file these bytes; empty when none did."""
        return self._writers.of(os.path.realpath(path), sha256, self._agent)

    def unseen(self, path: str) -> list[Lines]:
        """The line ranges of the file that were never seen, in order. Empty when all of it was."""
        with self._lock:
            entry = self.find(path)
            return entry.unseen() if entry else []

    def segments(self, path: str) -> tuple[str, ...]:
        with self._lock:
            entry = self.find(path)
            return tuple(entry.segments) if entry else ()

    def parts(self, path: str) -> list[Part]:
        """The lines of the file that are kept, in order."""
        with self._lock:
            entry = self.find(path)
            return entry.parts() if entry else []

    def get(self, path: str) -> CachedFile | None:
        entry = self.find(path)
        return entry.public() if entry and not entry.stale else None

    def listing(self) -> tuple[CachedFile, ...]:
        """Every known file, by path."""
        with self._lock:
            known = [self._entries[path] for path in sorted(self._entries)]
            return tuple(entry.public() for entry in known if not self._expired(entry))

    @property
    def held(self) -> int:
        """Bytes of text that are kept in all."""
        return self._held

    def __len__(self) -> int:
        return len(self._entries)

    def mark(self) -> int:
        """Now, for `changed_since`."""
        return self._number

    def changed_since(self, mark: int) -> tuple[CachedFile, ...]:
        """The files whose standing changed after `mark` (first read, read further, written), in that order."""
        newer: list[CachedFile] = []
        with self._lock:
            for path in reversed(self._news):
                if self._news[path] <= mark:
                    break
                newer.append(self._entries[path].public())
        return tuple(reversed(newer))
