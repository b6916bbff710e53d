"""Putting bytes in place so that a reader, or a crash, sees the old file or the new one and never half of one."""

import contextlib
import os
import stat
import time
from pathlib import Path

from odin.tools.path import Refusal

_NAME_BYTES = 200


def replace_file(target: str, data: bytes, before: bytes | None) -> int:
    """Write `data` to a file that held `before` (None: it did not exist). Returns its mtime in nanoseconds.

    `target` is a real path: a symbolic link given here would be replaced by a file.
    Mode, owner and extended attributes stay. A file with several hard links is rewritten in place, with the new bytes
    safe in a file beside it until that is done, because replacing it would cut the links.
    """
    if before is not None and not os.access(target, os.W_OK):
        raise Refusal(f"{target} is read-only.")
    temporary = _beside(target)
    try:
        links = _prepare(temporary, target, data, before)
        if links > 1:
            _rewrite(target, data)
        else:
            Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return Path(target).stat().st_mtime_ns


def _beside(target: str) -> str:
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:_NAME_BYTES])
    return f"{folder.rstrip('/')}/.{short}.odin-{os.getpid()}-{time.time_ns():x}"


def _prepare(temporary: str, target: str, data: bytes, before: bytes | None) -> int:
    """Fill the new file and check, as late as possible, that the old one is still what the edit was made from."""
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        _write_all(fd, data)
        info = _unchanged(target, before)
        if info is not None:
            _keep_attributes(fd, target, info)
        os.fsync(fd)
    finally:
        os.close(fd)
    return info.st_nlink if info else 1


def _unchanged(target: str, before: bytes | None) -> os.stat_result | None:
    try:
        fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if before is None:
            return None
        raise Refusal(f"{target} was deleted in the meantime. Nothing was written.") from None
    with os.fdopen(fd, "rb") as file:
        if before is None or file.read() != before:
            raise Refusal(f"{target} changed on disk in the meantime. Nothing was written. Read it again first.")
        return os.fstat(fd)


def _keep_attributes(fd: int, target: str, info: os.stat_result) -> None:
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (info.st_uid, info.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(fd, info.st_uid, info.st_gid)
    os.fchmod(fd, stat.S_IMODE(info.st_mode))
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(target):
                os.setxattr(fd, name, os.getxattr(target, name))


def _rewrite(target: str, data: bytes) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _write_all(fd, data)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
