"""Resolve paths (do they stay inside the project, are they protected or special files?) and open what was checked.

A path is resolved as the kernel does it: component by component, and `..` after the links before it. `resolve_given`
does that once for a tool call; the permission rules and the tool then use the same result.

A resolved path contains no link. Between the check and its use another process may put one there, for example by
exchanging a folder with a link to another place. So a path is opened folder by folder, each relative to the descriptor
of the folder above it and with O_NOFOLLOW. A link on the way raises `PathChanged`. From then on, everything happens
relative to the descriptor of the folder: it stays the folder that was checked, whatever its name means by now. macOS
opens a path without links in one call (O_NOFOLLOW_ANY).
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from odin.core.lazy_pattern import compile_lazily
from odin.core.path_names import contains
from odin.core.tool import ResolvedPath, Target

_STREAMS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/random", "/dev/urandom")
_VIRTUAL_TREES = ("/proc", "/sys", "/dev")
"""Virtual file systems: reading from them may reveal system secrets or never end."""

_MAX_LINKS = 40
"""Links the kernel follows in one path."""

_HOME = compile_lazily(r"~[\w.-]*(/|$)")

P = ParamSpec("P")
R = TypeVar("R")

_results: ContextVar[dict[Any, Any] | None] = ContextVar("results", default=None)
"""What one check has looked up: where a path leads, which program a name means, whether a command is read-only.

Several rules ask the same. Results are kept only while one call is checked, so the next check looks again.
"""


def keep_lookups(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that checks a call: while it runs, each lookup is made once."""

    @wraps(method)
    def evaluate(*args: P.args, **options: P.kwargs) -> R:
        if _results.get() is not None:
            return method(*args, **options)
        token = _results.set({})
        try:
            return method(*args, **options)
        finally:
            _results.reset(token)

    return evaluate


