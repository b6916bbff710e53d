"""Where a command would run, and what it may look at from there."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import translate
from pathlib import Path

from msgspec import Struct

from odin.policy.confidential import confidential, secret_folder, secret_name
from odin.policy.paths import contains, is_folder, real, special

_MAX_ENTRIES = 20_000
"""How many names a look into a tree takes in before it gives up."""

_MAX_IGNORES = 20_000
_FETCHED = frozenset(("node_modules", "site-packages", ".venv", "venv", ".tox", "__pycache__"))
"""Folders of what package managers fetched: the sample keys in them are nobody's secret."""


class Place(Struct, frozen=True):
    cwd: str
    root: str

    def holds(self, path: str) -> bool:
        """Whether an operand stays inside the root and is something that can be read to its end."""
        found = real(path, self.cwd)
        return found is not None and contains(self.root, found) and not special(path, self.cwd)

    def lies(self, path: str) -> bool:
        """Whether a name itself, be it that of a link, lies inside: enough where no link is followed."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return name not in ("", ".", "..") and self.within(folder or ("/" if path.startswith("/") else "."))

    def shows(self, path: str) -> bool:
        """Whether the content of an operand may be printed: it is held here and is not known to hold secrets."""
        if path == "-":
            return True
        found = real(path, self.cwd)
        if found is None or not contains(self.root, found) or special(path, self.cwd):
            return False
        return not confidential(path) and not confidential(found)

    def within(self, path: str) -> bool:
        """Whether a word, if it is a path, leads nowhere else."""
        found = real(path, self.cwd)
        return found is not None and contains(self.root, found)

    def upwards(self) -> Iterator[str]:
        """The folder and those above it, up to the root."""
        folder = self.cwd
        while contains(self.root, folder):
            yield folder
            if folder == self.root:
                return
            folder = folder.rpartition("/")[0]

    def configured(self, names: Sequence[str]) -> bool:
        """Whether one of these files lies here or above, where a program would find it."""
        return any(os.path.lexists(f"{folder}/{name}") for folder in self.upwards() for name in names)


def _takes_back(folder: str) -> bool:
    """Whether a list of ignored files also names some that are not: those are searched, even hidden ones."""
    for name in (".gitignore", ".ignore", ".rgignore", ".git/info/exclude"):
        try:
            with Path(folder, name).open(encoding="utf-8", errors="replace") as file:
                text = file.read(_MAX_IGNORES)
        except OSError:
            continue
        if len(text) == _MAX_IGNORES or re.search(r"(?m)^\s*!", text):
            return True
    return False


class Look(Struct, frozen=True):
    """Which files of a tree a search would open. `follows` when it also goes through links and opens pipes."""

    only: tuple[str, ...] = ()
    skipped: Collection[str] = ()
    hidden: bool = True
    follows: bool = False

    def clear(self, path: str, place: Place) -> bool:
        """Whether nothing below this path is secret or leads out. False also when there is too much to look at."""
        if not self.hidden and any(_takes_back(folder) for folder in place.upwards()):
            return Look(self.only, follows=self.follows).clear(path, place)
        top = real(path, place.cwd)
        if top is None or confidential(path) or confidential(top):
            return False
        if not is_folder(top):
            return place.shows(path)
        wanted = re.compile("|".join(translate(pattern) for pattern in self.only)) if self.only else None
        budget = _MAX_ENTRIES
        folders = [top]
        while folders:
            folder = folders.pop()
            if not self.hidden and _takes_back(folder):
                return Look(self.only, follows=self.follows).clear(path, place)
            found = self._entries(folder)
            budget -= len(found)
            if budget < 0:
                return False
            for entry in found:
                if not self._entry_clear(entry, wanted, folders, place):
                    return False
        return True

    def _entry_clear(
        self, entry: "os.DirEntry[str]", wanted: "re.Pattern[str] | None", folders: list[str], place: Place
    ) -> bool:
        if entry.is_dir(follow_symlinks=False):
            if secret_folder(entry.name):
                return False
            fetched = entry.name in _FETCHED and not self.follows
            if entry.name != ".git" and not fetched and entry.name not in self.skipped:
                folders.append(entry.path)
            return True
        if self.follows and not entry.is_file(follow_symlinks=False):
            return False
        return not (secret_name(entry.name) and (wanted is None or wanted.match(entry.name)))

    def _entries(self, folder: str) -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as found:
                return [entry for entry in found if self.hidden or not entry.name.startswith(".")]
        except OSError:
            return []
