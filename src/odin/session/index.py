"""What a session spent, added up by day, model, agent and purpose, so that a report need not read its log again.

One session in one line, folded from its log: what a list shows of it.

A log that grew is read from where it was left. Only lines that matter here are decoded: most of a log is replies and
results, which are passed over by their first bytes.

The list of a project's sessions, at once: a cache beside the logs of what a list shows of each.

It is never the truth. A row counts only as long as its log has the size and time it had; a row whose log is gone goes;
and a file that is missing, damaged or of another version is made anew from the logs.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from odin.core.client import SessionSummary
from odin.core.errors import PromptBlocked
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
    UsageRecorded,
)
from odin.core.message import Usage
from odin.core.usage import UsageTotals
from odin.session.lock import lock_holder_of
from odin.session.log import LOG_FORMAT, LogHeader, is_session_id
from odin.session.store import scan_logs

UsageByBucket = dict[str, UsageTotals]
"""By the four words of a `Place`, as one text."""


class UsageBucket(Struct, frozen=True):
    """What something was spent on. `day` is YYYY-MM-DD in local time; the main agent has no name."""

    day: str
    model: str
    agent: str
    purpose: str


def add_usage(spending: UsageByBucket, envelope: Envelope, event: UsageRecorded) -> None:
    words = (day_of(envelope.ts), event.model, envelope.agent, event.purpose)
    key = "\t".join(word.replace("\t", " ") for word in words)
    spending[key] = spending.get(key, UsageTotals()) + UsageTotals.from_event(event)


def parse_bucket(key: str) -> UsageBucket:
    words = key.split("\t")
    return UsageBucket(*words, *("" for _ in range(4 - len(words))))


def day_of(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def get_time_zone() -> str:
    """Where days begin and end here. Sums by day that were made elsewhere do not hold."""
    return f"{time.timezone} {'/'.join(time.tzname)}"


PREVIEW_CHARS = 80
_SUMMARY_CHARS = 2_000
_TYPE_WITHIN_BYTES = 400
"""The type of an event stands within so many bytes of its line: number, time and session come before it."""

_TYPE_MARK = b'"event":{"type":"'
_INDEXED_EVENTS = {
    kind.__name__.encode(): kind
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
}
_envelope_decoder = msgspec.json.Decoder(Envelope)
_header_decoder = msgspec.json.Decoder(LogHeader)


class IndexEntry(msgspec.Struct, array_like=True, gc=False):
    """What is known of a log up to `offset`. `size` and `mtime_ns` are the file's when it was read.

    `readable` is false for a file that is no log of ours, or of a version to come.
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
    usage: Usage = Usage()
    cost_usd: float = 0.0
    forked_seq: int = -1
    spending: UsageByBucket = msgspec.field(default_factory=dict[str, UsageTotals])
    """Without what was copied from another session, where it counts already."""


class _FullReadNeeded(Exception):
    """The conversation went back, so what was left out of the digest is needed: read the log from its beginning."""


