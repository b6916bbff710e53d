"""What is looked for in files.

Where ripgrep is, and how it is asked.
"""

import functools
import os
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct

from odin.tools.walk import is_in_repository

SearchMode = Literal["lines", "counts", "paths"]
"""What is wanted of it: the lines, how many there are in each file, or only which files."""


class SearchQuery(Struct, frozen=True):
    """`before` and `after` are lines of context around each match."""

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


_MODE_FLAGS: dict[SearchMode, list[str]] = {
    "lines": ["--heading", "--line-number"],
    "counts": ["--count"],
    "paths": ["--files-with-matches"],
}


@functools.cache
def find_ripgrep() -> str | None:
    """The program from the wheel we depend on, which stands beside the interpreter; else the one on the PATH."""
    name = "rg.exe" if os.name == "nt" else "rg"
    beside = [Path(sys.executable).parent, Path(sys.prefix) / ("Scripts" if os.name == "nt" else "bin")]
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for path in (folder / name for folder in [*beside, *on_path]):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def build_base_argv(rg: str, path: str) -> list[str]:
    """What every call says: no user configuration, no noise, no colour; .gitignore holds outside of a repository too.

    Within one it is not said, because then ripgrep would obey a .gitignore far above the repository as well.
    """
    anywhere = [] if is_in_repository(path) else ["--no-require-git"]
    return [rg, "--no-config", "--no-messages", "--color=never", *anywhere]


def build_ripgrep_argv(rg: str, query: SearchQuery, answer: SearchMode, in_order: bool) -> list[str]:
    """`in_order` makes it print in the order of paths, which takes all but one of its threads away.

    A glob, or an ignore file that says `!*/`, would lead it into .git.
    """
    argv = [
        *build_base_argv(rg, query.path),
        *_MODE_FLAGS[answer],
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
