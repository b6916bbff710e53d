"""Which mounts let one command write the paths that the user granted it, and nothing else that exists.

A folder is granted by making it writable. A file, or a path to be created or removed, needs a writable parent: all
other entries of the parent are then mounted read-only, so that of what exists only the granted path can change.
"""

import os
from collections.abc import Iterable

from msgspec import Struct

from odin.core.path_names import contains

_MAX_ENTRIES = 200
"""A parent with more entries is not made writable: each entry needs a mount."""

_SYSTEM_FOLDERS = ("/dev", "/proc", "/sys", "/run", "/var/run")


class GrantedFolder(Struct, frozen=True):
    """A folder (or file) to mount writable, and the entries of it that are `kept` read-only."""

    path: str
    kept: tuple[str, ...] = ()


def can_grant(path: str, root: str, home: str) -> bool:
    """True if a resolved path can be granted: it is no system folder and contains neither the project nor the home."""
    if path == "/" or any(contains(path, place) for place in (root, home)):
        return False
    if any(contains(folder, path) for folder in _SYSTEM_FOLDERS) or os.path.realpath(path) != path:
        return False
    return os.path.exists(path) or _can_open_parent(_find_existing_parent(path), home)  # noqa: PTH110


def plan_grants(paths: Iterable[str], home: str, *, removes: bool) -> tuple[GrantedFolder, ...]:
    """Return what to mount for paths that can be granted, outer folders first.

    `removes`: the command may remove or move them.
    """
    free: dict[str, list[str]] = {}
    whole: list[str] = []
    for path in drop_inner_paths(paths):
        parent = _find_existing_parent(path)
        is_folder = os.path.isdir(path) and not removes  # noqa: PTH112
        if not is_folder and _can_open_parent(parent, home):
            free.setdefault(parent, []).append(path)
        else:
            whole.append(path)
    mounts = [GrantedFolder(path) for path in whole]
    for parent, granted in free.items():
        entries = [entry for entry in _list_entries(parent) if not any(contains(entry, path) for path in granted)]
        mounts.append(GrantedFolder(parent, tuple(entry for entry in entries if entry not in whole)))
    return tuple(sorted(mounts, key=lambda mount: mount.path.count("/")))


def drop_inner_paths(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not lie in another one of them."""
    kept: list[str] = []
    for path in sorted(dict.fromkeys(paths), key=len):
        if not any(contains(other, path) for other in kept):
            kept.append(path)
    return kept


def _find_existing_parent(path: str) -> str:
    """Return the folder in which this path, or the first missing folder above it, is or would be created."""
    parent = path.rpartition("/")[0]
    while parent and not os.path.lexists(parent):
        parent = parent.rpartition("/")[0]
    return parent or "/"


def _can_open_parent(parent: str, home: str) -> bool:
    """True if the entries of a folder can be mounted one by one. New files in the home could be start-up files."""
    if parent in ("/", home) or not os.path.isdir(parent):  # noqa: PTH112
        return False
    try:
        with os.scandir(parent) as entries:
            listed = [entry for _, entry in zip(range(_MAX_ENTRIES + 1), entries, strict=False)]
    except OSError:
        return False
    return len(listed) <= _MAX_ENTRIES and not any(entry.is_symlink() for entry in listed)


def _list_entries(folder: str) -> list[str]:
    try:
        return sorted(f"{folder.rstrip('/')}/{name}" for name in os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []
