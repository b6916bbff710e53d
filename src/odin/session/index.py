"""The list of a project's sessions, at once: a cache beside the logs of what a list shows of each.

It is never the truth. A row counts only as long as its log has the size and time it had; a row whose log is gone goes;
and a file that is missing, damaged or of another version is made anew from the logs.
"""

import contextlib
import os
import time
from pathlib import Path

import msgspec

from odin.core.sessions import SessionSummary
from odin.session.digest import IndexEntry, index_entry_of
from odin.session.lock import lock_holder_of
from odin.session.spending import get_time_zone
from odin.session.store import is_session_id, scan_logs

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
