"""The state of one path: how it is described, compared and restored.

Symbolic links are never followed: a link is a state of its own, and its target is another path. A file is restored
atomically, never through a link and never over unexpected content.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from odin.core.event_values import FileState

ContentHash = Callable[[str, os.stat_result], str]
"""Returns the SHA-256 of a regular file, or "" if it is unreadable or too large."""

UNHASHED_PREFIX = "stat:"
"""Prefix of `sha256` for a file that was not read and is identified by size, mtime and inode."""

_BYTE_BASE = 0x10FF00


def encode_path(path: str) -> str:
    """The path as valid Unicode, even if its bytes are not UTF-8. `decode_path` reverses it.

    Undecodable bytes become characters at the very end of Unicode; real characters from current are encoded too.
    """
    return path if path.isascii() else re.sub("[\udc80-\udcff\U0010ff00-\U0010ffff]", _encode_match, path)


def _encode_match(found: re.Match[str]) -> str:
    return "".join(chr(_BYTE_BASE + byte) for byte in found[0].encode("utf-8", "surrogateescape"))


def decode_path(text: str) -> str:
    return text if text.isascii() else re.sub("[\U0010ff00-\U0010ffff]+", _decode_match, text)


def _decode_match(found: re.Match[str]) -> str:
    return bytes(ord(char) - _BYTE_BASE for char in found[0]).decode("utf-8", "surrogateescape")


def resolved_path_of(path: str) -> str:
    """Resolve links in the folders of the path, but not the last component."""
    folder, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def absent_state_of(path: str) -> FileState:
    return FileState(encode_path(path), "absent")


def state_of(path: str, content: ContentHash) -> FileState:
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
    """True if kind, content, mode and link target are equal. Whether the content is saved does not matter."""
    return (one.kind, one.sha256, one.mode, one.target) == (other.kind, other.sha256, other.mode, other.target)


def list_missing_folders(path: str) -> Iterator[str]:
    """The missing folders above the path, innermost first."""
    folder = os.path.dirname(path)  # noqa: PTH120
    while folder and folder != os.path.dirname(folder) and not os.path.lexists(folder):  # noqa: PTH120
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def changed_time_of(now: FileState) -> float:
    """When the path last changed; 0 if it is absent or a folder, which are always safe to restore."""
    if now.kind not in ("file", "link"):
        return 0.0
    try:
        return os.lstat(decode_path(now.path)).st_ctime
    except OSError:
        return 0.0


_NAME_BYTES = 200


class RestoreFailed(Exception):
    """The path was not restored; the message is the reason."""


def remove_path(now: FileState) -> None:
    """Remove the path. A folder is removed only if it is empty, because its content is not ours."""
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
    """Restore the path. Missing folders are created; a file appears complete or not at all.

    With `sync` False, the caller must sync the disk itself, which is faster for many files.
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
    """Raise RestoreFailed if a folder above is a link, which would redirect the change."""
    if os.path.realpath(path.parent) != str(path.parent):
        raise RestoreFailed("a folder above it is a link now")


def _restore_file(path: Path, data: bytes, mode: int, sync: bool) -> None:
    """Replace the file. One with several hard links is rewritten in place, with a full copy next to it meanwhile."""
    current = _get_regular_stat(path)
    temporary = _temporary_path_of(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_content(fd, data, mode, (path, current) if current is not None else None, sync=sync)
        if current is not None and current.st_nlink > 1:
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


def _keep_owner(fd: int, path: Path, current: os.stat_result) -> None:
    own = os.fstat(fd)
    with contextlib.suppress(OSError):
        if (own.st_uid, own.st_gid) != (current.st_uid, current.st_gid):
            os.fchown(fd, current.st_uid, current.st_gid)
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
