"""Resolve paths: do they stay inside the project, and are they protected or special files?"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from odin.core.path_names import contains, find_protected_name

_STREAMS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
_VIRTUAL_TREES = ("/proc", "/sys", "/dev")
"""Virtual file systems: reading from them may reveal system secrets or never end."""

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
    """Return the path with `..` and symbolic links resolved, or None if it is not a valid path."""
    try:
        return os.path.realpath(join_path(cwd, path))
    except (ValueError, OSError):
        return None


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
    for form in (written, resolve_path(path, folder) or written):
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
