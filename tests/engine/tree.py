"""A folder as it is, to the byte, and a git repository in which nothing may move."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

Tree = dict[str, tuple[str, int, bytes]]


def tree_of(folder: Path) -> Tree:
    """Every path below the folder except `.git`: its kind, its mode and its bytes or target."""
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


def repository(folder: Path) -> None:
    """A repository with one commit by somebody, and no name configured for the next one."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=Somebody", "-c", "user.email=a@example.org", "commit", "-qm", "first")


def git_of(folder: Path) -> tuple[str, ...]:
    """Everything of the repository that a tool could disturb."""
    index = hashlib.sha256((folder / ".git" / "index").read_bytes()).hexdigest()
    return (
        index,
        git(folder, "count-objects", "-v"),
        git(folder, "for-each-ref"),
        git(folder, "stash", "list"),
        git(folder, "rev-parse", "HEAD"),
        git(folder, "reflog"),
    )
