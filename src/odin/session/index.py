"""The index of a project's sessions: one entry per log with everything a session list or usage report shows.

The index file is only a cache of digests. An entry counts while its log has the recorded size and mtime; a log that
grew is read from where the last read stopped. A missing, damaged or outdated index is rebuilt from the logs. Only
events that matter here are decoded; the rest of a log, mostly replies and results, is skipped by its first bytes.

The usage of a project is the sum of its logs, plus that of deleted sessions. Before a session is deleted, its sums are
appended to `usage.jsonl` next to the sessions. They count only while the log does not exist, so an interrupted deletion
counts nothing twice. Usage that a fork copied belongs to the original.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from odin.core.call_events import UsageRecorded, UsageTotals
from odin.core.client import SessionSummary
from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextSummarized,
    Envelope,
    ModelChanged,
    PromptInjected,
    Redone,
    Rewound,
    SessionOpened,
    TitleSet,
    TurnEnded,
    TurnStarted,
)
from odin.core.timeline import Timeline, get_source
from odin.session.lock import describe_lock_holder
from odin.session.log import LOG_FORMAT, LogHeader, is_session_id, scan_logs

UsageByBucket = dict[str, UsageTotals]
"""Usage by the tab-separated fields of a `UsageBucket`."""


class UsageBucket(Struct, frozen=True):
    """`day` is YYYY-MM-DD in local time. `agent` is "" for the main agent."""

    day: str
    model: str
    agent: str
    purpose: str


def parse_bucket(key: str) -> UsageBucket:
    fields = key.split("\t")
    return UsageBucket(*fields, *("" for _ in range(4 - len(fields))))


def format_day(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(timestamp))


def get_time_zone() -> str:
    """Identify the local time zone. Sums by day from another zone are not valid here."""
    return f"{time.timezone} {'/'.join(time.tzname)}"


PREVIEW_CHARS = 80
_SUMMARY_CHARS = 2_000
_TYPE_WITHIN_BYTES = 400
"""The event type is within the first bytes of a line, after sequence number, time and session id."""

_TYPE_MARK = b'"event":{"type":"'
_INDEXED_EVENTS = frozenset(
    kind.__name__.encode()
    for kind in (
        SessionOpened,
        TitleSet,
        ModelChanged,
        TurnStarted,
        TurnEnded,
        PromptInjected,
        Compacted,
        ContextSummarized,
        Rewound,
        Redone,
        UsageRecorded,
    )
)
_envelope_decoder = msgspec.json.Decoder(Envelope)
_header_decoder = msgspec.json.Decoder(LogHeader)


class IndexEntry(msgspec.Struct, array_like=True, gc=False):
    """The digest of a log up to `offset`. `size` and `mtime_ns` are those of the file when it was read.

    `readable` is False for a file that is not an Odin log or has a newer format.
    """

    id: str
    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    readable: bool = True
    created: float = 0.0
    cwd: str = ""
    forked_from: str = ""
    key: str = ""
    title: str = ""
    first: str = ""
    original: str = ""
    summary: str = ""
    turns: int = 0
    model: str = ""
    spent: UsageTotals = UsageTotals()
    forked_seq: int = -1
    headless: bool | None = None
    """True if every run of the session was headless; None before the first."""

    spending: UsageByBucket = msgspec.field(default_factory=dict[str, UsageTotals])
    """Excludes usage copied from the original of a fork, which counts there."""


class _FullReadNeeded(Exception):
    """The new events refer to prompts that the digest does not keep, so the whole log must be read."""


_Prompts = tuple[int, str, str]
"""The number of prompts, and the previews of the first and the last one."""

_UNREAD: _Prompts = (-1, "", "")


class _IndexEntryFold:
    """Adds events to an entry. `_last` is the preview of the last prompt; "" if it was not read."""

    def __init__(self, entry: IndexEntry) -> None:
        self._entry = entry
        self._last = ""
        self._timeline = Timeline(self._capture, self._swap, _UNREAD if entry.offset else None)

    def _capture(self, seq: int) -> _Prompts:
        return self._entry.turns, self._entry.first, self._last

    def _swap(self, prompts: _Prompts) -> _Prompts:
        if prompts is _UNREAD:
            raise _FullReadNeeded
        left = self._capture(0)
        self._entry.turns, self._entry.first, self._last = prompts
        return left

    def add_line(self, line: bytes) -> None:
        mark = line.find(_TYPE_MARK, 0, _TYPE_WITHIN_BYTES)
        if mark < 0:
            return
        start = mark + len(_TYPE_MARK)
        if line[start : line.find(b'"', start)] not in _INDEXED_EVENTS:
            return
        try:
            envelope = _envelope_decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError):
            return
        if isinstance(envelope.event, UsageRecorded):
            self._add_usage(envelope.event, envelope)
        elif not envelope.agent:
            self._timeline.apply(envelope)
            self._add_event(envelope.event)

    def _add_event(self, event: AnyEvent) -> None:
        match event:
            case TurnStarted() if not event.continues and get_source(event) != "mail":
                self._add_prompt(event.body)
            case PromptInjected() if not self._entry.turns:
                self._add_prompt(event.body)
            case SessionOpened():
                self._entry.cwd, self._entry.model = event.cwd, event.model
                self._entry.headless = event.headless and self._entry.headless is not False
            case TitleSet():
                self._entry.title = event.title
            case ModelChanged():
                self._entry.model = event.model
            case Compacted():
                self._entry.summary = event.text[:_SUMMARY_CHARS]
                if event.user_prompts:
                    self._entry.first = make_preview(event.user_prompts[0])
                elif self._last:
                    self._entry.first = self._last
                elif self._entry.turns:
                    raise _FullReadNeeded
            case ContextSummarized():
                self._entry.summary = event.text[:_SUMMARY_CHARS]
            case _:
                pass

    def _add_usage(self, event: UsageRecorded, envelope: Envelope) -> None:
        spent = UsageTotals.from_event(event)
        self._entry.spent += spent
        if envelope.seq > self._entry.forked_seq:
            fields = (format_day(envelope.ts), event.model, envelope.agent, event.purpose)
            key = "\t".join(field.replace("\t", " ") for field in fields)
            self._entry.spending[key] = self._entry.spending.get(key, UsageTotals()) + spent

    def _add_prompt(self, text: str) -> None:
        self._last = make_preview(text)
        self._entry.turns += 1
        self._entry.first = self._entry.first or self._last
        self._entry.original = self._entry.original or self._last


def make_preview(text: str) -> str:
    line = " ".join(text[: 4 * PREVIEW_CHARS].split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


def read_index_entry(
    session: str, path: str | Path, size: int, mtime_ns: int, known: IndexEntry | None = None
) -> IndexEntry:
    """Return the entry of a log as it is now. Reads only the new part if the log grew since `known`."""
    if known is not None and known.readable and 0 < known.offset <= known.size < size:
        try:
            return _read_entry(msgspec.structs.replace(known), path, size, mtime_ns)
        except _FullReadNeeded:
            pass
    return _read_entry(IndexEntry(session), path, size, mtime_ns)


def _read_entry(entry: IndexEntry, path: str | Path, size: int, mtime_ns: int) -> IndexEntry:
    fold = _IndexEntryFold(entry)
    entry.size, entry.mtime_ns = size, mtime_ns
    try:
        with Path(path).open("rb") as file:
            if entry.offset:
                file.seek(entry.offset)
            elif not _apply_header(entry, file.readline()):
                return entry
            else:
                entry.offset = file.tell()
            for line in file:
                if not line.endswith(b"\n"):
                    break
                fold.add_line(line)
                entry.offset += len(line)
    except OSError:
        entry.readable = False
    return entry


def _apply_header(entry: IndexEntry, line: bytes) -> bool:
    """Copy the header fields into `entry`; False if the line is not a header this version can read."""
    try:
        header = _header_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        header = None
    if header is None or header.odin_log != LOG_FORMAT:
        entry.readable = False
        return False
    entry.created, entry.cwd = header.created, header.cwd
    entry.forked_from, entry.forked_seq, entry.key = header.forked_from, header.forked_seq, header.key
    return True


INDEX_NAME = ".index"
INDEX_VERSION = 5


class _IndexCache(msgspec.Struct, array_like=True):
    version: int
    rows: list[IndexEntry]
    zone: str
    """The time zone of the sums by day."""


class _IndexVersion(msgspec.Struct, array_like=True):
    """The first field of the file, decoded alone to detect other versions."""

    version: int


_cache_encoder = msgspec.msgpack.Encoder()
_cache_decoder = msgspec.msgpack.Decoder(_IndexCache)
_version_decoder = msgspec.msgpack.Decoder(_IndexVersion)


class SessionIndex:
    """The sessions in one project's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / INDEX_NAME

    def list_entries(self) -> list[IndexEntry]:
        """Every readable session, latest modified first."""
        known: dict[str, IndexEntry] = {}
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
            data = self._file.read_bytes()
            if _version_decoder.decode(data).version == INDEX_VERSION:
                cache = _cache_decoder.decode(data)
                if cache.zone == get_time_zone():
                    known = {row.id: row for row in cache.rows}
        rows: list[IndexEntry] = []
        is_stale = False
        for session, path, info in scan_logs(self._folder):
            if not is_session_id(session):
                continue
            row = known.pop(session, None)
            if row is None or row.size != info.st_size or row.mtime_ns != info.st_mtime_ns:
                row = read_index_entry(session, path, info.st_size, info.st_mtime_ns, row)
                is_stale = True
            rows.append(row)
        if is_stale or known:
            # Write the index. Errors are ignored: it is only a cache.
            temporary = self._folder / f"{INDEX_NAME}-{os.getpid()}-{time.monotonic_ns():x}"
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
                with os.fdopen(fd, "wb") as file:
                    file.write(_cache_encoder.encode(_IndexCache(INDEX_VERSION, rows, get_time_zone())))
                temporary.replace(self._file)
            except OSError:
                with contextlib.suppress(OSError):
                    temporary.unlink()
        rows.sort(key=lambda row: (-row.mtime_ns, row.id))
        return [row for row in rows if row.readable]

    def list_summaries(self) -> tuple[SessionSummary, ...]:
        """The sessions for a session list, each with its lock holder. Copies have titles of their own."""
        rows, holders = self.list_entries(), self._find_lock_holders()
        # The titles by session. A copy that has the title of an older session is numbered.
        titles: dict[str, str] = {}
        counts: dict[str, int] = {}
        for row in sorted(rows, key=lambda row: row.created):
            title = row.title or row.original
            counts[title] = counts.get(title, 0) + 1
            copy = counts[title] - 1 if row.forked_from and title else 0
            titles[row.id] = f"{title} (copy{f' {copy}' if copy > 1 else ''})" if copy else title
        return tuple(_make_session_summary(row, titles[row.id], holders.get(row.id, "")) for row in rows)

    def _find_lock_holders(self) -> dict[str, str]:
        """Map each session that has a lock file to its lock holder."""
        holders: dict[str, str] = {}
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                session, _, suffix = entry.name.partition(".")
                if suffix == "lock" and session:
                    holders[session] = describe_lock_holder(self._folder / session / "log")
        return holders


