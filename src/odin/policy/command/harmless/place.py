"""Where a command would run, and what it may look at from there."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import translate
from pathlib import Path

from msgspec import Struct

from odin.policy.confidential import is_secret_folder, is_secret_name, is_secret_path
from odin.policy.paths import contains, is_folder, is_special_file, resolve_path

_MAX_ENTRIES = 20_000
"""How many names a look into a tree takes in before it gives up."""

_MAX_IGNORES = 20_000
_PACKAGE_FOLDERS = frozenset(("node_modules", "site-packages", ".venv", "venv", ".tox", "__pycache__"))
"""Folders of what package managers fetched: the sample keys in them are nobody's secret."""


class ReadScope(Struct, frozen=True):
    cwd: str
    root: str

    def allows_path(self, path: str) -> bool:
        """Whether an operand stays inside the root and is something that can be read to its end."""
        found = resolve_path(path, self.cwd)
        return found is not None and contains(self.root, found) and not is_special_file(path, self.cwd)

    def allows_name(self, path: str) -> bool:
        """Whether a name itself, be it that of a link, lies inside: enough where no link is followed."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return name not in ("", ".", "..") and self.is_within(folder or ("/" if path.startswith("/") else "."))

    def allows_content(self, path: str) -> bool:
        """Whether the content of an operand may be printed: it is held here and is not known to hold secrets."""
        if path == "-":
            return True
        found = resolve_path(path, self.cwd)
        if found is None or not contains(self.root, found) or is_special_file(path, self.cwd):
            return False
        return not is_secret_path(path) and not is_secret_path(found)

    def is_within(self, path: str) -> bool:
        """Whether a word, if it is a path, leads nowhere else."""
        found = resolve_path(path, self.cwd)
        return found is not None and contains(self.root, found)

    def walk_up(self) -> Iterator[str]:
        """The folder and those above it, up to the root."""
        folder = self.cwd
        while contains(self.root, folder):
            yield folder
            if folder == self.root:
                return
            folder = folder.rpartition("/")[0]

    def has_config(self, names: Sequence[str]) -> bool:
        """Whether one of these files lies here or above, where a program would find it."""
        return any(os.path.lexists(f"{folder}/{name}") for folder in self.walk_up() for name in names)


def _has_negated_ignores(folder: str) -> bool:
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


class TreeScan(Struct, frozen=True):
    """Which files of a tree a search would open. `follows` when it also goes through links and opens pipes."""

    patterns: tuple[str, ...] = ()
    skipped_names: Collection[str] = ()
    include_hidden: bool = True
    follow_links: bool = False

    def is_clear(self, path: str, scope: ReadScope) -> bool:
        """Whether nothing below this path is secret or leads out. False also when there is too much to look at."""
        if not self.include_hidden and any(_has_negated_ignores(folder) for folder in scope.walk_up()):
            return TreeScan(self.patterns, follow_links=self.follow_links).is_clear(path, scope)
        top = resolve_path(path, scope.cwd)
        if top is None or is_secret_path(path) or is_secret_path(top):
            return False
        if not is_folder(top):
            return scope.allows_content(path)
        wanted = re.compile("|".join(translate(pattern) for pattern in self.patterns)) if self.patterns else None
        budget = _MAX_ENTRIES
        folders = [top]
        while folders:
            folder = folders.pop()
            if not self.include_hidden and _has_negated_ignores(folder):
                return TreeScan(self.patterns, follow_links=self.follow_links).is_clear(path, scope)
            found = self._list_entries(folder)
            budget -= len(found)
            if budget < 0:
                return False
            for entry in found:
                if not self._is_entry_clear(entry, wanted, folders, scope):
                    return False
        return True

    def _is_entry_clear(
        self, entry: "os.DirEntry[str]", wanted: "re.Pattern[str] | None", folders: list[str], scope: ReadScope
    ) -> bool:
        if entry.is_dir(follow_symlinks=False):
            if is_secret_folder(entry.name):
                return False
            fetched = entry.name in _PACKAGE_FOLDERS and not self.follow_links
            if entry.name != ".git" and not fetched and entry.name not in self.skipped_names:
                folders.append(entry.path)
            return True
        if self.follow_links and not entry.is_file(follow_symlinks=False):
            return False
        return not (is_secret_name(entry.name) and (wanted is None or wanted.match(entry.name)))

    def _list_entries(self, folder: str) -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as found:
                return [entry for entry in found if self.include_hidden or not entry.name.startswith(".")]
        except OSError:
            return []
