"""Which secret files a search below a folder would open.

The tree is walked as it is: ignore files are not read, because a search program reads them in its own way. Only what
the command line itself leaves out counts as left out.
"""

import os
from collections.abc import Callable

from msgspec import Struct

from odin.core.path_names import is_secret_folder, is_secret_path
from odin.policy.commands.readonly.options import ReadScope
from odin.policy.paths import is_folder, resolve_path

_MAX_ENTRIES = 30_000
_PACKAGE_FOLDERS = frozenset(("node_modules", "site-packages", ".venv", "venv", ".tox", "__pycache__"))
"""Folders filled by package managers: the sample keys in them are not secrets."""


class TreeTooLarge(Exception):
    """A tree has too many entries to check."""


class SecretEntries(Struct, frozen=True):
    """The names of secret files and folders in a tree."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.folders)

    def __or__(self, other: "SecretEntries") -> "SecretEntries":
        return SecretEntries(self.files | other.files, self.folders | other.folders)


def _keep_all(name: str) -> bool:
    return False


class TreeScan(Struct, frozen=True):
    """Finds secrets in a tree. `follow_links`: the search also follows links and opens pipes.

    `is_file_left_out` and `is_folder_left_out` are True for names that the command line leaves out.
    """

    is_file_left_out: Callable[[str], bool] = _keep_all
    is_folder_left_out: Callable[[str], bool] = _keep_all
    follow_links: bool = False

    def is_clear(self, path: str, scope: ReadScope) -> bool:
        """True if nothing below this path is secret or leaves the root. False if the tree is too large to check."""
        try:
            found = self.find_secrets(path, scope)
        except TreeTooLarge:
            return False
        return found is not None and not found

    def find_secrets(self, path: str, scope: ReadScope) -> SecretEntries | None:
        """Return the secrets that a search of this path would open; None if it would leave the root or never end.

        Raises TreeTooLarge.
        """
        top = resolve_path(path, scope.cwd)
        if top is None or not scope.allows_path(path) or is_secret_path(path) or is_secret_path(top):
            return None
        if not is_folder(top):
            return SecretEntries() if scope.allows_content(path) else None
        files: set[str] = set()
        secret_folders: set[str] = set()
        budget = _MAX_ENTRIES
        folders = [top]
        while folders:
            entries = _list_entries(folders.pop())
            budget -= len(entries)
            if budget < 0:
                raise TreeTooLarge
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._sort_folder(entry, folders, secret_folders)
                elif self.follow_links and not entry.is_file(follow_symlinks=False):
                    return None
                elif is_secret_path(entry.path) and not self.is_file_left_out(entry.name):
                    files.add(entry.name)
        return SecretEntries(frozenset(files), frozenset(secret_folders))

    def _sort_folder(self, entry: "os.DirEntry[str]", folders: list[str], secret_folders: set[str]) -> None:
        """Add a folder to those to search, or to the secret ones."""
        name = entry.name
        if self.is_folder_left_out(name):
            return
        if is_secret_folder(name):
            secret_folders.add(name)
        elif name != ".git" and (self.follow_links or name not in _PACKAGE_FOLDERS):
            folders.append(entry.path)


def _list_entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
