"""Resolve paths: do they stay inside the project, and are they protected or special files?

A path is resolved as the kernel does it: component by component, and `..` after the links before it. `resolve_given`
does that once for a tool call; the permission rules and the tool then use the same result (see `descriptors`).
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from odin.core.path_names import contains, find_protected_name
from odin.core.tool import ResolvedPath, Subject

_STREAMS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
_VIRTUAL_TREES = ("/proc", "/sys", "/dev")
"""Virtual file systems: reading from them may reveal system secrets or never end."""

_MAX_LINKS = 40
"""Links the kernel follows in one path."""

_HOME = re.compile(r"~[\w.-]*(/|$)")
_OWN_FOLDER_VARIABLES = (
    ("ODIN_CONFIG_DIR", ""),
    ("ODIN_STATE_DIR", ""),
    ("ODIN_CACHE_DIR", ""),
    ("XDG_CONFIG_HOME", "/odin"),
    ("XDG_STATE_HOME", "/odin"),
    ("XDG_CACHE_HOME", "/odin"),
)
"""Variables that move Odin's own folders, and the path below their values."""


def join_path(cwd: str, path: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"


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
        target = _read_link(here)
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


def _read_link(path: str) -> str | None:
    """Return where a link leads; None for anything else, and for what cannot be looked at."""
    try:
        return os.readlink(path) if stat.S_ISLNK(os.lstat(path).st_mode) else None  # noqa: PTH115
    except OSError:
        return None


def resolve_given(path: str, cwd: str, *, on_links: bool = False) -> ResolvedPath:
    """Resolve a path of a tool call. With `on_links`, a link at its end is kept: the tool acts on the link itself.

    A leading `~` is a home folder; other relative paths start at `cwd`.
    """
    if "\0" in path:
        return ResolvedPath(path, "/", "/", path, f"{path!r} contains a NUL byte, so it is not a path.")
    if not path:
        return ResolvedPath(path, "/", "/", path, "The path is empty.")
    full = join_path(cwd, os.path.expanduser(path) if path.startswith("~") else path)  # noqa: PTH111
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


def resolve_subject(subject: Subject, cwd: str) -> Subject:
    """Return the subject with its paths resolved, once."""
    if subject.resolved or not subject.paths:
        return subject
    found = tuple(resolve_given(path, cwd, on_links=subject.on_links) for path in subject.paths)
    return replace(subject, resolved=found)


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
    """True for the null device and the standard streams."""
    return path in _STREAMS


def is_folder(path: str) -> bool:
    return stat.S_ISDIR(_mode_of(path))


def is_special_file(path: str, cwd: str) -> bool:
    """True for pipes, sockets, devices and files in /proc, /sys and /dev: reading them may never end."""
    full = join_path(cwd, path)
    mode = _mode_of(full)
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


def _mode_of(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


def find_protected_part(path: str, root: str, cwd: str = "") -> str:
    """Return the part of a path that makes it protected, or "".

    Protected files make other programs run something, or belong to Odin. Folders above the root do not count.
    """
    top = resolve_path(root, "/") or root
    folder = cwd or top
    written = os.path.normpath(join_path(folder, path))
    return find_protected_form((written, resolve_path(path, folder) or written), top)


def find_protected_form(forms: Iterable[str], top: str) -> str:
    """Return the part that makes one of these absolute paths protected, or "". `top` is the resolved project root."""
    for form in dict.fromkeys(forms):
        name = find_protected_name((form[len(top) :] if contains(top, form) else form).split("/"))
        if name:
            return name
        if any(contains(own, form) and not contains(own, top) for own in _list_own_folders()):
            return "Odin's own folder"
    return ""


def _list_own_folders() -> Iterator[str]:
    for variable, below in _OWN_FOLDER_VARIABLES:
        value = os.environ.get(variable)
        if value:
            yield os.path.realpath(os.path.expanduser(value) + below)  # noqa: PTH111
