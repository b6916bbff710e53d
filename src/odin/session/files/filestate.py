"""One path at one moment: how it is written down and told from another moment.

Nothing here follows a symbolic link: a link is a state of its own, and the file behind it is another path.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator

from odin.core.event import FileState

ContentHash = Callable[[str, os.stat_result], str]
"""The SHA-256 of a regular file's bytes, or "" when they are out of reach or too many."""

UNHASHED_PREFIX = "stat:"
"""What the `sha256` of a file begins with whose bytes were not read: it is known by size and times only."""

_BYTE_BASE = 0x10FF00


def encode_path(path: str) -> str:
    """The path as text that JSON can hold, also where its bytes are not UTF-8. `unspelled` gives the path back.

    Such bytes become characters from the very end of Unicode; real characters from there are written as bytes too.
    """
    return path if path.isascii() else re.sub("[\udc80-\udcff\U0010ff00-\U0010ffff]", _encode_match, path)


def _encode_match(found: re.Match[str]) -> str:
    return "".join(chr(_BYTE_BASE + byte) for byte in found[0].encode("utf-8", "surrogateescape"))


def decode_path(text: str) -> str:
    return text if text.isascii() else re.sub("[\U0010ff00-\U0010ffff]+", _decode_match, text)


def _decode_match(found: re.Match[str]) -> str:
    return bytes(ord(char) - _BYTE_BASE for char in found[0]).decode("utf-8", "surrogateescape")


def resolved_path_of(path: str) -> str:
    """The path with every link in its folders resolved, but not a link at its end."""
    folder, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def absent_state_of(path: str) -> FileState:
    return FileState(encode_path(path), "absent")


def state_of(path: str, content: ContentHash) -> FileState:
    """How the path is now."""
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return absent_state_of(path)
    except OSError:
        return FileState(encode_path(path), "other")
    return describe_path(path, info, content)


def describe_path(path: str, info: os.stat_result, content: ContentHash) -> FileState:
    name, mode = encode_path(path), stat.S_IMODE(info.st_mode)
    if stat.S_ISREG(info.st_mode):
        sha256 = content(path, info)
        if sha256:
            return FileState(name, "file", sha256, mode)
        return FileState(name, "file", signature_of(info), mode, saved=False)
    if stat.S_ISDIR(info.st_mode):
        return FileState(name, "folder", mode=mode)
    if stat.S_ISLNK(info.st_mode):
        try:
            return FileState(name, "link", target=encode_path(os.readlink(path)))  # noqa: PTH115
        except OSError:
            return absent_state_of(path)
    return FileState(name, "other")


def signature_of(info: os.stat_result) -> str:
    return f"{UNHASHED_PREFIX}{info.st_size}:{info.st_mtime_ns}:{info.st_ino}"


def is_same_state(one: FileState, other: FileState) -> bool:
    """Whether they are the same for whoever looks at the path. Where the bytes are kept does not matter."""
    return (one.kind, one.sha256, one.mode, one.target) == (other.kind, other.sha256, other.mode, other.target)


def list_missing_folders(path: str) -> Iterator[str]:
    """The folders above the path that do not exist, the nearest first."""
    folder = os.path.dirname(path)  # noqa: PTH120
    while folder and folder != os.path.dirname(folder) and not os.path.lexists(folder):  # noqa: PTH120
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def changed_time_of(now: FileState) -> float:
    """Since when the path is as it is. To bring back what is gone harms nobody, and a folder goes only when empty."""
    if now.kind not in ("file", "link"):
        return 0.0
    try:
        return os.lstat(decode_path(now.path)).st_ctime
    except OSError:
        return 0.0