class _IndexEntryFold:
    """Adds events to a digest. The prompts are known only when the log is read from its beginning."""

    def __init__(self, digest: IndexEntry) -> None:
        self._entry = digest
        self._is_full_read = digest.offset == 0
        self._prompts: list[tuple[str, str]] = []
        self._undone: list[tuple[list[tuple[str, str]], str]] = []

    def add_line(self, line: bytes) -> None:
        at = line.find(_TYPE_MARK, 0, _TYPE_WITHIN_BYTES)
        if at < 0:
            return
        start = at + len(_TYPE_MARK)
        kind = _INDEXED_EVENTS.get(line[start : line.find(b'"', start)])
        if kind is None:
            return
        try:
            envelope = _envelope_decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError):
            return
        if isinstance(envelope.event, UsageRecorded):
            self._add_usage(envelope.event, envelope)
        elif not envelope.agent:
            self._add_event(envelope.event)

    def _add_event(self, event: AnyEvent) -> None:
        step = _INDEX_HANDLERS.get(type(event))
        if step is not None:
            step(self, event)

    def _add_usage(self, event: UsageRecorded, envelope: Envelope) -> None:
        self._entry.usage += event.usage
        self._entry.cost_usd += event.cost_usd
        if envelope.seq > self._entry.forked_seq:
            add_usage(self._entry.spending, envelope, event)

    def _on_session_opened(self, event: SessionOpened) -> None:
        self._entry.cwd, self._entry.model = event.cwd, event.model

    def _on_title_set(self, event: TitleSet) -> None:
        self._entry.title = event.title

    def _on_model_changed(self, event: ModelChanged) -> None:
        self._entry.model = event.model

    def _on_turn_started(self, event: TurnStarted) -> None:
        if event.continues:
            return
        self._undone.clear()
        self._add_prompt(event.id, event.display_text or event.text)

    def _on_prompt_joined(self, event: PromptInjected) -> None:
        if not self._entry.turns:
            self._add_prompt(event.id, event.display_text or event.text)

    def _add_prompt(self, prompt: str, text: str) -> None:
        shown = make_preview(text)
        if self._is_full_read:
            self._prompts.append((prompt, shown))
        self._entry.turns += 1
        self._entry.first = self._entry.first or shown
        self._entry.original = self._entry.original or shown

    def _on_turn_ended(self, event: TurnEnded) -> None:
        if event.error_kind == PromptBlocked.__name__:
            self._require_full_read()
            self._keep_prompts(self._prompts[:-1])

    def _on_compacted(self, event: Compacted) -> None:
        self._require_full_read()
        self._entry.summary = event.text[:_SUMMARY_CHARS]
        if event.user_prompts:
            self._entry.first = make_preview(event.user_prompts[0])
        elif self._prompts:
            self._entry.first = self._prompts[-1][1]

    def _on_context_summarized(self, event: ContextSummarized) -> None:
        self._entry.summary = event.text[:_SUMMARY_CHARS]

    def _on_rewound(self, event: Rewound) -> None:
        self._require_full_read()
        at = [number for number, (prompt, _) in enumerate(self._prompts) if prompt == event.turn]
        self._undone.append((list(self._prompts), self._entry.first))
        if event.chat and at:
            self._keep_prompts(self._prompts[: at[-1]])

    def _on_redone(self, event: Redone) -> None:
        self._require_full_read()
        if self._undone:
            prompts, first = self._undone.pop()
            self._keep_prompts(prompts)
            self._entry.first = first

    def _require_full_read(self) -> None:
        if not self._is_full_read:
            raise _FullReadNeeded

    def _keep_prompts(self, prompts: list[tuple[str, str]]) -> None:
        self._prompts = prompts
        self._entry.turns = len(prompts)
        if not any(shown == self._entry.first for _, shown in prompts):
            self._entry.first = prompts[0][1] if prompts else ""


_INDEX_HANDLERS: dict[type[AnyEvent], Any] = {
    SessionOpened: _IndexEntryFold._on_session_opened,
    TitleSet: _IndexEntryFold._on_title_set,
    ModelChanged: _IndexEntryFold._on_model_changed,
    TurnStarted: _IndexEntryFold._on_turn_started,
    TurnEnded: _IndexEntryFold._on_turn_ended,
    PromptInjected: _IndexEntryFold._on_prompt_joined,
    Compacted: _IndexEntryFold._on_compacted,
    ContextSummarized: _IndexEntryFold._on_context_summarized,
    Rewound: _IndexEntryFold._on_rewound,
    Redone: _IndexEntryFold._on_redone,
}


