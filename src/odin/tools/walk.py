"""The files of a tree as ripgrep sees them, for machines without it: no hidden files, nothing a .gitignore names.

Symbolic links are not followed, and what is not a regular file is left out.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from odin.tools.path import Refusal
from odin.tools.pattern import translate

_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")


class Rule(Struct, frozen=True):
    """One line of an ignore file, applied to paths relative to the folder the file is in."""

    base: str
    pattern: "re.Pattern[str]"
    negated: bool
    folders_only: bool


def walk(
    root: str,
    *,
    hidden: bool = False,
    skip: frozenset[str] = frozenset(),
    wanted: Callable[[str], bool] | None = None,
    seconds: float = 60.0,
) -> Iterator[str]:
    """Absolute paths of the files below `root`. Gives up when the time is over.

    What `wanted` accepts is neither hidden nor ignored, as with ripgrep's --glob.
    """
    start = len(root.rstrip("/")) + 1
    deadline = time.monotonic() + seconds
    pending: list[tuple[str, list[Rule]]] = [(root, _rules_above(root))]
    while pending:
        if time.monotonic() > deadline:
            raise Refusal(f"The search took longer than {seconds:g}s and was stopped. Search in a smaller folder.")
        folder, rules = pending.pop()
        rules = [*rules, *_rules_in(folder)]
        for entry in _entries(folder):
            name = entry.name
            if name == ".git" or name in skip or entry.is_symlink():
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            left_out = (name.startswith(".") and not hidden) or _ignored(entry.path, is_folder, rules)
            if left_out and (wanted is None or not wanted(entry.path[start:])):
                continue
            if is_folder:
                pending.append((entry.path, rules))
            elif entry.is_file(follow_symlinks=False):
                yield entry.path


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _rules_above(root: str) -> list[Rule]:
    """The rules of the folders above, up to the top of the repository."""
    found: list[list[Rule]] = []
    folder = Path(root)
    while not (folder / ".git").exists() and folder != folder.parent:
        folder = folder.parent
        found.append(_rules_in(str(folder)))
    return [rule for rules in reversed(found) for rule in rules]


def _rules_in(folder: str) -> list[Rule]:
    rules: list[Rule] = []
    for name in _IGNORE_FILES:
        try:
            text = Path(folder, name).read_text("utf-8", "replace")
        except OSError:
            continue
        rules += [rule for line in text.splitlines() if (rule := _rule(folder, line)) is not None]
    return rules


def _rule(folder: str, line: str) -> Rule | None:
    line = re.sub(r"(?<!\\)\s+$", "", line)
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    body = line[1:] if negated else line
    folders_only = body.endswith("/")
    body = body.rstrip("/")
    glob = body.lstrip("/") if "/" in body else f"**/{body}"
    if glob.endswith("/**"):
        glob += "/*"
    try:
        pattern = re.compile(translate(glob), re.DOTALL)
    except re.error:
        return None
    return Rule(f"{folder.rstrip('/')}/", pattern, negated, folders_only)


def _ignored(path: str, is_folder: bool, rules: list[Rule]) -> bool:
    """The last rule that matches decides."""
    for rule in reversed(rules):
        if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path.removeprefix(rule.base)):
            return not rule.negated
    return False
