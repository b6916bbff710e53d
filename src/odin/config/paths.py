"""Where things are: the folders of configuration, state and cache, and the root of the project."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from odin.core.errors import StateUnwritable, UsageError

CONFIG_NAME = "odinconfig.json"
INSTRUCTIONS_NAME = "ODIN.md"

_MARKERS = (INSTRUCTIONS_NAME, CONFIG_NAME, ".git")


def get_current_folder() -> str:
    """Where we are. The folder may have been deleted under us, and then there is nothing to work in."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError as error:
        raise UsageError("The current folder does not exist any more.", "Change to another one first.") from error


def get_home_dir(env: Mapping[str, str]) -> Path:
    home = env.get("HOME")
    return Path(home) if home else Path.home()


def expand_home(path: str, env: Mapping[str, str]) -> Path:
    """The path with a leading `~` made HOME. Another user's `~name` stays as it is written."""
    if path == "~" or path.startswith("~/"):
        return get_home_dir(env) / path[2:]
    return Path(path)


def _resolve_dir(env: Mapping[str, str], own: str, xdg: str, default: str) -> Path:
    """Odin's own variable, else the XDG one with `odin` below it, else the default below HOME.

    The XDG rules say that a relative path in an XDG variable is to be ignored.
    """
    chosen = env.get(own)
    if chosen:
        return Path.cwd() / expand_home(chosen, env)
    shared = env.get(xdg)
    if shared and shared.startswith("/"):
        return Path(shared, "odin")
    return get_home_dir(env) / default / "odin"


def get_config_dir(env: Mapping[str, str]) -> Path:
    return _resolve_dir(env, "ODIN_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")


def get_state_dir(env: Mapping[str, str]) -> Path:
    return _resolve_dir(env, "ODIN_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def get_cache_dir(env: Mapping[str, str]) -> Path:
    return _resolve_dir(env, "ODIN_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def make_private_folder(folder: Path) -> Path:
    """Make this folder, and any above it that is missing, for the user's eyes only. Returns the folder."""
    try:
        for parent in (*reversed(folder.parents), folder):
            if not parent.is_dir():
                parent.mkdir(0o700, exist_ok=True)
    except OSError as error:
        raise StateUnwritable(
            f"The folder {folder} cannot be made: {error.strerror or error}.",
            "Make it writable, or name another one with ODIN_STATE_DIR.",
        ) from error
    return folder


def find_project_root(cwd: str, env: Mapping[str, str]) -> str:
    """The nearest folder from `cwd` upwards that holds ODIN.md, odinconfig.json or .git; else `cwd` itself.

    HOME and the folders above it are never taken for a project from below: a dotfiles repository in HOME must not put
    every private file inside "the project". Nor is a folder anybody may write to, such as /tmp.
    """
    here = Path(os.path.realpath(cwd or "."))
    home = Path(os.path.realpath(get_home_dir(env)))
    if _has_marker(here):
        return str(here)
    for folder in here.parents:
        if folder == home or folder in home.parents:
            break
        if _has_marker(folder) and not _is_world_writable(folder):
            return str(folder)
    return str(here)


def _has_marker(folder: Path) -> bool:
    return any(os.path.lexists(folder / name) for name in _MARKERS)


def _is_world_writable(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True
