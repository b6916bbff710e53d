"""The files of a project that may contain secrets (`.env`, keys), which commands that nobody approved must not see.

They are found by name, breadth-first, without packages and git folders. A folder is listed again only if its ctime has
changed; as even a look at all folders takes time, a result counts for many times as long as it took to find it.

A file that git has recorded as it is stays visible: commands can read it in the repository anyway, and git would take
an empty file in its place for a change.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from odin.core.path_names import contains, is_secret_folder, is_secret_path
from odin.sandbox.protected_files import INSTALLED, is_settled, locate_git_folders

_MAX_ENTRIES = 20_000
_MAX_FOUND = 200
"""Each needs a mount."""

_MAX_SECONDS = 0.5
_VALIDITY = 50
"""So looking takes at most 2 % of the time."""


class SecretFiles:
    """`roots` are resolved folders."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._found: tuple[str, ...] = ()
        self._valid_until = 0.0
        self._listings: dict[str, tuple[tuple[int, int], int, list[str], list[str]]] = {}
        """By folder: inode and ctime, the number of entries, its secrets and its folders."""

    def find(self) -> tuple[str, ...]:
        """Return their real paths, those near the roots first. A folder such as `.ssh` stands for all that is in it."""
        began = time.monotonic()
        if began >= self._valid_until:
            self._found = self._search(began + _MAX_SECONDS)
            now = time.monotonic()
            self._valid_until = now + _VALIDITY * (now - began)
        return self._found

    def _search(self, deadline: float) -> tuple[str, ...]:
        found: list[str] = []
        level, left = list(self._roots), _MAX_ENTRIES
        seen: dict[str, tuple[tuple[int, int], int, list[str], list[str]]] = {}
        while level:
            inner: list[str] = []
            for folder in level:
                if left <= 0 or time.monotonic() > deadline:
                    inner = []
                    break
                try:
                    status = os.lstat(folder)
                    state = status.st_ino, status.st_ctime_ns
                    known = self._listings.get(folder)
                    if known is None or known[0] != state:
                        known = state, *self._list(folder)
                except OSError:
                    continue
                if is_settled(status):
                    seen[folder] = known
                left -= known[1]
                found += known[2]
                inner += known[3]
            level = inner
        self._listings = seen
        real = dict.fromkeys(map(os.path.realpath, found))
        hidden = [path for path in real if not any(contains(path, root) for root in self._roots)]
        for root in self._roots if hidden else ():
            git = locate_git_folders(root)
            with suppress(OSError):
                index = Path(git[0], "index").read_bytes() if git else b""
                hidden = [path for path in hidden if not (contains(root, path) and _is_recorded(path, root, index))]
        return tuple(hidden[:_MAX_FOUND])

    def _list(self, folder: str) -> tuple[int, list[str], list[str]]:
        secrets: list[str] = []
        folders: list[str] = []
        count = 0
        root = max((root for root in self._roots if contains(root, folder)), key=len)
        below = folder[len(root) + 1 :]
        with os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if is_secret_folder(name):
                        secrets.append(entry.path)
                    elif name != ".git" and name.lower() not in INSTALLED:
                        folders.append(entry.path)
                elif is_secret_path(f"{below}/{name}" if below else name):
                    secrets.append(entry.path)
        return count, sorted(secrets), sorted(folders)


def _is_recorded(path: str, root: str, index: bytes) -> bool:
    """True if the index of a repository has this file with its present size and time."""
    name = os.fsencode(path[len(root) + 1 :])
    status = os.lstat(path)
    seconds, rest = divmod(status.st_mtime_ns, 1_000_000_000)
    fields = ((8, seconds), (12, rest), (36, status.st_size))
    at = index.find(name + b"\0")
    while at >= 0:
        entry = index[at - 62 : at] if at >= 62 else b""
        values = [int.from_bytes(entry[start : start + 4], "big") for start, _ in fields]
        is_whole = int.from_bytes(entry[60:], "big") & 0xFFF == min(len(name), 0xFFF)
        if is_whole and values == [value & 0xFFFFFFFF for _, value in fields]:
            return True
        at = index.find(name + b"\0", at + 1)
    return False
