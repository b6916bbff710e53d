"""The folders of git that a project needs, and what in them makes git run something."""

import os
import re
from pathlib import Path

_GIT_PROTECTED = ("config", "config.worktree", "hooks", "commondir", "info/attributes")
"""What git obeys. Everything else in its folder is data, which commits write."""

_MAX_MODULES = 50


def find_git_folders(root: str) -> list[str]:
    """The folders with the repository's data: of the project itself, and of the main one when it is a linked worktree.

    A file `.git` names its folder, and the project brings that file, so the folder must name the project in return.
    """
    gate = f"{root}/.git"
    if os.path.islink(gate):  # noqa: PTH114
        return []
    if os.path.isdir(gate):  # noqa: PTH112
        return [gate]
    named = _read_first_line(gate).removeprefix("gitdir:").strip()
    if not named:
        return []
    folder = os.path.realpath(os.path.join(root, named))  # noqa: PTH118
    if not os.path.isfile(f"{folder}/HEAD"):  # noqa: PTH113
        return []
    if os.path.realpath(_read_first_line(f"{folder}/gitdir") or "/") == os.path.realpath(gate):
        common = os.path.realpath(os.path.join(folder, _read_first_line(f"{folder}/commondir") or "."))  # noqa: PTH118
        return [common if folder.startswith(f"{common}/worktrees/") else folder]
    return [folder] if _is_submodule_of(folder, root) else []


def list_git_protected(folder: str) -> list[str]:
    """What exists in a folder of git that could make it run something."""
    return [path for path in (f"{folder}/{name}" for name in _GIT_PROTECTED) if os.path.lexists(path)]


def list_nested_git_protected(folder: str) -> list[str]:
    """The same of its submodules and worktrees."""
    inner = [path for kind in ("modules", "worktrees") for path in _list_folders(f"{folder}/{kind}")]
    return [path for folder in inner for path in list_git_protected(folder)]


def _is_submodule_of(folder: str, root: str) -> bool:
    """Whether this is the folder of a submodule that says it works in `root`."""
    if "/.git/modules/" not in folder:
        return False
    found = re.search(r"^\s*worktree\s*=\s*(\S+)\s*$", _read_head(f"{folder}/config"), re.MULTILINE)
    return found is not None and os.path.realpath(os.path.join(folder, found[1])) == os.path.realpath(root)  # noqa: PTH118


def _list_folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry, _ in zip(entries, range(_MAX_MODULES), strict=False) if entry.is_dir()]
    except OSError:
        return []


def _read_first_line(path: str) -> str:
    return _read_head(path).partition("\n")[0].strip()


def _read_head(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(20_000)
    except (OSError, ValueError):
        return ""
