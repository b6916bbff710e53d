"""Redirections that change nothing.

Which folder each command of a line runs in, when `cd` is among them.

Where a command would run, and what it may look at from there.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import translate
from pathlib import Path

from msgspec import Struct

from odin.core.path_names import contains, is_secret_folder, is_secret_name, is_secret_path
from odin.policy.commands.syntax import Redirect, ShellScript, SimpleCommand
from odin.policy.paths import is_folder, is_special_file, resolve_path


def is_read_only_redirect(redirect: Redirect) -> bool:
    """Into the null device, or one stream into another. Nothing else that writes is harmless."""
    target = redirect.target
    if not target.literal:
        return False
    if redirect.op == ">&" and target.text in ("1", "2"):
        return redirect.fd in ("", "1", "2")
    if redirect.op in (">", ">>", "&>", "&>>", ">|"):
        return target.text == "/dev/null"
    return redirect.op == "<" and target.text == "/dev/null"


CommandStep = tuple[SimpleCommand, str]
"""One command and a folder it may run in. A command that may run in either of two is there twice."""

_MAX_FOLDERS = 6


def locate_steps(script: ShellScript, cwd: str, root: str) -> list[CommandStep] | None:
    """The commands of a plain script with every folder each may run in; None when that is not certain.

    After `cd x &&` the next command runs there. After `cd x;` it runs there, or where it was when `cd` has failed.
    """
    here, top = resolve_path(cwd, "/"), resolve_path(root, "/")
    if not script.plain or not script.commands or here is None or top is None or not contains(top, here):
        return None
    if os.environ.get("CDPATH") and any(simple.words and simple.words[0].text == "cd" for simple in script.commands):
        return None
    upward = not _is_aliased(here)
    placed: list[CommandStep] = []
    now, ever = {here}, {here}
    chained = True
    commands = script.commands
    for index, simple in enumerate(commands):
        if simple.operator not in ("", "&&", "|"):
            if simple.operator not in (";", "\n", "||"):
                return None
            now, chained = set(ever), simple.operator != "||"
        placed.extend((simple, folder) for folder in sorted(now))
        if simple.words and simple.words[0].text == "cd":
            piped = simple.operator == "|" or (index + 1 < len(commands) and commands[index + 1].operator == "|")
            there = {_follow_cd(simple, folder, top, upward=upward) for folder in now}
            if piped or None in there or len(ever) > _MAX_FOLDERS:
                return None
            reached = {folder for folder in there if folder is not None}
            ever |= reached
            now = reached if chained else now | reached
    return placed


def _is_aliased(here: str) -> bool:
    """Whether the shell would know this folder by another name, from which `..` leads elsewhere."""
    name = os.environ.get("PWD", "")
    return name.startswith("/") and name != here and resolve_path(name, "/") == here


def _follow_cd(simple: SimpleCommand, cwd: str, root: str, *, upward: bool) -> str | None:
    """Where `cd` leads. Not through links: from there, the shell and the system disagree about what `..` means."""
    words = simple.words
    if len(words) != 2 or not words[1].literal or words[1].text.startswith("-") or not words[1].text:
        return None
    if ".." in words[1].text and not upward:
        return None
    there = os.path.normpath(f"{cwd}/{words[1].text}" if not words[1].text.startswith("/") else words[1].text)
    if resolve_path(words[1].text, cwd) != there or not contains(root, there):
        return None
    return there if is_folder(there) else None


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
