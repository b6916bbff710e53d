"""The files of a repository, within bounds: a limit on their number, their depth and the time."""

import os
from bisect import bisect_left
from itertools import islice
from pathlib import Path

from msgspec import Struct

from odin.context.instructions import ODIN_MD
from odin.tools.files.path import Refusal
from odin.tools.searching.walk import walk_files

MAX_FILES = 20_000
MAX_DEPTH = 12
MAX_SECONDS = 5.0
MAX_BYTES = 1_000_000
"""The largest file that is read."""

MAX_COUNTED = 100_000_000
"""Characters of code of which the lines are counted."""

_SKIPPED = """
    node_modules __pycache__ .venv venv .tox .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis .odin .idea .gradle
    .next .cache target vendor bower_components site-packages
"""
"""Folders of things that others made."""

_LANGUAGES = {
    "Python": "py pyi",
    "JavaScript": "js jsx mjs cjs",
    "TypeScript": "ts tsx mts cts",
    "Rust": "rs",
    "Go": "go",
    "Java": "java",
    "Kotlin": "kt kts",
    "C": "c h",
    "C++": "cc cpp cxx hpp hh hxx",
    "C#": "cs",
    "Ruby": "rb",
    "PHP": "php",
    "Swift": "swift",
    "Scala": "scala",
    "Elixir": "ex exs",
    "Haskell": "hs",
    "Lua": "lua",
    "Shell": "sh bash zsh",
    "SQL": "sql",
    "HTML": "html htm",
    "CSS": "css scss sass less",
    "Vue": "vue",
    "Svelte": "svelte",
    "Markdown": "md",
}
_BY_ENDING = {ending: name for name, endings in _LANGUAGES.items() for ending in endings.split()}


class LanguageCount(Struct, frozen=True):
    """`lines` is at least this many, and exactly when `counted`."""

    name: str
    files: int
    lines: int
    counted: bool = True


class ProjectTree(Struct, frozen=True):
    """Paths relative to the root, sorted. `complete` is false when there are more than were looked at."""

    root: str
    files: tuple[str, ...]
    complete: bool

    def has(self, path: str) -> bool:
        return Path(self.root, path).is_file()

    def read(self, path: str) -> str:
        """The text of a file, or nothing when it is not there, too large or not readable."""
        full = Path(self.root, path)
        try:
            if not full.is_file() or full.stat().st_size > MAX_BYTES:
                return ""
            return full.read_text("utf-8-sig", "replace")
        except OSError:
            return ""

    def list_under(self, folder: str) -> list[str]:
        """The files in a folder and below it. They stand together, and `0` comes right after `/`."""
        first, after = (bisect_left(self.files, f"{folder}{end}") for end in "/0")
        return list(self.files[first:after])

    def is_runnable(self, path: str) -> bool:
        return os.access(Path(self.root, path), os.X_OK)


def scan_project(root: str, limit: int = MAX_FILES) -> ProjectTree:
    """Every file but ODIN.md itself, so that describing the repository does not change the description."""
    found: list[str] = []
    complete = True
    start = len(root.rstrip("/")) + 1
    paths = walk_files(root, hidden=True, skip=frozenset(_SKIPPED.split()), seconds=MAX_SECONDS)
    try:
        for path in islice(paths, limit + 2):
            name = path[start:]
            if name.count("/") >= MAX_DEPTH or not name.isprintable():
                complete = False
            elif name != ODIN_MD:
                found.append(name)
    except Refusal:
        complete = False
    complete = complete and len(found) <= limit
    return ProjectTree(root, tuple(sorted(found)[:limit]), complete)


def language_of(path: str) -> str:
    return _BY_ENDING.get(path.rsplit("/", 1)[-1].rpartition(".")[2].lower(), "")


def count_languages(tree: ProjectTree) -> list[LanguageCount]:
    """What the code is written in, most lines first."""
    files: dict[str, int] = {}
    lines: dict[str, int] = {}
    left = MAX_COUNTED
    for path in tree.files:
        name = language_of(path)
        if not name:
            continue
        files[name] = files.get(name, 0) + 1
        text = tree.read(path) if left > 0 else ""
        left -= len(text)
        lines[name] = lines.get(name, 0) + len(text.splitlines())
    found = [LanguageCount(name, files[name], lines[name], left > 0) for name in files]
    return sorted(found, key=lambda language: (-language.lines, language.name))
