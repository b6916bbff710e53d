"""The files of a tree as ripgrep sees them, for machines without it.

Hidden files and what an ignore file names are left out. Symbolic links are not followed, and what is not a regular file
is left out too.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from odin.tools.files.path import Refusal
from odin.tools.searching.ignore import IgnoreRule, decide_ignored, is_in_repository, read_ignore_file

_IGNORE_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
"""The ignore files. What one of them says goes before what a later one says, however near that is."""

_GIT_FILES = (2, 3)
"""Those that git reads: they hold up to the top of the repository, the others all the way up."""

_RuleGroups = tuple[list[IgnoreRule], ...]


def walk_files(
    root: str,
    *,
    hidden: bool = False,
    skip: frozenset[str] = frozenset(),
    glob_rule: IgnoreRule | None = None,
    matches_type: Callable[[str], bool] | None = None,
    seconds: float = 60.0,
) -> Iterator[str]:
    """Absolute paths of the files below `root`. Gives up when the time is over.

    `named` is a glob: with it only the files it names are found, be they hidden or ignored; negated, all but those.
    `kind` tells by name which files are wanted otherwise; those may be hidden, but not ignored.
    """
    deadline = time.monotonic() + seconds
    tops = is_in_repository(root)
    pending: list[tuple[str, _RuleGroups]] = [(root, _read_rules_above(root, tops))]
    while pending:
        if time.monotonic() > deadline:
            raise Refusal(f"The search took longer than {seconds:g}s and was stopped. Search in a smaller folder.")
        folder, rules = pending.pop()
        rules = _read_rules_within(folder, rules, tops)
        for entry in _scan_folder(folder):
            if entry.name == ".git" or entry.name in skip or entry.is_symlink():
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            wanted = _decide_by_glob(entry.path, is_folder, glob_rule)
            if wanted is None:
                wanted = _is_visible(entry, is_folder, rules, hidden, matches_type)
            if wanted and is_folder:
                pending.append((entry.path, rules))
            elif wanted and entry.is_file(follow_symlinks=False):
                yield entry.path


def _decide_by_glob(path: str, is_folder: bool, glob_rule: IgnoreRule | None) -> bool | None:
    """Whether the glob decides on it, and how."""
    if glob_rule is None:
        return None
    if glob_rule.fits(path, is_folder):
        return not glob_rule.negated
    return None if is_folder or glob_rule.negated else False


def _is_visible(
    entry: "os.DirEntry[str]",
    is_folder: bool,
    rules: _RuleGroups,
    hidden: bool,
    matches_type: Callable[[str], bool] | None,
) -> bool:
    ignored = decide_ignored(entry.path, is_folder, rules)
    if ignored:
        return False
    if matches_type is not None and not is_folder:
        return matches_type(entry.name)
    return ignored is False or hidden or not entry.name.startswith(".")


def _scan_folder(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _read_rules_above(root: str, tops: bool) -> _RuleGroups:
    """The rules of the folders above."""
    folders = list(Path(root).parents)
    rules: _RuleGroups = tuple([] for _ in _IGNORE_FILES)
    for folder in reversed(folders):
        rules = _read_rules_within(str(folder), rules, tops)
    return rules


def _read_rules_within(folder: str, above: _RuleGroups, tops: bool) -> _RuleGroups:
    """What holds in a folder. Among repositories each begins anew with the rules of git."""
    is_top = tops and os.path.lexists(f"{folder}/.git")
    return tuple(
        [*([] if is_top and number in _GIT_FILES else above[number]), *read_ignore_file(folder, name)]
        for number, name in enumerate(_IGNORE_FILES)
    )
