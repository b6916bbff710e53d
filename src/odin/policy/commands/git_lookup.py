"""Where git finds a repository, and whether a subcommand is an alias: configuration can rename any git command."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_MAX_CHARS = 200_000
_INCLUDE = re.compile(r"(?im)^\s*\[\s*include")
_ALIAS_SECTION = re.compile(r"(?im)^\s*\[\s*alias")


def may_be_alias(verb: str, folder: str) -> bool:
    """True if a configuration file that git reads in this folder defines this alias, or includes other files."""
    entry = re.compile(rf"(?im)^\s*(?:\[\s*alias\s*\]\s*)?{re.escape(verb)}\s*=|\[\s*alias\s+\"{re.escape(verb)}\"")
    for path in _list_config_files(folder):
        text = _read_text(path)
        if text and (_INCLUDE.search(text) or (_ALIAS_SECTION.search(text) and entry.search(text))):
            return True
    return any(name.startswith("GIT_CONFIG_") and name[11:] not in ("GLOBAL", "SYSTEM") for name in os.environ)


def _list_config_files(folder: str) -> Iterator[str]:
    home = os.environ.get("HOME", "")
    yield os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"
    chosen = os.environ.get("GIT_CONFIG_GLOBAL")
    if chosen is not None:
        yield chosen
    elif home:
        yield f"{home}/.gitconfig"
        yield f"{os.environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config"
    store = find_git_folder(folder)
    if store:
        yield f"{store}/config"
        yield f"{store}/config.worktree"
        common = (_read_text(f"{store}/commondir") or "").strip()
        if common:
            yield os.path.join(store, common, "config")  # noqa: PTH118 (an absolute part replaces those before it)


def find_git_folder(folder: str) -> str:
    """Return the git directory of the repository around a folder, or ""."""
    while True:
        path = f"{folder}/.git"
        if os.path.isdir(path):  # noqa: PTH112
            return path
        text = _read_text(path) or ""
        if text.startswith("gitdir: "):
            return os.path.join(folder, text[8:].strip())  # noqa: PTH118
        if not folder:
            return ""
        folder = folder.rpartition("/")[0]


def _read_text(path: str) -> str | None:
    try:
        if not Path(path).is_file():
            return None
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_CHARS)
    except (OSError, ValueError):
        return None
