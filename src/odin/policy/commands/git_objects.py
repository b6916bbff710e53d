"""Finds out what an object name in a git command stands for, without running git.

`git show ID` and `git cat-file -p ID` print a file without its name, so its name cannot tell that it is a secret one.
Commits, trees and tags are shown with names. A blob is known to be safe if the index has it under a name that is
not secret.
"""

import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from odin.core.path_names import is_secret_path
from odin.policy.commands.git_folder import list_index_files, read_small_file

ObjectKind = Literal["commit", "tree", "blob", "tag", "unknown"]

_HEX = re.compile(r"(?:.*-g)?([0-9a-fA-F]{4,64})")
"""An object id or the start of one, also as `git describe` writes it."""

_PEELED = re.compile(r"(.*?)\^\{(\w*)\}(.*)")
_LOOSE_HEADER = re.compile(rb"(commit|tree|blob|tag) \d+\0")
_TAG_TARGET = re.compile(rb"object ([0-9a-f]{40,64})\ntype (\w+)\n")
_PACK_KINDS: dict[int, ObjectKind] = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFFSET_DELTA, _ID_DELTA = 6, 7
_INDEX_MAGIC = b"\377tOc\0\0\0\2"
_FANOUT_BYTES = 4 * 256
_MAX_DELTAS = 5_000
_HEADER_BYTES = 4_096


def may_name_secret_blob(store: str, word: str, cwd: str) -> bool:
    """True if git may take a word for a blob that is not known to be safe. `store` is the git directory."""
    names = re.split(r"\.\.\.?", word.removeprefix("^"))
    return any(_may_be_secret_blob(_ObjectStore(store), name, cwd) for name in names)


def _may_be_secret_blob(objects: "_ObjectStore", name: str, cwd: str) -> bool:
    peeled = _PEELED.fullmatch(name)
    if peeled is not None:
        if peeled[2] in ("commit", "tree") or peeled[3]:
            return False
        name = peeled[1]
    if not name or re.search(r"[:~^]|@\{", name):
        return False  # a named path, or an ancestor or earlier value of a ref, which is a commit
    ref = objects.find_ref(name)
    found = _HEX.fullmatch(name)
    ids = [*([ref] if ref else []), *(objects.find_ids(found[1].lower()) if found else [])]
    if not ids:
        return found is not None and not Path(cwd, name).exists()
    return any(objects.get_kind(one) in ("blob", "unknown") and not objects.is_safe(one) for one in ids)