def _make_session_summary(row: IndexEntry, title: str, locked: str) -> SessionSummary:
    return SessionSummary(
        id=row.id,
        modified=row.mtime_ns / 1e9,
        created=row.created,
        title=title,
        first=row.first,
        original=row.original,
        turns=row.turns,
        model=row.model,
        cwd=row.cwd,
        forked_from=row.forked_from,
        locked=locked,
        usage=row.spent.usage,
        cost_usd=row.spent.known_cost_usd,
        bytes=row.size,
        headless=bool(row.headless),
    )


LEDGER_NAME = "usage.jsonl"


class UsageEntry(msgspec.Struct, frozen=True):
    """The usage of one session in one bucket. `deleted`: the session itself no longer exists."""

    session: str
    title: str
    project: str
    bucket: UsageBucket
    spent: UsageTotals
    deleted: bool = False


class LedgerLine(msgspec.Struct, frozen=True):
    """A line of the ledger: the usage of one deleted session."""

    session: str
    title: str
    project: str
    spending: UsageByBucket


_ledger_decoder = msgspec.json.Decoder(LedgerLine)


def read_usage(folder: Path) -> Iterator[UsageEntry]:
    """Yield the usage of all sessions in a project's session folder, including deleted ones."""
    rows = SessionIndex(folder).list_entries()
    for row in rows:
        yield from _make_usage_entries(_make_ledger_line(row), deleted=False)
    present = {row.id for row in rows}
    for line in _read_ledger(folder).values():
        if line.session not in present:
            yield from _make_usage_entries(line, deleted=True)


