"""Where ripgrep is, and how it is asked."""

import functools
import os
import sys

SEARCH_SECONDS = 60.0


@functools.cache
def find_ripgrep() -> str | None:
    """The program from the wheel we depend on, which stands beside the interpreter; else the one on the PATH."""
    name = "rg.exe" if os.name == "nt" else "rg"
    folders = [os.path.dirname(sys.executable), os.path.join(sys.prefix, "Scripts" if os.name == "nt" else "bin")]  # noqa: PTH118
    for folder in [*folders, *os.environ.get("PATH", "").split(os.pathsep)]:
        path = os.path.join(folder, name)  # noqa: PTH118
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def base_arguments(rg: str) -> list[str]:
    """What every call says: no user configuration, .gitignore also outside a repository, no noise, no colour."""
    return [rg, "--no-config", "--no-require-git", "--no-messages", "--color=never"]
