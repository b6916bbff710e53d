"""The checkpoint store of a project: earlier file contents, named by SHA-256, outside the project.

    <state>/checkpoints/<project>/objects/ab/abcd…   the content of one file
                                  packs/<name>       a pack file: the content of many files saved at once
                                  packs/<name>.index offset and length of each; written last, so a pack without one
                                                     is unfinished
                                  manifests/abcd…    a whole project: the state of every file
                                  hashes             the hash cache, so that unchanged files are not read again

All sessions of a project share the store. Objects appear complete and synced to disk or not at all, because half an
object would look saved forever. Git is not used: the store needs no repository, includes ignored files and cannot harm
the user's index. Pruning is rare, bounded in time and never removes what the sessions of the last days need.
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
from odin.core.event_values import FileState
from odin.session.log import make_write_error

PACK_INDEX_SUFFIX = ".index"
_MIN_PACKED_FILES = 16
"""Fewer files than this are saved as single objects."""

BlobLocation = tuple[Path, int, int]
"""Path of the pack file, offset and length."""

_pack_encoder = msgspec.msgpack.Encoder()


class PackFile:
    """A pack file being written. Content stays in `unpacked` until there are enough files for a pack."""

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
        """Write the index, which completes the pack, and return the locations of its contents."""
        if self._fd < 0:
            return {}
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        index = self._path.with_name(self._path.name + PACK_INDEX_SUFFIX)
        temporary = index.with_name(f".{index.name}")
        with temporary.open("wb") as file:
            file.write(_pack_encoder.encode(self._index))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(index)
        return {sha256: (self._path, *span) for sha256, span in self._index.items()}

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
        unpacked, self.unpacked = self.unpacked, {}
        for sha256, data in unpacked.items():
            self._append_blob(sha256, data)

    def _append_blob(self, sha256: str, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self._index[sha256] = (self._size, len(data))
        self._size += len(data)


def read_pack_indexes(folder: Path, skip: set[str]) -> dict[str, dict[str, BlobLocation]]:
    """The contents of the finished packs, by index name. Indexes in `skip` are not read."""
    packs: dict[str, dict[str, BlobLocation]] = {}
    try:
        names = [name for name in os.listdir(folder) if name.endswith(PACK_INDEX_SUFFIX) and name[0] != "."]  # noqa: PTH208
    except OSError:
        return {}
    for name in names:
        if name not in skip:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                index = msgspec.msgpack.decode((folder / name).read_bytes(), type=dict[str, tuple[int, int]])
                path = folder / name.removesuffix(PACK_INDEX_SUFFIX)
                packs[name] = {sha256: (path, *span) for sha256, span in index.items()}
    return packs


def read_blob(location: BlobLocation) -> bytes:
    path, offset, length = location
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


OBJECTS, PACKS, MANIFESTS, HASH_CACHE = "objects", "packs", "manifests", "hashes"


class CheckpointLost(OdinError):
    """An object is missing from the store or damaged."""


class CheckpointManifest(msgspec.Struct, frozen=True):
    """The files of a project, and of the roots `others`, at one point in time. A folder with `saved` False was not
    entered."""

    root: str
    files: tuple[FileState, ...]
    whole: bool = True
    others: tuple[str, ...] = ()


HashCache = dict[str, tuple[int, int, int, int, str]]
"""Maps a path to mtime, ctime, size, inode and hash of the file when it was last read."""

_store_encoder = msgspec.msgpack.Encoder()


def compute_sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


class CheckpointStore:
    """`bytes_added` counts the bytes this process has added since it last pruned the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes_added = 0
        self._packed: dict[str, BlobLocation] = {}
        self._known_packs: set[str] = set()

    def keep(self, data: bytes) -> str:
        """Save the bytes and return their SHA-256."""
        sha256 = compute_sha256(data)
        if not self.contains(sha256):
            self._write(self._get_object_path(sha256), data)
        return sha256

    @contextlib.contextmanager
    def keep_many(self) -> Generator[Callable[[bytes], str]]:
        """Yield a `keep` function for many files. They are stored when the block ends without an exception."""
        pack = PackFile(self.folder / PACKS)

        def keep(data: bytes) -> str:
            sha256 = compute_sha256(data)
            if sha256 not in pack and sha256 not in self._packed and not self._get_object_path(sha256).exists():
                try:
                    pack.add(sha256, data)
                except OSError as error:
                    raise self._make_write_error(error) from error
            return sha256

        try:
            yield keep
        except BaseException:
            pack.discard()
            raise
        try:
            self._packed.update(pack.finish())
        except OSError as error:
            pack.discard()
            raise self._make_write_error(error) from error
        self.bytes_added += pack.size
        for sha256, data in pack.unpacked.items():
            self._write(self._get_object_path(sha256), data)

    def contains(self, sha256: str) -> bool:
        return self._get_object_path(sha256).exists() or self._locate_packed(sha256) is not None

    def list_names(self) -> set[str]:
        """The SHA-256 names of all objects."""
        self._refresh_packs()
        names: set[str] = set(self._packed)
        for folder in self._list_object_folders():
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                names.update(entry.name for entry in entries)
        return names

    def _list_object_folders(self) -> list[Path]:
        try:
            return list((self.folder / OBJECTS).iterdir())
        except OSError:
            return []

    def fetch(self, sha256: str) -> bytes:
        """The bytes with that SHA-256, verified. Raise CheckpointLost."""
        try:
            location = self._locate_packed(sha256)
            data = self._get_object_path(sha256).read_bytes() if location is None else read_blob(location)
        except OSError as error:
            raise CheckpointLost("its earlier content is no longer in the checkpoint store") from error
        if compute_sha256(data) != sha256:
            raise CheckpointLost("its earlier content in the checkpoint store is damaged")
        return data

    def keep_manifest(self, manifest: CheckpointManifest) -> str:
        data = _store_encoder.encode(manifest)
        sha256 = compute_sha256(data)
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
            if compute_sha256(data) != sha256:
                raise CheckpointLost("the list of the project's files in the checkpoint store is damaged")
            return msgspec.msgpack.decode(data, type=CheckpointManifest)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise CheckpointLost("the list of the project's files is no longer in the checkpoint store") from error

    def load_hash_cache(self) -> HashCache:
        """The hash cache of an earlier process; empty if it cannot be read."""
        try:
            return msgspec.msgpack.decode((self.folder / HASH_CACHE).read_bytes(), type=HashCache)
        except (OSError, msgspec.MsgspecError):
            return {}

    def keep_hash_cache(self, cache: HashCache) -> None:
        self._write(self.folder / HASH_CACHE, _store_encoder.encode(cache), sync=False)

    def _locate_packed(self, sha256: str) -> BlobLocation | None:
        """The location in a pack. Rereads the indexes, because another process may have added a pack."""
        if sha256 not in self._packed:
            self._refresh_packs()
        return self._packed.get(sha256)

    def _refresh_packs(self) -> None:
        for name, locations in read_pack_indexes(self.folder / PACKS, self._known_packs).items():
            self._known_packs.add(name)
            self._packed.update(locations)

    def _make_write_error(self, error: OSError) -> StateUnwritable:
        return make_write_error("A checkpoint cannot be saved, so nothing was changed", self.folder, error)

    def _get_object_path(self, sha256: str) -> Path:
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
"""Pruning first keeps everything from the last 30 days; if the store is still too large, from the last day."""

