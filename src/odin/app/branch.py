"""The branch that is checked out, read from the files of git: nothing is run for a line at the bottom of a screen."""

import os
from pathlib import Path

_MAX_HEAD_CHARS = 1024
_BRANCH_PREFIX = "refs/heads/"


def branch_of(folder: str) -> str:
    """The branch of the work tree around this folder, the beginning of the commit when HEAD is detached, or ""."""
    git = _find_git_folder(Path(folder))
    if git is None:
        return ""
    head = _read_start(git / "HEAD").strip()
    if head.startswith("ref:"):
        return head.removeprefix("ref:").strip().removeprefix(_BRANCH_PREFIX)
    return head[:8]


def _find_git_folder(folder: Path) -> Path | None:
    """`.git` here or above. In a linked work tree and in a submodule it is a file that says where the folder is."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return git
        if git.is_file():
            named = _read_start(git).strip().removeprefix("gitdir:").strip()
            return Path(os.path.normpath(place / named)) if named else None
    return None


def _read_start(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_HEAD_CHARS)
    except OSError:
        return ""
