"""Many files kept at once, in one file: making a file for each of thousands would be most of the work.

bales/<name>         the bytes of all of them, one after the other
bales/<name>.index   where each begins and how long it is; it appears last, so a bale without one is unfinished
"""

import contextlib
import os
import threading
import time
from pathlib import Path

import msgspec

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
