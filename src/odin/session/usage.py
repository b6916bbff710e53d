"""The usage of a project: the sums of its logs, from the index, plus those of deleted sessions.

Before a session is deleted, its sums are appended to `usage.jsonl` next to the sessions. They count only while the log
does not exist, so an interrupted deletion counts nothing twice. Usage that a fork copied belongs to the original.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from odin.core.usage import UsageTotals
from odin.session.index import IndexEntry, SessionIndex, UsageBucket, UsageByBucket, index_entry_of, parse_bucket

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
        yield from _entries_of(_ledger_line_of(row), deleted=False)
    present = {row.id for row in rows}
    for line in _read_ledger(folder).values():
        if line.session not in present:
            yield from _entries_of(line, deleted=True)


def usage_of(log: Path) -> LedgerLine:
    """The ledger line for a session that is about to be deleted. Raise OSError."""
    info = log.stat()
    return _ledger_line_of(index_entry_of(log.parent.name, log, info.st_size, info.st_mtime_ns))


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


def _ledger_line_of(row: IndexEntry) -> LedgerLine:
    return LedgerLine(row.id, row.title or row.original, row.cwd, row.spending)


def _entries_of(line: LedgerLine, *, deleted: bool) -> Iterator[UsageEntry]:
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