def read_ledger_line(log: Path) -> LedgerLine:
    """The ledger line for a session that is about to be deleted. Raise OSError."""
    info = log.stat()
    return _make_ledger_line(read_index_entry(log.parent.name, log, info.st_size, info.st_mtime_ns))


def record_deleted_usage(folder: Path, usage: LedgerLine) -> bool:
    """Append the usage to the project's ledger; False if it cannot be written."""
    if not usage.spending:
        return True
    try:
        fd = os.open(folder / LEDGER_NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        with os.fdopen(fd, "r+b", buffering=0) as file:
            is_torn = file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
            line = msgspec.json.encode(usage) + b"\n"
            is_complete = file.write(b"\n" + line if is_torn else line) == len(line) + is_torn
            os.fsync(fd)
    except OSError:
        return False
    return is_complete


def _make_ledger_line(row: IndexEntry) -> LedgerLine:
    return LedgerLine(row.id, row.title or row.original, row.cwd, row.spending)


def _make_usage_entries(line: LedgerLine, *, deleted: bool) -> Iterator[UsageEntry]:
    for key, spent in line.spending.items():
        yield UsageEntry(line.session, line.title, line.project, parse_bucket(key), spent, deleted)


def _read_ledger(folder: Path) -> dict[str, LedgerLine]:
    """The ledger by session; the last line of a session counts. Torn lines are skipped."""
    lines: dict[str, LedgerLine] = {}
    with contextlib.suppress(OSError), (folder / LEDGER_NAME).open("rb") as file:
        for line in file:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                decoded = _ledger_decoder.decode(line)
                lines[decoded.session] = decoded
    return lines
