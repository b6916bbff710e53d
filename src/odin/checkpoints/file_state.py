"""The state of one path: how it is described, compared and restored.

Symbolic links are never followed, neither at the end of a path nor on the way to it: a link is a state of its own, and
its target is another path. A file is restored atomically and never over unexpected content, relative to the descriptor
of its folder, so that a link put into its path meanwhile does not redirect it.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator

from odin.core.event_values import FileState
from odin.core.path_names import decode_path, encode_path, make_temporary_name
from odin.policy.paths import OpenFolder, PathChanged, name_in, open_parent, read_status

ContentHash = Callable[[str, os.stat_result], str]
"""Returns the SHA-256 of a regular file, or "" if it is unreadable or too large."""

LINKED_FOLDER = "a folder above it is a link now"

UNHASHED_PREFIX = "stat:"
"""Prefix of `sha256` for a file that was not read and is identified by size, mtime and inode."""


def make_absent_state(path: str) -> FileState:
    return FileState(encode_path(path), "absent")


def read_file_state(path: str, content: ContentHash) -> FileState:
    try:
        info = read_status(path)
    except (FileNotFoundError, NotADirectoryError):
        return make_absent_state(path)
    except OSError:
        return FileState(encode_path(path), "other")
    return describe_path(path, info, content)


def is_behind_link(path: str) -> bool:
    """True if a folder above the path of a state is a link."""
    try:
        read_status(decode_path(path))
    except PathChanged:
        return True
    except OSError:
        return False
    return False


def describe_path(path: str, info: os.stat_result, content: ContentHash) -> FileState:
    name, mode = encode_path(path), stat.S_IMODE(info.st_mode)
    if stat.S_ISREG(info.st_mode):
        sha256 = content(path, info)
        if sha256:
            return FileState(name, "file", sha256, mode)
        return FileState(name, "file", make_signature(info), mode, saved=False)
    if stat.S_ISDIR(info.st_mode):
        return FileState(name, "folder", mode=mode)
    if stat.S_ISLNK(info.st_mode):
        try:
            with open_parent(path) as folder:
                return FileState(name, "link", target=encode_path(os.readlink(name_in(path), dir_fd=folder.fd)))
        except OSError:
            return make_absent_state(path)
    return FileState(name, "other")


def make_signature(info: os.stat_result) -> str:
    return f"{UNHASHED_PREFIX}{info.st_size}:{info.st_mtime_ns}:{info.st_ino}"


def is_same_state(one: FileState, other: FileState) -> bool:
    """True if kind, content, mode and link target are equal. Whether the content is saved does not matter."""
    return (one.kind, one.sha256, one.mode, one.target) == (other.kind, other.sha256, other.mode, other.target)


def list_missing_folders(path: str) -> Iterator[str]:
    """Return the missing folders above the path, innermost first."""
    folder = os.path.dirname(path)  # noqa: PTH120
    while folder and folder != os.path.dirname(folder) and not os.path.lexists(folder):  # noqa: PTH120
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def get_changed_time(now: FileState) -> float:
    """When the path last changed; 0 if it is absent or a folder, which are always safe to restore."""
    if now.kind not in ("file", "link"):
        return 0.0
    try:
        return read_status(decode_path(now.path)).st_ctime
    except OSError:
        return 0.0


class RestoreFailed(Exception):
    """The path was not restored; the message is the reason."""


def remove_path(now: FileState) -> None:
    """Remove the path. A folder is removed only if it is empty."""
    path = decode_path(now.path)
    try:
        with open_parent(path) as folder:
            if now.kind == "folder":
                os.rmdir(name_in(path), dir_fd=folder.fd)
            else:
                folder.unlink(name_in(path), missing_ok=True)
    except PathChanged as error:
        raise RestoreFailed(LINKED_FOLDER) from error
    except OSError as error:
        raise RestoreFailed(f"it cannot be removed: {error.strerror or error}") from error


def restore_path(target: FileState, fetch: Callable[[str], bytes], *, sync: bool = True) -> None:
    """Restore the path. Missing folders are created; a file appears complete or not at all.

    With `sync` False, the caller must sync the disk itself, which is faster for many files.
    """
    path = decode_path(target.path)
    name = name_in(path)
    try:
        with open_parent(path, create=True) as folder:
            if target.kind == "folder":
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder.fd)
                fd = folder.open_file(name, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fchmod(fd, target.mode)
                finally:
                    os.close(fd)
            elif target.kind == "link":
                temporary = make_temporary_name(name)
                os.symlink(decode_path(target.target), temporary, dir_fd=folder.fd)
                try:
                    folder.rename(temporary, name)
                finally:
                    folder.unlink(temporary, missing_ok=True)
            else:
                _restore_file(folder, name, fetch(target.sha256), target.mode, sync)
    except PathChanged as error:
        raise RestoreFailed(LINKED_FOLDER) from error
    except OSError as error:
        raise RestoreFailed(f"it cannot be written: {error.strerror or error}") from error


def _restore_file(folder: OpenFolder, name: str, data: bytes, mode: int, sync: bool) -> None:
    """Replace the file. A file with several hard links is rewritten in place, after saving a copy next to it."""
    old = _open_regular(folder, name)
    temporary = make_temporary_name(name)
    fd = folder.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_content(fd, data, mode, old, sync=sync)
        if old is not None and os.fstat(old).st_nlink > 1:
            _write_content(folder.open_file(name, os.O_WRONLY), data, mode)
        else:
            folder.rename(temporary, name)
    finally:
        folder.unlink(temporary, missing_ok=True)
        if old is not None:
            os.close(old)


def _write_content(fd: int, data: bytes, mode: int, like: int | None = None, *, sync: bool = True) -> None:
    """Write the whole content of an open file and close it. It gets the owner and the attributes of the file `like`."""
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.truncate()
        if like is not None:
            own, current = os.fstat(fd), os.fstat(like)
            with contextlib.suppress(OSError):
                if (own.st_uid, own.st_gid) != (current.st_uid, current.st_gid):
                    os.fchown(fd, current.st_uid, current.st_gid)
                for name in os.listxattr(like) if hasattr(os, "listxattr") else ():
                    os.setxattr(fd, name, os.getxattr(like, name))
        os.fchmod(fd, mode)
        file.flush()
        if sync:
            os.fsync(fd)


def _open_regular(folder: OpenFolder, name: str) -> int | None:
    """Open the regular file of this name, to read it; None if there is none."""
    try:
        fd = folder.open_file(name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None
