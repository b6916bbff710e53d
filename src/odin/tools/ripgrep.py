"""Where ripgrep is, and how it is asked."""

import functools
import os
import sys
from pathlib import Path

SEARCH_SECONDS = 60.0


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


def base_arguments(rg: str) -> list[str]:
    """What every call says: no user configuration, .gitignore also outside a repository, no noise, no colour."""
    return [rg, "--no-config", "--no-require-git", "--no-messages", "--color=never"]
