"""Reads a git folder: finds links in it, and lists the submodules in its index.

Links could lead to any other repository or file, which git would then print.

The index says which folders are submodules, whose settings git obeys as well. A crafted index could show another list
to a parser that guesses: other sizes of ids, lengths, modes or extensions than git assumes. So whatever git could
understand differently is refused: every byte must have its place and its meaning.
"""

import os
import stat
import struct
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

_UNREAD = frozenset(("hooks", "lfs", "annex", "modules", "worktrees", "svn"))
"""Folders in a git folder that git does not print. Modules and worktrees are checked when git enters them."""

_MAX_FOLDERS = 20_000
_UNSETTLED_NS = 50_000_000
"""What changed this recently may change again within the resolution of timestamps."""

FolderTimes = tuple[int, int]
"""inode and ctime."""

_plain_folders: dict[str, tuple[FolderTimes, tuple[str, ...]]] = {}
"""Folders without links, and their subfolders, valid as long as the times are. They are the same for all sessions."""


def read_times(path: str) -> FolderTimes | None:
    """Return a value that changes when an entry of the folder is added, removed or replaced."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (status.st_ino, status.st_ctime_ns) if stat.S_ISDIR(status.st_mode) else None


def find_link(store: str, note: Callable[[str], None]) -> str:
    """Return the first link in a git folder, or "". `note` gets every folder that was looked at."""
    queue = [store]
    for seen in range(_MAX_FOLDERS + 1):
        if not queue:
            return ""
        if seen == _MAX_FOLDERS:
            break
        folder = queue.pop()
        note(folder)
        found, subfolders = _list_plain_folder(folder)
        if found:
            return found
        queue.extend(path for path in subfolders if folder != store or path[len(store) + 1 :] not in _UNREAD)
    return store  # too large to say


def _list_plain_folder(folder: str) -> tuple[str, tuple[str, ...]]:
    """Return a link in the folder, or "", and the subfolders."""
    times = read_times(folder)
    known = _plain_folders.get(folder)
    if known is not None and known[0] == times:
        return "", known[1]
    subfolders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    return entry.path, ()
                if entry.is_dir(follow_symlinks=False):
                    subfolders.append(entry.path)
    except OSError:
        return folder, ()
    if len(_plain_folders) > _MAX_FOLDERS:
        _plain_folders.clear()
    if times is not None and is_settled(times[1]):
        _plain_folders[folder] = (times, tuple(subfolders))
    return "", tuple(subfolders)


def is_settled(ctime_ns: int) -> bool:
    """True if a later change would also change the timestamp."""
    return ctime_ns < time.time_ns() - _UNSETTLED_NS


_MAX_BYTES = 20_000_000
_HEADER_BYTES = 12
_FIXED_BYTES = 40
"""Times, device, inode, mode, owner and size of an entry, before the id."""

_GITLINK = 0o160000
_KNOWN_MODES = frozenset((0o100644, 0o100755, 0o120000, _GITLINK))
_EXTENDED, _STAGES, _NAME_LENGTH = 0x4000, 0x3000, 0xFFF
_KNOWN_EXTENDED = 0x6000
"""Skip-worktree and intent-to-add."""

_KNOWN_EXTENSIONS = frozenset((b"TREE", b"REUC", b"UNTR", b"FSMN", b"EOIE", b"IEOT"))
"""Extensions that do not change which entries there are. A split or sparse index has others."""


class IndexMalformed(Exception):
    """The index is not in the one form that git and this module read in the same way."""


class _Entries(Struct, frozen=True):
    """The parsed entries. `starts` has the number of each entry by its position."""

    files: tuple[tuple[bytes, str], ...]
    submodules: tuple[str, ...]
    starts: Mapping[int, int]
    whole_names: frozenset[int]
    end: int


def list_submodules(path: str, id_bytes: int) -> tuple[str, ...] | None:
    """Return the paths of all submodules in an index file, or None if it does not parse exactly.

    `id_bytes` is the size of object ids in this repository: 20 or 32.
    """
    data = read_small_file(path)
    if data is None:
        return None
    try:
        entries = _read_entries(data, id_bytes)
        _check_extensions(data, entries, id_bytes)
        _check_sum(data, id_bytes)
    except (IndexMalformed, struct.error, IndexError):
        return None
    return entries.submodules


def list_index_files(path: str, id_bytes: int) -> tuple[tuple[bytes, str], ...] | None:
    """Return the id and name of every file in an index file, or None if it does not parse exactly."""
    data = read_small_file(path)
    try:
        return _read_entries(data, id_bytes).files if data is not None else None
    except (IndexMalformed, struct.error, IndexError, ValueError):
        return None


def read_small_file(path: str, most: int = 0) -> bytes | None:
    """Return a regular file of at most 20 MB, or its first `most` bytes; None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(most or _MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) <= _MAX_BYTES else None