def look_up_once(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a lookup with hashable arguments. Outside a check it is made every time."""

    @wraps(function)
    def look_up(*args: P.args, **options: P.kwargs) -> R:
        results = _results.get()
        if results is None or options:
            return function(*args, **options)
        key = (function, *args)
        if key not in results:
            results[key] = function(*args, **options)
        return results[key]

    return look_up


def join_path(cwd: str, path: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"


@look_up_once
def resolve_path(path: str, cwd: str) -> str | None:
    """Return the path with `..` and symbolic links resolved, or None if it is not a valid path or leads in a circle."""
    try:
        return follow_links(join_path(cwd, path))
    except (ValueError, OSError):
        return None


def follow_links(path: str) -> str:
    """Return an absolute path as the kernel resolves it. Components that do not exist are kept.

    Raise OSError if links lead in a circle, and ValueError if the path contains characters that no path can contain.
    """
    resolved, links = "", 0
    rest = path.split("/")[::-1]
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            resolved = resolved.rpartition("/")[0]
            continue
        here = f"{resolved}/{name}"
        # Where a link leads; None for anything else, and for what cannot be looked at.
        try:
            target = os.readlink(here) if stat.S_ISLNK(os.lstat(here).st_mode) else None  # noqa: PTH115
        except OSError:
            target = None
        if target is None:
            resolved = here
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), here)
        rest += target.split("/")[::-1]
        if target.startswith("/"):
            resolved = ""
    return resolved or "/"


def resolve_given(path: str, cwd: str, home: str, *, on_links: bool = False) -> ResolvedPath:
    """Resolve a path of a tool call. With `on_links`, a link at its end is kept: the tool acts on the link itself.

    A leading `~` is the home folder; other relative paths start at `cwd`.
    """
    if "\0" in path:
        return ResolvedPath(path, "/", "/", path, f"{path!r} contains a NUL byte, so it is not a path.")
    if not path:
        return ResolvedPath(path, "/", "/", path, "The path is empty.")
    full = join_path(cwd, home + path[1:] if path == "~" or path.startswith("~/") else path)
    folder, _, name = full.rpartition("/")
    try:
        target = place = follow_links(full)
        if on_links and name not in ("", ".", ".."):
            place = f"{follow_links(folder).rstrip('/')}/{name}"
    except OSError:
        why = f"{path} leads nowhere: its symbolic links lead in a circle."
        return ResolvedPath(path, "/", "/", os.path.normpath(full), why)
    except ValueError:
        return ResolvedPath(path, "/", "/", path, f"{path!r} is not a path.")
    shown = place if ".." in full.split("/") else f"/{os.path.normpath(full).lstrip('/')}"
    return ResolvedPath(path, place, target, shown)


def resolve_target(target: Target, cwd: str, home: str) -> Target:
    """Return the target with its paths resolved, once."""
    if target.resolved or not target.paths:
        return target
    found = tuple(resolve_given(path, cwd, home, on_links=target.on_links) for path in target.paths)
    return replace(target, resolved=found)


def is_inside(path: str, root: str, cwd: str = "") -> bool:
    """True if the resolved path lies in the root. A leading `~` is a home folder, so it does not."""
    if path.startswith("~") and _HOME.match(path):
        return False
    resolved = resolve_path(path, cwd or root)
    if resolved is None:
        return False
    if contains(root, resolved):  # a resolved path has no links, so this root needs no resolving either
        return True
    top = resolve_path(root, "/")
    return top is not None and top != root and contains(top, resolved)


def is_stream(path: str) -> bool:
    """True for the standard streams and the devices that hold nothing of anyone: null, zero and random."""
    return path in _STREAMS


def is_folder(path: str) -> bool:
    return stat.S_ISDIR(_get_mode(path))


def is_special_file(path: str, cwd: str) -> bool:
    """True for pipes, sockets, devices and files in /proc, /sys and /dev: reading them may never end."""
    full = join_path(cwd, path)
    mode = _get_mode(full)
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return True
    real = resolve_path(full, "/")
    return real is not None and any(contains(top, real) for top in _VIRTUAL_TREES) and not contains("/dev/shm", real)


def has_hard_links(path: str, cwd: str) -> bool:
    """True if a file has several hard links: writing to it also changes the others, which may be anywhere."""
    try:
        status = os.stat(join_path(cwd, path))  # noqa: PTH116
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _get_mode(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


_WHOLE_PATH: int = getattr(os, "O_NOFOLLOW_ANY", 0)
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED: int = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A folder that is only passed through: with O_PATH it need not be readable."""

_MAX_OPEN_FOLDERS = 100
"""Folders that a cursor holds open."""

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

    def get_path(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def open_file(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor. Raise PathChanged if the name is a link."""
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self.fd)
        except OSError as error:
            raise _explain(error, name, self.fd, self.get_path(name)) from None

    def read_status(self, name: str) -> os.stat_result:
        """Return the status of the name itself."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            raise _explain(error, name, self.fd, self.get_path(name)) from None

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


class FolderCursor:
    """Opens folders below another one without following links.

    The folders above the last one stay open, so entering folders in sorted order opens each of them once.
    """

    def __init__(self, top: OpenFolder) -> None:
        self._fds = [top.fd]
        self._names: list[str] = []

    def __enter__(self) -> "FolderCursor":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave(0)

    def enter(self, path: str) -> int:
        """Return the descriptor of a folder, valid until the next call. Raise OSError if a part of the path is a link
        or no folder."""
        names = path.split("/") if path else []
        shared = 0
        for ours, wanted in zip(self._names, names, strict=False):
            if ours != wanted:
                break
            shared += 1
        self._leave(shared)
        for name in names[shared:]:
            fd = os.open(name, _PASSED, dir_fd=self._fds[-1])
            if len(self._fds) > _MAX_OPEN_FOLDERS:
                os.close(self._fds.pop())
                name = f"{self._names.pop()}/{name}"
            self._fds.append(fd)
            self._names.append(name)
        return self._fds[-1]

    def _leave(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._fds.pop())


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


def open_for_reading(path: str) -> int:
    """Open the file at a resolved path and return its descriptor. A pipe does not block.

    Raise PathChanged if a part of the path is a link.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK
    if _WHOLE_PATH:
        return _open_whole(path, flags)
    with open_parent(path) as folder:
        return folder.open_file(name_in(path), flags)


def read_status(path: str) -> os.stat_result:
    """Return the status of a resolved path. Raise PathChanged if a folder in it is a link; the path itself may be."""
    with open_parent(path) as folder:
        return folder.read_status(name_in(path))


def _open_whole(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | _WHOLE_PATH | os.O_CLOEXEC)
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
