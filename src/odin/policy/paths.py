"""Where a path really leads: inside the project or not, and whether changing it could make something run later."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from odin.policy.untouchable import untouchable

_STREAMS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
_UNREAL = ("/proc", "/sys", "/dev")
"""Trees that hold no files: what is read there is made up by the system, and may be its secrets or never end."""

_HOME = re.compile(r"~[\w.-]*(/|$)")
_OWN = (
    ("ODIN_CONFIG_DIR", ""),
    ("ODIN_STATE_DIR", ""),
    ("ODIN_CACHE_DIR", ""),
    ("XDG_CONFIG_HOME", "/odin"),
    ("XDG_STATE_HOME", "/odin"),
    ("XDG_CACHE_HOME", "/odin"),
)
"""Variables that move the folders in which Odin keeps its rules and its records, and what follows their values."""


def joined(cwd: str, path: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"


def real(path: str, cwd: str) -> str | None:
    """The path with `..` and symbolic links resolved as far as it exists; None when it cannot be a path."""
    try:
        return os.path.realpath(joined(cwd, path))
    except (ValueError, OSError):
        return None


def contains(root: str, path: str) -> bool:
    """Whether a resolved path is the folder or lies in it, compared by components: /proj-evil is not in /proj."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def inside(path: str, root: str, cwd: str = "") -> bool:
    """Whether a path, wherever its links lead, stays in the root. A leading `~` is somebody's home."""
    if path.startswith("~") and _HOME.match(path):
        return False
    found = real(path, cwd or root)
    if found is None:
        return False
    if contains(root, found):  # what is resolved lies below no link, so that the root is resolved as well
        return True
    top = real(root, "/")
    return top is not None and top != root and contains(top, found)


def is_stream(path: str) -> bool:
    """The null device and the standard streams belong to nobody."""
    return path in _STREAMS


def is_folder(path: str) -> bool:
    return stat.S_ISDIR(_mode(path))


def special(path: str, cwd: str) -> bool:
    """A pipe, socket or device, or what only looks like a file in /proc, /sys and /dev: reading it may never end."""
    full = joined(cwd, path)
    mode = _mode(full)
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return True
    found = real(full, "/")
    return found is not None and any(contains(top, found) for top in _UNREAL) and not contains("/dev/shm", found)


def shared(path: str, cwd: str) -> bool:
    """Whether a file has a second name: what is written to it also appears there, which may be anywhere."""
    try:
        found = os.stat(joined(cwd, path))  # noqa: PTH116
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _mode(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


def protected(path: str, root: str, cwd: str = "") -> str:
    """The part of a path that makes it one to ask about, or "".

    Such files make other programs run something, or are Odin's own rules and records. What lies above the root is not
    the path's own doing and does not count.
    """
    top = real(root, "/") or root
    there = cwd or top
    written = os.path.normpath(joined(there, path))
    for form in (written, real(path, there) or written):
        name = untouchable((form[len(top) :] if contains(top, form) else form).split("/"))
        if name:
            return name
        if any(contains(folder, form) and not contains(folder, top) for folder in _own_folders()):
            return "Odin's own folder"
    return ""


def _own_folders() -> Iterator[str]:
    for variable, below in _OWN:
        value = os.environ.get(variable)
        if value:
            yield os.path.realpath(os.path.expanduser(value) + below)  # noqa: PTH111
