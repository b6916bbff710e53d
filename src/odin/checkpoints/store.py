"""Many files kept at once, in one file: making a file for each of thousands would be most of the work.

bales/<name>         the bytes of all of them, one after the other
bales/<name>.index   where each begins and how long it is; it appears last, so a bale without one is unfinished

Where earlier bytes of files are kept: a store named by content, outside the user's project and its repository.

    <state>/checkpoints/<project>/objects/ab/abcd…   the bytes of one file
                                  bales/…            the bytes of many that were kept at once
                                  manifests/abcd…    a whole project: the state of every file in it
                                  seen               which file had which hash, so that it need not be read again

All sessions of a project share it. An object is written once, to a name that appears only when it is complete and on
the disk: after a power cut there is never half of one, which would look kept for ever after.

Keeps the checkpoint store of a project from growing for ever. Rare, bounded in time, and never while somebody waits.

What the last days need is never removed: a store may be larger than its limit for their sake, but not for the sake of
older sessions.
"""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import msgspec

from odin.core.errors import OdinError, StateUnwritable
from odin.core.event import FileState
from odin.session.log import make_write_error

PACK_INDEX_SUFFIX = ".index"
_MIN_PACKED_FILES = 16
"""Fewer than this are kept as objects of their own."""

BlobLocation = tuple[Path, int, int]
"""Where bytes are: a file, the offset in it, the length."""

_pack_encoder = msgspec.msgpack.Encoder()


