"""Exact states of a folder and of a git repository, to compare before and after."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

Tree = dict[str, tuple[str, int, bytes]]


def read_tree(folder: Path) -> Tree:
    """Return kind, mode and bytes (or link target) of every path in the folder except `.git`."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name == ".git" or name.startswith(".git/"):
            continue
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            found[name] = ("link", 0, os.fsencode(os.readlink(path)))
        elif stat.S_ISDIR(info.st_mode):
            found[name] = ("folder", stat.S_IMODE(info.st_mode), b"")
        else:
            found[name] = ("file", stat.S_IMODE(info.st_mode), path.read_bytes())
    return found


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True).stdout


def make_repository(folder: Path) -> None:
    """Create a repository with one commit and no configured user name."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=Somebody", "-c", "user.email=a@example.org", "commit", "-qm", "first")


def read_git_state(folder: Path) -> tuple[str, ...]:
    """Return everything of the repository that a tool could change."""
    index = hashlib.sha256((folder / ".git" / "index").read_bytes()).hexdigest()
    return (
        index,
        git(folder, "count-objects", "-v"),
        git(folder, "for-each-ref"),
        git(folder, "stash", "list"),
        git(folder, "rev-parse", "HEAD"),
        git(folder, "reflog"),
    )
