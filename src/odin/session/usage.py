"""What was spent in a project: the sums of its logs, and of sessions that are gone.

The logs are the truth, and the index keeps their sums. Before a session is deleted, its sums are written to
`usage.jsonl` beside the sessions: what was paid stays paid. They count as long as the log itself is not there, so
a deletion that was cut off between the two counts nothing twice. What a fork was copied from belongs to the original.
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
    """What one session spent in one place. `deleted` says that only this is left of it."""

    session: str
    title: str
    project: str
    place: UsageBucket
    spent: UsageTotals
    deleted: bool = False


class LedgerLine(msgspec.Struct, frozen=True):
    """A line of the ledger: what one session has spent."""

    session: str
    title: str
    project: str
    spending: UsageByBucket


_ledger_decoder = msgspec.json.Decoder(LedgerLine)


def read_usage(folder: Path) -> Iterator[UsageEntry]:
    """Everything that was spent in the project with this folder of sessions."""
    rows = SessionIndex(folder).list_entries()
    for row in rows:
        yield from _entries_of(_ledger_line_of(row), deleted=False)
    present = {row.id for row in rows}
    for kept in _read_ledger(folder).values():
        if kept.session not in present:
            yield from _entries_of(kept, deleted=True)


def usage_of(log: Path) -> LedgerLine:
    """What the session with this log has spent, to be kept when it is deleted. Raises OSError."""
    info = log.stat()
    return _ledger_line_of(index_entry_of(log.parent.name, log, info.st_size, info.st_mtime_ns))


def keep_usage(folder: Path, kept: LedgerLine) -> bool:
    """Write it into the ledger of its project, and say whether that worked."""
    if not kept.spending:
        return True
    try:
        fd = os.open(folder / LEDGER_NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        with os.fdopen(fd, "r+b", buffering=0) as file:
            torn = file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
            line = msgspec.json.encode(kept) + b"\n"
            whole = file.write(b"\n" + line if torn else line) == len(line) + torn
            os.fsync(fd)
    except OSError:
        return False
    return whole


def _ledger_line_of(row: IndexEntry) -> LedgerLine:
    return LedgerLine(row.id, row.title or row.original, row.cwd, row.spending)


def _entries_of(kept: LedgerLine, *, deleted: bool) -> Iterator[UsageEntry]:
    for key, spent in kept.spending.items():
        yield UsageEntry(kept.session, kept.title, kept.project, parse_bucket(key), spent, deleted)


def _read_ledger(folder: Path) -> dict[str, LedgerLine]:
    """The sessions of the ledger; of one that was written twice, the last line. A torn line is passed over."""
    found: dict[str, LedgerLine] = {}
    with contextlib.suppress(OSError), (folder / LEDGER_NAME).open("rb") as file:
        for line in file:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                kept = _ledger_decoder.decode(line)
                found[kept.session] = kept
    return found