class PackFile:
    """One bale being filled. `few` holds what came first, in case nothing more comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{time.time_ns():x}-{os.getpid()}-{threading.get_ident():x}"
        self._fd = -1
        self._size = 0
        self._index: dict[str, tuple[int, int]] = {}
        self.unpacked: dict[str, bytes] = {}

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._index or sha256 in self.unpacked

    def add(self, sha256: str, data: bytes) -> None:
        if self._fd < 0:
            self.unpacked[sha256] = data
            if len(self.unpacked) < _MIN_PACKED_FILES:
                return
            self._open_pack()
        else:
            self._append_blob(sha256, data)

    def finish(self) -> dict[str, BlobLocation]:
        """Give the bale its index; from now on its parts can be found. Says where they are."""
        if self._fd < 0:
            return {}
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        whole = self._path.with_name(self._path.name + PACK_INDEX_SUFFIX)
        half = whole.with_name(f".{whole.name}")
        with half.open("wb") as file:
            file.write(_pack_encoder.encode(self._index))
            file.flush()
            os.fsync(file.fileno())
        half.replace(whole)
        return {sha256: (self._path, *place) for sha256, place in self._index.items()}

    def discard(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._path.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        return self._size

    def _open_pack(self) -> None:
        for folder in (*reversed(self._folder.parents), self._folder):
            folder.mkdir(0o700, exist_ok=True)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        few, self.unpacked = self.unpacked, {}
        for sha256, data in few.items():
            self._append_blob(sha256, data)

    def _append_blob(self, sha256: str, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self._index[sha256] = (self._size, len(data))
        self._size += len(data)


def read_pack_indexes(folder: Path, skip: set[str]) -> dict[str, dict[str, BlobLocation]]:
    """What the finished bales hold, by the name of their index. Those in `skip` are known already."""
    found: dict[str, dict[str, BlobLocation]] = {}
    try:
        names = [name for name in os.listdir(folder) if name.endswith(PACK_INDEX_SUFFIX) and name[0] != "."]  # noqa: PTH208
    except OSError:
        return {}
    for name in names:
        if name not in skip:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                index = msgspec.msgpack.decode((folder / name).read_bytes(), type=dict[str, tuple[int, int]])
                path = folder / name.removesuffix(PACK_INDEX_SUFFIX)
                found[name] = {sha256: (path, *place) for sha256, place in index.items()}
    return found


def read_blob(location: BlobLocation) -> bytes:
    path, offset, length = location
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


OBJECTS, PACKS, MANIFESTS, HASH_CACHE = "objects", "bales", "manifests", "seen"


class CheckpointLost(OdinError):
    """What should be in the store is not there any more, or is not what it was."""


class CheckpointManifest(msgspec.Struct, frozen=True):
    """The files of a project at one moment. A folder with `saved` false was not looked into."""

    root: str
    files: tuple[FileState, ...]
    whole: bool = True


HashCache = dict[str, tuple[int, int, int, int, str]]
"""Path → mtime, ctime, size, inode and hash of a file when it was last read."""

_store_encoder = msgspec.msgpack.Encoder()


def sha256_of(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


class CheckpointStore:
    """`added` counts the bytes this process has put into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes_added = 0
        self._packed: dict[str, BlobLocation] = {}
        self._known_packs: set[str] = set()

    def keep(self, data: bytes) -> str:
        """Put the bytes into the store and give their name."""
        sha256 = sha256_of(data)
        if not self.contains(sha256):
            self._write(self._object_path_of(sha256), data)
        return sha256

    @contextlib.contextmanager
    def keep_many(self) -> Generator[Callable[[bytes], str]]:
        """A `keep` for many files at once. They are in the store when this ends without an exception."""
        bale = PackFile(self.folder / PACKS)

        def keep(data: bytes) -> str:
            sha256 = sha256_of(data)
            if sha256 not in bale and sha256 not in self._packed and not self._object_path_of(sha256).exists():
                self._add_to_pack(bale, sha256, data)
            return sha256

        try:
            yield keep
        except BaseException:
            bale.discard()
            raise
        self._finish_pack(bale)

    def contains(self, sha256: str) -> bool:
        return self._object_path_of(sha256).exists() or self._locate_packed(sha256) is not None

    def list_names(self) -> set[str]:
        """Everything it holds."""
        self._refresh_packs()
        found: set[str] = set(self._packed)
        for shelf in self._list_object_folders():
            with contextlib.suppress(OSError), os.scandir(shelf) as entries:
                found.update(entry.name for entry in entries)
        return found

    def _list_object_folders(self) -> list[Path]:
        try:
            return list((self.folder / OBJECTS).iterdir())
        except OSError:
            return []

    def fetch(self, sha256: str) -> bytes:
        """The bytes of that name, checked. Raises Lost."""
        try:
            place = self._locate_packed(sha256)
            data = self._object_path_of(sha256).read_bytes() if place is None else read_blob(place)
        except OSError as error:
            raise CheckpointLost("its earlier bytes are no longer in the checkpoint store") from error
        if sha256_of(data) != sha256:
            raise CheckpointLost("its earlier bytes in the checkpoint store are damaged")
        return data

    def keep_manifest(self, manifest: CheckpointManifest) -> str:
        data = _store_encoder.encode(manifest)
        sha256 = sha256_of(data)
        path = self.folder / MANIFESTS / sha256
        if path.exists():
            with contextlib.suppress(OSError):
                os.utime(path)
        else:
            self._write(path, data)
        return sha256

    def load_manifest(self, sha256: str) -> CheckpointManifest:
        try:
            data = (self.folder / MANIFESTS / sha256).read_bytes()
            if sha256_of(data) != sha256:
                raise CheckpointLost("the list of the project's files in the checkpoint store is damaged")
            return msgspec.msgpack.decode(data, type=CheckpointManifest)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise CheckpointLost("the list of the project's files is no longer in the checkpoint store") from error

    def load_hash_cache(self) -> HashCache:
        """What an earlier process knew; nothing when that cannot be read."""
        try:
            return msgspec.msgpack.decode((self.folder / HASH_CACHE).read_bytes(), type=HashCache)
        except (OSError, msgspec.MsgspecError):
            return {}

    def keep_hash_cache(self, seen: HashCache) -> None:
        self._write(self.folder / HASH_CACHE, _store_encoder.encode(seen), sync=False)

    def _locate_packed(self, sha256: str) -> BlobLocation | None:
        """Where in a bale it is. Another process may have made one since we last looked."""
        if sha256 not in self._packed:
            self._refresh_packs()
        return self._packed.get(sha256)

    def _refresh_packs(self) -> None:
        for name, found in read_pack_indexes(self.folder / PACKS, self._known_packs).items():
            self._known_packs.add(name)
            self._packed.update(found)

    def _add_to_pack(self, bale: PackFile, sha256: str, data: bytes) -> None:
        try:
            bale.add(sha256, data)
        except OSError as error:
            raise self._make_write_error(error) from error

    def _finish_pack(self, bale: PackFile) -> None:
        try:
            self._packed.update(bale.finish())
        except OSError as error:
            bale.discard()
            raise self._make_write_error(error) from error
        self.bytes_added += bale.size
        for sha256, data in bale.unpacked.items():
            self._write(self._object_path_of(sha256), data)

    def _make_write_error(self, error: OSError) -> StateUnwritable:
        return make_write_error("A checkpoint cannot be saved, so nothing was changed", self.folder, error)

    def _object_path_of(self, sha256: str) -> Path:
        return self.folder / OBJECTS / sha256[:2] / sha256

    def _write(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        temporary = path.with_name(f".{os.getpid()}-{threading.get_ident():x}-{time.monotonic_ns():x}")
        try:
            fd = self._create(temporary)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    if sync:
                        file.flush()
                        os.fsync(fd)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._make_write_error(error) from error
        self.bytes_added += len(data)

    def _create(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            for folder in (*reversed(path.parent.parents), path.parent):
                folder.mkdir(0o700, exist_ok=True)
            return os.open(path, flags, 0o600)


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