_NAME_IN_LOG = rb'"(?:sha256|manifest)":"([0-9a-f]{64})"'
_PRUNED_MARK = "pruned"
_PRUNE_AFTER_BYTES = 200_000_000
"""After this many new bytes, prune again before a day is over."""


class _StoredFile(msgspec.Struct, frozen=True):
    """One file of the store with the names of its objects: several for a pack or its index."""

    path: Path
    size: int
    used: float
    names: tuple[str, ...]


def prune_store(store: CheckpointStore, sessions: Path, limit: int = MAX_STORE_BYTES, *, seconds: float = 5.0) -> int:
    """Remove old objects until the store fits its limit; return the number of bytes freed.

    `sessions` is the folder with the project's logs: objects named by recent logs are needed for undo.
    """
    deadline = time.monotonic() + seconds
    files = sorted(_scan_store(store.folder), key=lambda item: item.used)
    size = sum(item.size for item in files)
    freed = 0
    for days in KEPT_DAYS:
        if size - freed <= limit:
            break
        since = time.time() - days * DAY_S
        # The names of all objects referenced by logs and manifests used since then.
        needed: set[str] = set()
        for log in sessions.glob("*/*.jsonl"):
            with contextlib.suppress(OSError), log.open("rb") as lines:
                if log.stat().st_mtime >= since:
                    needed.update(name.decode() for line in lines for name in re.findall(_NAME_IN_LOG, line))
        manifests: list[Path] = []
        with contextlib.suppress(OSError):
            for path in (store.folder / MANIFESTS).iterdir():
                if path.name in needed or path.stat().st_mtime >= since:
                    manifests.append(path)
        for manifest in manifests:
            needed.add(manifest.name)
            with contextlib.suppress(OdinError):
                needed.update(state.sha256 for state in store.load_manifest(manifest.name).files)
        for item in files:
            if size - freed <= limit or time.monotonic() > deadline:
                break
            if item.used < since and needed.isdisjoint(item.names) and item.path.exists():
                with contextlib.suppress(OSError):
                    item.path.unlink()
                    freed += item.size
    return freed


def prune_if_due(store: CheckpointStore, sessions: Path, limit: int = MAX_STORE_BYTES) -> None:
    """Prune at most once a day, or sooner if much was added."""
    mark = store.folder / _PRUNED_MARK
    try:
        is_due = store.bytes_added > _PRUNE_AFTER_BYTES or mark.stat().st_mtime < time.time() - DAY_S
    except OSError:
        is_due = False
    if is_due:
        store.bytes_added = 0
        prune_store(store, sessions, limit)
    if is_due or not mark.exists():
        with contextlib.suppress(OSError):
            mark.touch(0o600)


def _scan_store(folder: Path) -> Iterator[_StoredFile]:
    folders = [folder / MANIFESTS]
    with contextlib.suppress(OSError):
        folders += (folder / OBJECTS).iterdir()
    for each in folders:
        with contextlib.suppress(OSError), os.scandir(each) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                yield _StoredFile(Path(entry.path), info.st_size, info.st_mtime, (entry.name,))
    yield from _scan_packs(folder / PACKS)


def _scan_packs(folder: Path) -> Iterator[_StoredFile]:
    """All packs and indexes with their object names; unfinished packs left by a crash have none."""
    packs = {name: tuple(objects) for name, objects in read_pack_indexes(folder, set()).items()}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            info = entry.stat(follow_symlinks=False)
            names = packs.get(entry.name) or packs.get(entry.name + PACK_INDEX_SUFFIX) or ()
            yield _StoredFile(Path(entry.path), info.st_size, info.st_mtime, names)
