"""The submodules in the index of a repository: folders that git goes into when it is asked for the status."""

import os
import stat
import struct
from pathlib import Path

_MAX_INDEX_BYTES = 50_000_000
_GITLINK_MODE = b"\x00\x00\xe0\x00"
"""The mode of an entry that is a commit of another repository."""

_ID_WIDTHS = (20, 32)
_FIXED_BYTES = 40
_EXTENDED_FLAG = 0x4000
_NAME_LENGTH_MASK = 0xFFF


def list_submodules(path: str) -> list[str] | None:
    """The paths of all submodules in an index file; None when it cannot be read."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_INDEX_BYTES:
            return None
        data = Path(path).read_bytes()
    except OSError:
        return None
    if _GITLINK_MODE not in data:
        return [] if data[:4] == b"DIRC" else None
    for width in _ID_WIDTHS:
        links = _read_gitlinks(data, width)
        if links is not None:
            return links
    return None


def _read_gitlinks(data: bytes, width: int) -> list[str] | None:
    """Read the entries, supposing that ids have this many bytes."""
    if len(data) < 12 or data[:4] != b"DIRC":
        return None
    version, count = struct.unpack(">II", data[4:12])
    if version not in (2, 3, 4):
        return None
    at, name, found = 12, b"", list[str]()
    for _ in range(count):
        start = at
        head = at + _FIXED_BYTES + width
        if head + 2 > len(data):
            return None
        mode = data[at + 24 : at + 28]
        (flags,) = struct.unpack(">H", data[head : head + 2])
        at = head + (4 if flags & _EXTENDED_FLAG and version > 2 else 2)
        kept = 0
        if version == 4:
            dropped, at = _read_offset(data, at)
            kept = len(name) - dropped
        end = data.find(b"\0", at)
        if end < 0 or kept < 0:
            return None
        name = name[:kept] + data[at:end]
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        if mode[:2] != b"\0\0" or min(len(name), _NAME_LENGTH_MASK) != flags & _NAME_LENGTH_MASK:
            return None
        if mode == _GITLINK_MODE:
            found.append(name.decode("utf-8", "surrogateescape"))
    return found


def _read_offset(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as packs write offsets; and where the next field begins."""
    byte = data[at] if at < len(data) else 0
    value = byte & 127
    at += 1
    while byte & 128 and at < len(data):
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 127)
        at += 1
    return value, at
