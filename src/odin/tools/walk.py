"""Glob patterns: `*` and `?` within a name, `**` across folders, `[…]` and `{a,b}`.

The lines of .gitignore and the like.

The files of a tree as ripgrep sees them, for machines without it.

Hidden files and what an ignore file names are left out. Symbolic links are not followed, and what is not a regular file
is left out too.
"""

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from odin.tools.files import Refusal

_STAR, _FOLDERS = "[^/]*", "(?:.*/)?"
_VARIABLE_PIECES = (_STAR, _FOLDERS, ".*", "(?:", "|", ")")
"""Pieces of an expression of which it is not fixed what they match, and the marks of a list."""


@functools.lru_cache(maxsize=256)
def compile_glob(glob: str) -> Callable[[str], bool]:
    """Tells whether a path relative to the searched folder matches. Without a slash the name matches at any depth."""
    pattern = glob.removeprefix("./")
    if "/" not in pattern.rstrip("/"):
        pattern = f"**/{pattern}"
    try:
        compiled = re.compile(translate_glob(pattern.strip("/")), re.DOTALL)
    except re.error:
        raise Refusal(f"{glob!r} is not a valid glob pattern.") from None
    return lambda path: compiled.fullmatch(path) is not None


def extract_name_glob(glob: str) -> tuple[str, bool]:
    """A glob on names alone that every match fits, or "", and whether it says all that the pattern says.

    Only what every program that knows globs reads alike: plain names, `*` and lists in braces.
    """
    folders, _, name = glob.removeprefix("./").rpartition("/")
    anywhere = all(part in ("**", "") for part in folders.split("/"))
    if name in ("*", "**"):
        return "", anywhere
    if "**" in name or not re.fullmatch(r"(?:[\w.*-]|\{[\w.*-]+(?:,[\w.*-]+)*\})+", name, re.ASCII):
        return "", False
    return name, anywhere


def translate_glob(glob: str) -> str:
    """The regular expression for one pattern. What is not closed, `[` or `{`, stands for itself."""
    out: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        piece, width = _translate_token(glob, at, depth)
        out.append(piece)
        depth += {"(?:": 1, ")": -1}.get(piece, 0)
        at += width
    return "".join(_make_atomic(out))


def _make_atomic(pieces: list[str]) -> list[str]:
    """The same without a search that takes forever: what stands between two stars may as well be the first that fits,
    because the second star takes whatever comes after it. And a folder at any depth need not be said twice."""
    out: list[str] = []
    at = 0
    while at < len(pieces):
        end = at + 1
        while end < len(pieces) and pieces[end] not in _VARIABLE_PIECES:
            end += 1
        if pieces[at] == _STAR and end < len(pieces) and pieces[end] == _STAR:
            out.append(f"(?>{_STAR}?{''.join(pieces[at + 1 : end])})")
            at = end
            continue
        if not (out and pieces[at] == out[-1] == _FOLDERS):
            out.append(pieces[at])
        at += 1
    return out


def _translate_token(glob: str, at: int, depth: int) -> tuple[str, int]:
    rest = glob[at:]
    if rest.startswith("**/") and (at == 0 or glob[at - 1] in "/{,"):
        return _FOLDERS, 3
    if rest == "**" and (at == 0 or glob[at - 1] == "/"):
        return ".*", 2
    char = rest[0]
    if char == "[":
        return _translate_set(rest)
    if char == "{":
        return ("(?:", 1) if "}" in rest else (r"\{", 1)
    if depth and char in "},":
        return (")" if char == "}" else "|"), 1
    if char == "\\" and len(rest) > 1:
        return re.escape(rest[1]), 2
    return {"*": _STAR, "?": "[^/]"}.get(char, re.escape(char)), 1


def _translate_set(rest: str) -> tuple[str, int]:
    end = rest.find("]", 2 if rest[1:2] not in "!^" else 3)
    if end < 0:
        return r"\[", 1
    body = rest[1:end].replace("\\", "\\\\").replace("[", r"\[").replace("&&", r"&\&")
    if body[0] in "!^":
        body = "^/" + body[1:]
    return f"[{body}]", end + 1


class IgnoreRule(Struct, frozen=True):
    """One line of an ignore file, applied byte by byte to paths below the folder the file is in."""

    base: str
    pattern: "re.Pattern[bytes]"
    negated: bool
    folders_only: bool

    def fits(self, path: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        return self.pattern.fullmatch(os.fsencode(path.removeprefix(self.base))) is not None


def is_in_repository(path: str) -> bool:
    return any(os.path.lexists(folder / ".git") for folder in (Path(path), *Path(path).parents))


def read_ignore_file(folder: str, name: str) -> list[IgnoreRule]:
    try:
        text = Path(folder, name).read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    lines = text.removeprefix("\ufeff").split("\n")
    return [rule for line in lines if (rule := parse_ignore_line(folder, line.removesuffix("\r"))) is not None]


def parse_ignore_line(folder: str, line: str) -> IgnoreRule | None:
    """None for a comment, an empty line, and what is no pattern."""
    if line.startswith("#"):
        return None
    line = re.sub(r"(?<!\\)\s+$", "", line)
    negated = line.startswith("!")
    body = line[1:] if negated else line
    anchored = body.startswith("/")
    body = body.removeprefix("/")
    folders_only = body.endswith("/")
    body = body.removesuffix("/")
    if not body:
        return None
    glob = body if anchored or "/" in body else f"**/{body}"
    if glob.endswith("/**"):
        glob += "/*"
    try:
        pattern = re.compile(os.fsencode(translate_glob(glob)), re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(f"{folder.rstrip('/')}/", pattern, negated, folders_only)


def decide_ignored(path: str, is_folder: bool, groups: Sequence[Sequence[IgnoreRule]]) -> bool | None:
    """Whether it is ignored; None when no rule speaks of it. Within a group the last rule that fits decides."""
    for rules in groups:
        for rule in reversed(rules):
            if rule.fits(path, is_folder):
                return not rule.negated
    return None


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