class _ObjectStore:
    """The objects and refs of one repository. Ids are lower-case hexadecimal."""

    def __init__(self, store: str) -> None:
        text = (read_small_file(f"{store}/commondir") or b"").decode("utf-8", "replace").strip()
        self._store = store
        self._common = os.path.normpath(os.path.join(store, text)) if text else store  # noqa: PTH118
        config = read_small_file(f"{self._common}/config") or b""
        self._id_bytes = 32 if re.search(rb"(?i)objectformat\s*=\s*\"?sha256", config) else 20

    def find_ref(self, name: str) -> str:
        """Return the id that a ref has, or ""."""
        names = [f"{folder}{name}" for folder in ("", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/")]
        packed = read_small_file(f"{self._common}/packed-refs") or b""
        for full in names if ".." not in name else ():
            for folder in dict.fromkeys((self._store, self._common)):
                written = (read_small_file(f"{folder}/{full}") or b"").strip().decode("ascii", "replace")
                if re.fullmatch(r"[0-9a-f]{40,64}", written):
                    return written
            wanted = b" " + os.fsencode(full)
            if wanted in packed:
                line = re.search(rb"(?m)^([0-9a-f]{40,64})" + re.escape(wanted) + rb"$", packed)
                if line is not None:
                    return line[1].decode()
        return ""

    def find_ids(self, prefix: str) -> list[str]:
        """Return the ids of all objects that begin with this."""
        folder = f"{self._common}/objects/{prefix[:2]}"
        loose = [prefix[:2] + name for name in _list_names(folder) if name.startswith(prefix[2:])]
        return [*loose, *(one for pack in self._list_packs() for one in pack.find_ids(prefix))]

    def get_kind(self, object_id: str, depth: int = 0) -> ObjectKind:
        """Return the kind of an object; of a tag, that of what it names."""
        data = read_small_file(f"{self._common}/objects/{object_id[:2]}/{object_id[2:]}", _HEADER_BYTES)
        if data is not None:
            start = _decompress(data)
            header = _LOOSE_HEADER.match(start)
            kind: ObjectKind = header[1].decode() if header else "unknown"  # pyright: ignore[reportAssignmentType]
            body = start[header.end() :] if header else b""
        else:
            kind, body = next(
                (found for pack in self._list_packs() if (found := pack.read(object_id))), ("unknown", b"")
            )
        base = re.fullmatch(rb"base ([0-9a-f]+)", body) if kind == "unknown" else _TAG_TARGET.match(body)
        if kind in ("tag", "unknown") and depth < _MAX_DELTAS:
            return self.get_kind(base[1].decode(), depth + 1) if base else "unknown"
        return kind

    def is_safe(self, object_id: str) -> bool:
        """True if the index has this blob under a name that is not secret: its content can be read there."""
        files = list_index_files(f"{self._store}/index", self._id_bytes) or ()
        return any(found.hex() == object_id and not is_secret_path(name) for found, name in files)

    def _list_packs(self) -> Iterator["_Pack"]:
        folder = f"{self._common}/objects/pack"
        for name in _list_names(folder):
            if name.endswith(".idx"):
                yield _Pack(f"{folder}/{name[:-4]}", self._id_bytes)


class _Pack:
    """One pack with its index. What cannot be read has no objects; a name that is found nowhere needs approval."""

    def __init__(self, path: str, id_bytes: int) -> None:
        self._path = path
        self._id_bytes = id_bytes

    def find_ids(self, prefix: str) -> list[str]:
        return [one for one, _ in self._find(prefix)]

    def read(self, object_id: str) -> tuple[ObjectKind, bytes] | None:
        """Return the kind of an object and the start of its text; `base ID` if its kind is that of another object."""
        found = next(iter(self._find(object_id)), None)
        if found is None:
            return None
        try:
            with _map_file(f"{self._path}.pack") as data:
                return self._read_at(data, found[1])
        except (OSError, ValueError, IndexError):
            return "unknown", b""

    def _read_at(self, data: mmap.mmap, at: int) -> tuple[ObjectKind, bytes]:
        for _ in range(_MAX_DELTAS):
            start, kind = at, data[at] >> 4 & 7
            while data[at] & 128:
                at += 1
            at += 1
            if kind == _ID_DELTA:
                return "unknown", b"base " + data[at : at + self._id_bytes].hex().encode()
            if kind != _OFFSET_DELTA:
                return _PACK_KINDS.get(kind, "unknown"), _decompress(data[at : at + _HEADER_BYTES])
            distance = data[at] & 127
            while data[at] & 128:
                at += 1
                distance = (distance + 1 << 7) | data[at] & 127
            at = start - distance
        return "unknown", b""

    def _find(self, prefix: str) -> list[tuple[str, int]]:
        """Return the ids with this start, and where their objects are in the pack."""
        try:
            with _map_file(f"{self._path}.idx") as data:
                return list(self._search(data, prefix)) if data[:8] == _INDEX_MAGIC else []
        except (OSError, ValueError, struct.error):
            return []

    def _search(self, data: mmap.mmap, prefix: str) -> Iterator[tuple[str, int]]:
        size, first = self._id_bytes, int(prefix[:2], 16)
        ends = struct.unpack_from(">256I", data, 8)
        ids_at, count = 8 + _FANOUT_BYTES, ends[255]
        offsets_at = ids_at + count * (size + 4)
        for number in range(ends[first - 1] if first else 0, ends[first]):
            object_id = data[ids_at + number * size : ids_at + (number + 1) * size].hex()
            if object_id.startswith(prefix):
                (offset,) = struct.unpack_from(">I", data, offsets_at + 4 * number)
                if offset & 0x80000000:
                    large_at = offsets_at + 4 * count + 8 * (offset & 0x7FFFFFFF)
                    (offset,) = struct.unpack_from(">Q", data, large_at)
                yield object_id, offset


def _map_file(path: str) -> mmap.mmap:
    with Path(path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _decompress(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, _HEADER_BYTES)
    except zlib.error:
        return b""


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(path.name for path in Path(folder).iterdir())
    except OSError:
        return []
