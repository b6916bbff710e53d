"""Where a path really leads: inside the project or not, and whether changing it could make something run later."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from odin.core.path_names import contains, find_protected_name

_STREAMS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
_VIRTUAL_TREES = ("/proc", "/sys", "/dev")
"""Trees that hold no files: what is read there is made up by the system, and may be its secrets or never end."""

_HOME = re.compile(r"~[\w.-]*(/|$)")
_OWN_FOLDER_VARIABLES = (
    ("ODIN_CONFIG_DIR", ""),
    ("ODIN_STATE_DIR", ""),
    ("ODIN_CACHE_DIR", ""),
    ("XDG_CONFIG_HOME", "/odin"),
    ("XDG_STATE_HOME", "/odin"),
    ("XDG_CACHE_HOME", "/odin"),
)
"""Variables that move the folders in which Odin keeps its rules and its records, and what follows their values."""


def join_path(cwd: str, path: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"


def resolve_path(path: str, cwd: str) -> str | None:
    """The path with `..` and symbolic links resolved as far as it exists; None when it cannot be a path."""
    try:
        return os.path.realpath(join_path(cwd, path))
    except (ValueError, OSError):
        return None


def is_inside(path: str, root: str, cwd: str = "") -> bool:
    """Whether a path, wherever its links lead, stays in the root. A leading `~` is somebody's home."""
    if path.startswith("~") and _HOME.match(path):
        return False
    found = resolve_path(path, cwd or root)
    if found is None:
        return False
    if contains(root, found):  # what is resolved lies below no link, so that the root is resolved as well
        return True
    top = resolve_path(root, "/")
    return top is not None and top != root and contains(top, found)


def is_stream(path: str) -> bool:
    """The null device and the standard streams belong to nobody."""
    return path in _STREAMS


def is_folder(path: str) -> bool:
    return stat.S_ISDIR(_mode_of(path))


def is_special_file(path: str, cwd: str) -> bool:
    """A pipe, socket or device, or what only looks like a file in /proc, /sys and /dev: reading it may never end."""
    full = join_path(cwd, path)
    mode = _mode_of(full)
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return True
    found = resolve_path(full, "/")
    return found is not None and any(contains(top, found) for top in _VIRTUAL_TREES) and not contains("/dev/shm", found)


def has_hard_links(path: str, cwd: str) -> bool:
    """Whether a file has a second name: what is written to it also appears there, which may be anywhere."""
    try:
        found = os.stat(join_path(cwd, path))  # noqa: PTH116
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _mode_of(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


def find_protected_part(path: str, root: str, cwd: str = "") -> str:
    """The part of a path that makes it one to ask about, or "".

    Such files make other programs run something, or are Odin's own rules and records. What lies above the root is not
    the path's own doing and does not count.
    """
    top = resolve_path(root, "/") or root
    there = cwd or top
    written = os.path.normpath(join_path(there, path))
    for form in (written, resolve_path(path, there) or written):
        name = find_protected_name((form[len(top) :] if contains(top, form) else form).split("/"))
        if name:
            return name
        if any(contains(folder, form) and not contains(folder, top) for folder in _list_own_folders()):
            return "Odin's own folder"
    return ""


def _list_own_folders() -> Iterator[str]:
    for variable, below in _OWN_FOLDER_VARIABLES:
        value = os.environ.get(variable)
        if value:
            yield os.path.realpath(os.path.expanduser(value) + below)  # noqa: PTH111
