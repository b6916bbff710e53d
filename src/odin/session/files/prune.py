"""Keeps the checkpoint store of a project from growing for ever. Rare, bounded in time, and never while somebody waits.

What the last days need is never removed: a store may be larger than its limit for their sake, but not for the sake of
older sessions.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from odin.core.errors import OdinError
from odin.session.files.bale import PACK_INDEX_SUFFIX, read_pack_indexes
from odin.session.files.checkpoints import MANIFESTS, OBJECTS, PACKS, CheckpointStore

MAX_STORE_BYTES = 2_000_000_000
DAY_S = 86_400.0
KEPT_DAYS = (30, 1)
"""Everything this young stays; when that is still too much, everything this young."""

_NAME_IN_LOG = rb'"(?:sha256|manifest)":"([0-9a-f]{64})"'
_PRUNED_MARK = "pruned"
_PRUNE_AFTER_BYTES = 200_000_000
"""So many new bytes are a reason to look again before a day is over."""


class _StoredFile(msgspec.Struct, frozen=True):
    """One file of the store, and the names of what it holds. A bale's index comes with its bytes."""

    path: Path
    size: int
    used: float
    names: tuple[str, ...]


def prune_store(store: CheckpointStore, sessions: Path, limit: int = MAX_STORE_BYTES, *, seconds: float = 5.0) -> int:
    """Remove what is old until the store fits its limit. Gives the number of bytes that were freed.

    `sessions` is the folder with the project's logs: what the younger ones name is needed for undo.
    """
    deadline = time.monotonic() + seconds
    found = sorted(_scan_store(store.folder), key=lambda item: item.used)
    size = sum(item.size for item in found)
    freed = 0
    for days in KEPT_DAYS:
        if size - freed <= limit:
            break
        since = time.time() - days * DAY_S
        needed = _find_needed_names(store, sessions, since)
        for item in found:
            if size - freed <= limit or time.monotonic() > deadline:
                break
            if item.used < since and needed.isdisjoint(item.names) and item.path.exists():
                with contextlib.suppress(OSError):
                    item.path.unlink()
                    freed += item.size
    return freed


def prune_if_due(store: CheckpointStore, sessions: Path, limit: int = MAX_STORE_BYTES) -> None:
    """At most once a day, unless much was added."""
    mark = store.folder / _PRUNED_MARK
    try:
        due = store.bytes_added > _PRUNE_AFTER_BYTES or mark.stat().st_mtime < time.time() - DAY_S
    except OSError:
        due = False
    if due:
        prune_store(store, sessions, limit)
    if due or not mark.exists():
        with contextlib.suppress(OSError):
            mark.touch(0o600)


def _scan_store(folder: Path) -> Iterator[_StoredFile]:
    shelves = [folder / MANIFESTS]
    with contextlib.suppress(OSError):
        shelves += (folder / OBJECTS).iterdir()
    for shelf in shelves:
        with contextlib.suppress(OSError), os.scandir(shelf) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                yield _StoredFile(Path(entry.path), info.st_size, info.st_mtime, (entry.name,))
    yield from _scan_packs(folder / PACKS)


def _scan_packs(folder: Path) -> Iterator[_StoredFile]:
    """Every file there: bales and their indexes with what they hold, and leftovers of a crash, which hold nothing."""
    held = {name: tuple(found) for name, found in read_pack_indexes(folder, set()).items()}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            info = entry.stat(follow_symlinks=False)
            names = held.get(entry.name) or held.get(entry.name + PACK_INDEX_SUFFIX) or ()
            yield _StoredFile(Path(entry.path), info.st_size, info.st_mtime, names)


def _find_needed_names(store: CheckpointStore, sessions: Path, since: float) -> set[str]:
    """The names of everything that a log or a manifest used since then speaks of."""
    names: set[str] = set()
    for log in sessions.glob("*/*.jsonl"):
        with contextlib.suppress(OSError), log.open("rb") as lines:
            if log.stat().st_mtime >= since:
                names.update(name.decode() for line in lines for name in re.findall(_NAME_IN_LOG, line))
    for manifest in _find_manifests(store.folder, since, names):
        names.add(manifest.name)
        with contextlib.suppress(OdinError):
            names.update(state.sha256 for state in store.load_manifest(manifest.name).files)
    return names


def _find_manifests(folder: Path, since: float, named: set[str]) -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for path in (folder / MANIFESTS).iterdir():
            if path.name in named or path.stat().st_mtime >= since:
                found.append(path)
    return found