def make_preview(text: str) -> str:
    line = " ".join(text[: 4 * PREVIEW_CHARS].split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


def index_entry_of(
    session: str, path: str | Path, size: int, mtime_ns: int, known: IndexEntry | None = None
) -> IndexEntry:
    """The digest of a log as it is now, from the one before when the log has only grown since."""
    if known is not None and known.readable and 0 < known.offset <= known.size < size:
        try:
            return _read_entry(msgspec.structs.replace(known), path, size, mtime_ns)
        except _FullReadNeeded:
            pass
    return _read_entry(IndexEntry(session), path, size, mtime_ns)


def _read_entry(digest: IndexEntry, path: str | Path, size: int, mtime_ns: int) -> IndexEntry:
    fold = _IndexEntryFold(digest)
    digest.size, digest.mtime_ns = size, mtime_ns
    try:
        with Path(path).open("rb") as file:
            if digest.offset:
                file.seek(digest.offset)
            elif not _apply_header(digest, file.readline()):
                return digest
            else:
                digest.offset = file.tell()
            for line in file:
                if not line.endswith(b"\n"):
                    break
                fold.add_line(line)
                digest.offset += len(line)
    except OSError:
        digest.readable = False
    return digest


def _apply_header(digest: IndexEntry, line: bytes) -> bool:
    """Take what the header says; False when it is none of ours."""
    try:
        header = _header_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        header = None
    if header is None or header.odin_log > LOG_FORMAT:
        digest.readable = False
        return False
    digest.created, digest.cwd = header.created, header.cwd
    digest.forked_from, digest.forked_seq, digest.key = header.forked_from, header.forked_seq, header.key
    return True


INDEX_NAME = ".index"
INDEX_VERSION = 2


class _IndexCache(msgspec.Struct, array_like=True):
    version: int
    rows: list[IndexEntry]
    zone: str
    """Where the days of their spending begin and end."""


class _IndexVersion(msgspec.Struct, array_like=True):
    """The beginning of the file, so that one of another version is not read with today's eyes."""

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
        """Every readable session, the one written to last first."""
        known = self._load()
        rows: list[IndexEntry] = []
        fresh = False
        for session, path, info in scan_logs(self._folder):
            if not is_session_id(session):
                continue
            row = known.pop(session, None)
            if row is None or row.size != info.st_size or row.mtime_ns != info.st_mtime_ns:
                row = index_entry_of(session, path, info.st_size, info.st_mtime_ns, row)
                fresh = True
            rows.append(row)
        if fresh or known:
            self._save(rows)
        rows.sort(key=lambda row: (-row.mtime_ns, row.id))
        return [row for row in rows if row.readable]

    def list_summaries(self) -> tuple[SessionSummary, ...]:
        """What a front end shows, with whoever has a session open."""
        rows, taken = self.list_entries(), self._find_lock_holders()
        return tuple(_session_summary_of(row, taken.get(row.id, "")) for row in rows)

    def _find_lock_holders(self) -> dict[str, str]:
        """Only sessions with an owner's file beside them are looked at."""
        owners: dict[str, str] = {}
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                session, _, suffix = entry.name.partition(".")
                if suffix == "lock" and session:
                    owners[session] = lock_holder_of(self._folder / session / "log")
        return owners

    def _load(self) -> dict[str, IndexEntry]:
        try:
            data = self._file.read_bytes()
            if _version_decoder.decode(data).version != INDEX_VERSION:
                return {}
            cache = _cache_decoder.decode(data)
            return {row.id: row for row in cache.rows} if cache.zone == get_time_zone() else {}
        except (OSError, msgspec.MsgspecError, UnicodeError):
            return {}

    def _save(self, rows: list[IndexEntry]) -> None:
        """A list that cannot be kept is still a list."""
        fresh = self._folder / f"{INDEX_NAME}-{os.getpid()}-{time.monotonic_ns():x}"
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(_cache_encoder.encode(_IndexCache(INDEX_VERSION, rows, get_time_zone())))
            fresh.replace(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()


def _session_summary_of(row: IndexEntry, locked: str) -> SessionSummary:
    return SessionSummary(
        id=row.id,
        modified=row.mtime_ns / 1e9,
        created=row.created,
        title=row.title or row.original,
        first=row.first,
        original=row.original,
        turns=row.turns,
        model=row.model,
        cwd=row.cwd,
        forked_from=row.forked_from,
        locked=locked,
        usage=row.usage,
        cost_usd=row.cost_usd,
        bytes=row.size,
    )
