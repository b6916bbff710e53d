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
from odin.session.files.bale import Bale, Place, places, read_place

OBJECTS, BALES, MANIFESTS, SEEN = "objects", "bales", "manifests", "seen"


class Lost(OdinError):
    """What should be in the store is not there any more, or is not what it was."""


class Manifest(msgspec.Struct, frozen=True):
    """The files of a project at one moment. A folder with `saved` false was not looked into."""

    root: str
    files: tuple[FileState, ...]
    whole: bool = True


Seen = dict[str, tuple[int, int, int, int, str]]
"""Path → mtime, ctime, size, inode and hash of a file when it was last read."""

_encoder = msgspec.msgpack.Encoder()


def digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


class CheckpointStore:
    """`added` counts the bytes this process has put into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.added = 0
        self._baled: dict[str, Place] = {}
        self._bales: set[str] = set()

    def keep(self, data: bytes) -> str:
        """Put the bytes into the store and give their name."""
        sha256 = digest(data)
        if not self.holds(sha256):
            self._write(self._object(sha256), data)
        return sha256

    @contextlib.contextmanager
    def many(self) -> Generator[Callable[[bytes], str]]:
        """A `keep` for many files at once. They are in the store when this ends without an exception."""
        bale = Bale(self.folder / BALES)

        def keep(data: bytes) -> str:
            sha256 = digest(data)
            if sha256 not in bale and sha256 not in self._baled and not self._object(sha256).exists():
                self._put(bale, sha256, data)
            return sha256

        try:
            yield keep
        except BaseException:
            bale.discard()
            raise
        self._finish(bale)

    def holds(self, sha256: str) -> bool:
        return self._object(sha256).exists() or self._place(sha256) is not None

    def names(self) -> set[str]:
        """Everything it holds."""
        self._look_for_bales()
        found: set[str] = set(self._baled)
        for shelf in self._shelves():
            with contextlib.suppress(OSError), os.scandir(shelf) as entries:
                found.update(entry.name for entry in entries)
        return found

    def _shelves(self) -> list[Path]:
        try:
            return list((self.folder / OBJECTS).iterdir())
        except OSError:
            return []

    def fetch(self, sha256: str) -> bytes:
        """The bytes of that name, checked. Raises Lost."""
        try:
            place = self._place(sha256)
            data = self._object(sha256).read_bytes() if place is None else read_place(place)
        except OSError as error:
            raise Lost("its earlier bytes are no longer in the checkpoint store") from error
        if digest(data) != sha256:
            raise Lost("its earlier bytes in the checkpoint store are damaged")
        return data

    def keep_manifest(self, manifest: Manifest) -> str:
        data = _encoder.encode(manifest)
        sha256 = digest(data)
        path = self.folder / MANIFESTS / sha256
        if path.exists():
            with contextlib.suppress(OSError):
                os.utime(path)
        else:
            self._write(path, data)
        return sha256

    def manifest(self, sha256: str) -> Manifest:
        try:
            data = (self.folder / MANIFESTS / sha256).read_bytes()
            if digest(data) != sha256:
                raise Lost("the list of the project's files in the checkpoint store is damaged")
            return msgspec.msgpack.decode(data, type=Manifest)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise Lost("the list of the project's files is no longer in the checkpoint store") from error

    def load_seen(self) -> Seen:
        """What an earlier process knew; nothing when that cannot be read."""
        try:
            return msgspec.msgpack.decode((self.folder / SEEN).read_bytes(), type=Seen)
        except (OSError, msgspec.MsgspecError):
            return {}

    def keep_seen(self, seen: Seen) -> None:
        self._write(self.folder / SEEN, _encoder.encode(seen), sync=False)

    def _place(self, sha256: str) -> Place | None:
        """Where in a bale it is. Another process may have made one since we last looked."""
        if sha256 not in self._baled:
            self._look_for_bales()
        return self._baled.get(sha256)

    def _look_for_bales(self) -> None:
        for name, found in places(self.folder / BALES, self._bales).items():
            self._bales.add(name)
            self._baled.update(found)

    def _put(self, bale: Bale, sha256: str, data: bytes) -> None:
        try:
            bale.add(sha256, data)
        except OSError as error:
            raise self._unwritable(error) from error

    def _finish(self, bale: Bale) -> None:
        try:
            self._baled.update(bale.finish())
        except OSError as error:
            bale.discard()
            raise self._unwritable(error) from error
        self.added += bale.size
        for sha256, data in bale.few.items():
            self._write(self._object(sha256), data)

    def _unwritable(self, error: OSError) -> StateUnwritable:
        return StateUnwritable(
            f"A checkpoint cannot be saved ({self.folder}: {error.strerror or error}), so nothing was changed.",
            "Free some space, or set ODIN_STATE_DIR to a folder you can write.",
        )

    def _object(self, sha256: str) -> Path:
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
            raise self._unwritable(error) from error
        self.added += len(data)

    def _create(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            for folder in (*reversed(path.parent.parents), path.parent):
                folder.mkdir(0o700, exist_ok=True)
            return os.open(path, flags, 0o600)
