"""The files of a tree as ripgrep sees them, for machines without it.

Hidden files and what an ignore file names are left out. Symbolic links are not followed, and what is not a regular file
is left out too.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from odin.tools.files.path import Refusal
from odin.tools.searching.ignore import Rule, in_repository, last_word, read_rules

_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
"""The ignore files. What one of them says goes before what a later one says, however near that is."""

_GIT = (2, 3)
"""Those that git reads: they hold up to the top of the repository, the others all the way up."""

_Rules = tuple[list[Rule], ...]


def walk(
    root: str,
    *,
    hidden: bool = False,
    skip: frozenset[str] = frozenset(),
    named: Rule | None = None,
    kind: Callable[[str], bool] | None = None,
    seconds: float = 60.0,
) -> Iterator[str]:
    """Absolute paths of the files below `root`. Gives up when the time is over.

    `named` is a glob: with it only the files it names are found, be they hidden or ignored; negated, all but those.
    `kind` tells by name which files are wanted otherwise; those may be hidden, but not ignored.
    """
    deadline = time.monotonic() + seconds
    tops = in_repository(root)
    pending: list[tuple[str, _Rules]] = [(root, _rules_above(root, tops))]
    while pending:
        if time.monotonic() > deadline:
            raise Refusal(f"The search took longer than {seconds:g}s and was stopped. Search in a smaller folder.")
        folder, rules = pending.pop()
        rules = _rules_within(folder, rules, tops)
        for entry in _entries(folder):
            if entry.name == ".git" or entry.name in skip or entry.is_symlink():
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            wanted = _named(entry.path, is_folder, named)
            if wanted is None:
                wanted = _seen(entry, is_folder, rules, hidden, kind)
            if wanted and is_folder:
                pending.append((entry.path, rules))
            elif wanted and entry.is_file(follow_symlinks=False):
                yield entry.path


def _named(path: str, is_folder: bool, named: Rule | None) -> bool | None:
    """Whether the glob decides on it, and how."""
    if named is None:
        return None
    if named.fits(path, is_folder):
        return not named.negated
    return None if is_folder or named.negated else False


def _seen(
    entry: "os.DirEntry[str]", is_folder: bool, rules: _Rules, hidden: bool, kind: Callable[[str], bool] | None
) -> bool:
    ignored = last_word(entry.path, is_folder, rules)
    if ignored:
        return False
    if kind is not None and not is_folder:
        return kind(entry.name)
    return ignored is False or hidden or not entry.name.startswith(".")


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _rules_above(root: str, tops: bool) -> _Rules:
    """The rules of the folders above."""
    folders = list(Path(root).parents)
    rules: _Rules = tuple([] for _ in _FILES)
    for folder in reversed(folders):
        rules = _rules_within(str(folder), rules, tops)
    return rules


def _rules_within(folder: str, above: _Rules, tops: bool) -> _Rules:
    """What holds in a folder. Among repositories each begins anew with the rules of git."""
    is_top = tops and os.path.lexists(f"{folder}/.git")
    return tuple(
        [*([] if is_top and number in _GIT else above[number]), *read_rules(folder, name)]
        for number, name in enumerate(_FILES)
    )
