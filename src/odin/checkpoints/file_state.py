"""One path at one moment: how it is written down and told from another moment.

Nothing here follows a symbolic link: a link is a state of its own, and the file behind it is another path.

Putting one path back as it was: at once, never through a link, and never over what is not expected there.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

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


_NAME_BYTES = 200


class RestoreFailed(Exception):
    """The path was left as it is; the words say why."""


def remove_path(now: FileState) -> None:
    """Remove what stands there, before something else comes to the place or because nothing was there.

    A folder goes only when it is empty: what is in it is somebody else's.
    """
    path = Path(decode_path(now.path))
    _refuse_linked_parent(path)
    try:
        if now.kind == "folder":
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise RestoreFailed(f"it cannot be removed: {error.strerror or error}") from error


def restore_path(target: FileState, fetch: Callable[[str], bytes], *, sync: bool = True) -> None:
    """Make the path what it was. Missing folders above it are made; a file appears whole or not at all.

    Without `sync` whoever puts very many brings them to the disk together.
    """
    path = Path(decode_path(target.path))
    _refuse_linked_parent(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if target.kind == "folder":
            path.mkdir(exist_ok=True)
            path.chmod(target.mode)
        elif target.kind == "link":
            temporary = _temporary_path_of(path)
            temporary.symlink_to(decode_path(target.target))
            _move_into_place(temporary, path)
        else:
            _restore_file(path, fetch(target.sha256), target.mode, sync)
    except OSError as error:
        raise RestoreFailed(f"it cannot be written: {error.strerror or error}") from error


def _refuse_linked_parent(path: Path) -> None:
    """A link among the folders above would lead the change to another place."""
    if os.path.realpath(path.parent) != str(path.parent):
        raise RestoreFailed("a folder above it is a link now")


def _restore_file(path: Path, data: bytes, mode: int, sync: bool) -> None:
    """A file with several hard links is rewritten in place, with the bytes safe beside it until that is done."""
    there = _get_regular_stat(path)
    temporary = _temporary_path_of(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_content(fd, data, mode, (path, there) if there is not None else None, sync=sync)
        if there is not None and there.st_nlink > 1:
            _write_content(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), data, mode)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_content(
    fd: int, data: bytes, mode: int, like: tuple[Path, os.stat_result] | None = None, *, sync: bool = True
) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.truncate()
        if like is not None:
            _keep_owner(fd, *like)
        os.fchmod(fd, mode)
        file.flush()
        if sync:
            os.fsync(fd)


def _keep_owner(fd: int, path: Path, there: os.stat_result) -> None:
    own = os.fstat(fd)
    with contextlib.suppress(OSError):
        if (own.st_uid, own.st_gid) != (there.st_uid, there.st_gid):
            os.fchown(fd, there.st_uid, there.st_gid)
        for name in os.listxattr(path) if hasattr(os, "listxattr") else ():
            os.setxattr(fd, name, os.getxattr(path, name))


def _move_into_place(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _get_regular_stat(path: Path) -> os.stat_result | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return info if stat.S_ISREG(info.st_mode) else None


def _temporary_path_of(path: Path) -> Path:
    short = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    return path.with_name(f".{short}.odin-{os.getpid()}-{time.time_ns():x}")
