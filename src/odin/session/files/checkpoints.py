"""Where earlier bytes of files are kept: a store named by content, outside the user's project and its repository.

    <state>/checkpoints/<project>/objects/ab/abcd…   the bytes of one file
                                  bales/…            the bytes of many that were kept at once
                                  manifests/abcd…    a whole project: the state of every file in it
                                  seen               which file had which hash, so that it need not be read again

All sessions of a project share it. An object is written once, to a name that appears only when it is complete and on
the disk: after a power cut there is never half of one, which would look kept for ever after.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec

from odin.core.errors import OdinError, StateUnwritable
from odin.core.event import FileState
from odin.session.files.bale import BlobLocation, PackFile, read_blob, read_pack_indexes

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
        return StateUnwritable(
            f"A checkpoint cannot be saved ({self.folder}: {error.strerror or error}), so nothing was changed.",
            "Free some space, or set ODIN_STATE_DIR to a folder you can write.",
        )

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