def _require(is_met: bool) -> None:
    if not is_met:
        raise IndexMalformed


def _read_entries(data: bytes, id_bytes: int) -> _Entries:
    signature, version, count = struct.unpack_from(">4sII", data)
    _require(signature == b"DIRC" and version in (2, 3, 4))
    limit = len(data) - id_bytes
    flags_at = _FIXED_BYTES + id_bytes
    files: list[tuple[bytes, str]] = []
    submodules: list[str] = []
    starts: dict[int, int] = {}
    whole_names: set[int] = set()
    at, name, last = _HEADER_BYTES, b"", (b"", -1)
    for number in range(count):
        starts[at] = number
        (mode,) = struct.unpack_from(">I", data, at + 24)
        (flags,) = struct.unpack_from(">H", data, at + flags_at)
        _require(mode in _KNOWN_MODES)
        name_at = at + flags_at + 2
        if flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", data, name_at)
            _require(version > 2 and not more & ~_KNOWN_EXTENDED)
            name_at += 2
        prefix = b""
        if version == 4:
            dropped, name_at = _read_offset(data, name_at)
            _require(dropped <= len(name))
            if dropped == len(name):
                whole_names.add(at)
            prefix = name[: len(name) - dropped]
        end = data.index(0, name_at)
        name = prefix + data[name_at:end]
        _require(bool(name) and min(len(name), _NAME_LENGTH) == flags & _NAME_LENGTH)
        after = end + 1 if version == 4 else at + ((end - at + 8) & ~7)
        _require(after <= limit and not any(data[end:after]))
        place = (name, (flags & _STAGES) >> 12)
        _require(last < place and (last[0] != name or (last[1] > 0 and place[1] > 0)))
        if mode == _GITLINK:
            submodules.append(os.fsdecode(name))
        else:
            files.append((data[at + _FIXED_BYTES : at + flags_at], os.fsdecode(name)))
        at, last = after, place
    return _Entries(tuple(files), tuple(dict.fromkeys(submodules)), starts, frozenset(whole_names), at)


def _read_offset(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length number in git's offset encoding, and the position after it."""
    byte = data[at]
    value = byte & 127
    at += 1
    while byte & 128:
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 127)
        at += 1
        _require(value < _MAX_BYTES)
    return value, at


def _check_extensions(data: bytes, entries: _Entries, id_bytes: int) -> None:
    """Raise IndexMalformed unless the rest consists of known extensions that agree with the entries."""
    at, limit = entries.end, len(data) - id_bytes
    seen: set[bytes] = set()
    is_version_4 = data[7] == 4
    while at < limit:
        kind, size = struct.unpack_from(">4sI", data, at)
        body, at = at + 8, at + 8 + size
        _require(at <= limit and kind in _KNOWN_EXTENSIONS and kind not in seen)
        seen.add(kind)
        if kind == b"EOIE":
            (offset,) = struct.unpack_from(">I", data, body)
            _require(size == 4 + id_bytes and offset == entries.end)
        elif kind == b"IEOT":
            _check_blocks(data[body:at], entries, is_version_4)
    _require(at == limit)


def _check_blocks(table: bytes, entries: _Entries, is_version_4: bool) -> None:
    """Check the table of blocks, which lets git read them in parallel: they must cover the entries one by one."""
    _require(len(table) % 8 == 4 and table[:4] == b"\0\0\0\1")
    number = 0
    for offset, size in struct.iter_unpack(">II", table[4:]):
        _require(entries.starts.get(offset) == number)
        _require(not is_version_4 or offset in entries.whole_names)
        number += size
    _require(number == len(entries.starts))


def _check_sum(data: bytes, id_bytes: int) -> None:
    """Check the checksum at the end. Zeros mean that none was computed (`index.skipHash`)."""
    if not any(data[-id_bytes:]):
        return
    from hashlib import sha1, sha256

    digest = (sha1 if id_bytes == 20 else sha256)(data[:-id_bytes]).digest()
    _require(digest == data[-id_bytes:])
