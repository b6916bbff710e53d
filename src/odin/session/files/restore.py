"""Putting one path back as it was: at once, never through a link, and never over what is not expected there."""

import contextlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from odin.core.event import FileState
from odin.session.files.filestate import decode_path

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
