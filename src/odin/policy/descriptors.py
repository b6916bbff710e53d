"""Opens resolved paths without following links, so that a tool acts on the file that was judged.

A resolved path contains no link. Between the judgement and its use another process may put one there, for example by
exchanging a folder with a link to another place. So a path is opened folder by folder, each relative to the descriptor
of the folder above it and with O_NOFOLLOW. A link on the way raises `PathChanged`. From then on, everything happens
relative to the descriptor of the folder: it stays the folder that was judged, whatever its name means by now. macOS
opens a path without links in one call (O_NOFOLLOW_ANY).
"""

import contextlib
import errno
import os
import stat
from types import TracebackType

_WHOLE_PATH: int = getattr(os, "O_NOFOLLOW_ANY", 0)
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED: int = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A folder that is only passed through: with O_PATH it need not be readable."""

_LINK_ERRORS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


class PathChanged(OSError):
    """A part of a resolved path is a link now."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "The path changed while it was being used", path)

    def __str__(self) -> str:
        return f"The path changed while it was being used: {self.filename} is a symbolic link now. Try again."


class OpenFolder:
    """A folder that is held open by its descriptor. Names are relative to it, and links are not followed."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __enter__(self) -> "OpenFolder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.fd)

    def path_of(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def open_file(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor. Raise PathChanged if the name is a link."""
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self.fd)
        except OSError as error:
            raise _explain(error, name, self.fd, self.path_of(name)) from None

    def status_of(self, name: str) -> os.stat_result:
        """Return the status of the name itself."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            raise _explain(error, name, self.fd, self.path_of(name)) from None

    def find(self, name: str) -> os.stat_result | None:
        """Return the status of the name itself, or None if it does not exist."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def list_names(self) -> list[str]:
        with OpenFolder(self.path, self.open_file(".", _LISTED)) as listed:
            return os.listdir(listed.fd)  # noqa: PTH208

    def unlink(self, name: str, *, missing_ok: bool = False) -> None:
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, source: str, name: str) -> None:
        os.rename(source, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)


def open_folder(path: str, *, readable: bool = False, create: bool = False, mode: int = 0o777) -> OpenFolder:
    """Open the folder at a resolved path. `readable` is needed to scan it.

    `create` makes it and its missing parents, with this mode. Raise PathChanged if a part of the path is a link.
    """
    if _WHOLE_PATH:
        try:
            return OpenFolder(path, _open_whole(path, os.O_RDONLY | os.O_DIRECTORY))
        except FileNotFoundError:
            if not create:
                raise
    names = [name for name in path.split("/") if name]
    last = _LISTED if readable else _PASSED
    fd = os.open("/", _PASSED if names else last)
    for at, name in enumerate(names, 1):
        try:
            inner = _enter_folder(name, fd, _PASSED if at < len(names) else last, mode if create else None)
        except OSError as error:
            raise _explain(error, name, fd, f"/{'/'.join(names[:at])}") from None
        finally:
            os.close(fd)
        fd = inner
    return OpenFolder(path, fd)


def _enter_folder(name: str, parent: int, flags: int, create_mode: int | None) -> int:
    """Open a folder in another one. If it does not exist and there is a `create_mode`, make it."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        if create_mode is None:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, create_mode, dir_fd=parent)
    return os.open(name, flags, dir_fd=parent)


def open_parent(path: str, *, create: bool = False) -> OpenFolder:
    """Open the folder that contains the file at a resolved path."""
    return open_folder(os.path.dirname(path), create=create)  # noqa: PTH120


def name_in(path: str) -> str:
    """Return the name of a resolved path in its folder."""
    return os.path.basename(path) or "."  # noqa: PTH119


def open_unlinked(path: str, flags: int, mode: int = 0o666) -> int:
    """Open the file at a resolved path and return its descriptor. Raise PathChanged if a part of the path is a link."""
    if _WHOLE_PATH:
        return _open_whole(path, flags, mode)
    with open_parent(path) as folder:
        return folder.open_file(name_in(path), flags, mode)


def open_for_reading(path: str) -> int:
    """Open the file at a resolved path. A pipe does not block."""
    return open_unlinked(path, os.O_RDONLY | os.O_NONBLOCK)


def status_of(path: str) -> os.stat_result:
    """Return the status of a resolved path. Raise PathChanged if a folder in it is a link; the path itself may be."""
    with open_parent(path) as folder:
        return folder.status_of(name_in(path))


def _open_whole(path: str, flags: int, mode: int = 0o666) -> int:
    try:
        return os.open(path, flags | _WHOLE_PATH | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathChanged(path) from None
        raise


def _explain(error: OSError, name: str, folder: int, path: str) -> OSError:
    """Return the error with the whole path, or PathChanged if the reason is a link."""
    if error.errno in _LINK_ERRORS and _is_link(name, folder):
        return PathChanged(path)
    return OSError(error.errno, error.strerror, path)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
