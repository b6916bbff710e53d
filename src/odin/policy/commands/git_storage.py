"""Finds links in a git folder. They could lead to any other repository or file, which git would then print."""

import os
import stat
import time
from collections.abc import Callable

_UNREAD = frozenset(("hooks", "lfs", "annex", "modules", "worktrees", "svn"))
"""Folders in a git folder that git does not print. Modules and worktrees are checked when git enters them."""

_MAX_FOLDERS = 20_000
_UNSETTLED_NS = 50_000_000
"""What changed this recently may change again within the resolution of timestamps."""

FolderTimes = tuple[int, int]
"""inode and ctime."""

_plain_folders: dict[str, tuple[FolderTimes, tuple[str, ...]]] = {}
"""Folders without links, and their subfolders."""


def times_of(path: str) -> FolderTimes | None:
    """Return a value that changes when an entry of the folder is added, removed or replaced."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (status.st_ino, status.st_ctime_ns) if stat.S_ISDIR(status.st_mode) else None


def find_link(store: str, note: Callable[[str], None]) -> str:
    """Return the first link in a git folder, or "". `note` gets every folder that was looked at."""
    queue = [store]
    for seen in range(_MAX_FOLDERS + 1):
        if not queue:
            return ""
        if seen == _MAX_FOLDERS:
            break
        folder = queue.pop()
        note(folder)
        found, subfolders = _list_plain_folder(folder)
        if found:
            return found
        queue.extend(path for path in subfolders if folder != store or path[len(store) + 1 :] not in _UNREAD)
    return store  # too large to say


def _list_plain_folder(folder: str) -> tuple[str, tuple[str, ...]]:
    """Return a link in the folder, or "", and the subfolders."""
    times = times_of(folder)
    known = _plain_folders.get(folder)
    if known is not None and known[0] == times:
        return "", known[1]
    subfolders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    return entry.path, ()
                if entry.is_dir(follow_symlinks=False):
                    subfolders.append(entry.path)
    except OSError:
        return folder, ()
    if len(_plain_folders) > _MAX_FOLDERS:
        _plain_folders.clear()
    if times is not None and is_settled(times[1]):
        _plain_folders[folder] = (times, tuple(subfolders))
    return "", tuple(subfolders)


def is_settled(ctime_ns: int) -> bool:
    """True if a later change would also change the timestamp."""
    return ctime_ns < time.time_ns() - _UNSETTLED_NS
