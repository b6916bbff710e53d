"""Whether a program name means a program of the system: not one of the project, and not a shim.

A shim is a small program that a version manager (asdf, mise, pyenv, volta, …) puts on PATH under the name of another.
It runs what a file of the project names (`.tool-versions`), so even `node --version` can run anything. Without such a
file in the project it runs what the user has chosen.
"""

import os
import re
from functools import lru_cache
from pathlib import Path

from odin.core.path_names import contains
from odin.policy.commands.syntax import split_names
from odin.policy.paths import resolve_path

_SHIM_FOLDERS = split_names(
    "shims .volta .proto .asdf aquaproj-aqua .tfenv .tenv .pkgx .rbenv .pyenv .nodenv .jenv .goenv .phpenv .plenv "
    ".luaenv .swiftenv .scalaenv .exenv .crenv .hermit .vfox"
)
_REAL_FOLDERS = split_names("versions installs candidates toolchains image tools")
"""Folders in which a version manager keeps the real programs."""

_MANAGERS = split_names(
    "asdf mise rtx volta volta-shim proto proto-shim aqua aqua-proxy pyenv rbenv nodenv jenv goenv tfenv tenv hermit "
    "vfox pkgx devbox corepack"
)
_SHIM_SCRIPT = re.compile(
    rb"\b(?:asdf|mise|rtx|volta|proto|pyenv|rbenv|nodenv|jenv|goenv|phpenv|plenv|luaenv|swiftenv|exenv|crenv|tfenv|tenv"
    rb"|hermit|vfox|pkgx|devbox|corepack)\b[^\n]*\b(?:exec|shim|run|x)\b"
)
_MAX_SHIM_BYTES = 8_192
_VERSION_FILE = re.compile(
    r"\.tool-versions|\.[a-z]+-versions?|\.(?:nvm|sdkman)rc|\.prototools|\.?mise(?:\.[\w.-]+)?\.toml|\.?mise|\.rtx.*"
    r"|\.config|\.?aqua(?:\.ya?ml)?|hermit\.hcl|devbox\.json|\.?pkgx\.ya?ml|\.vfox\.toml|package\.json|gemfile|go\.mod"
    r"|rust-toolchain(?:\.toml)?",
    re.IGNORECASE,
)
"""Files and folders of a project that tell a version manager what to run."""


def is_system_program(name: str, cwd: str, root: str) -> bool:
    """True if the name cannot mean a program that the project contains or chooses."""
    return not is_project_program(name, cwd, root) and not find_shim(name, cwd, root)


def is_project_program(name: str, cwd: str, root: str) -> bool:
    """True if a folder of the project on PATH contains this name, or the program on PATH is a file of the project."""
    search = os.environ.get("PATH", "")
    if any(os.path.lexists(f"{folder}/{name}") for folder in _find_project_folders(search, cwd, root)):
        return True
    found = find_on_path(name, search)
    return bool(found) and contains(root, os.path.realpath(found))


def find_shim(name: str, cwd: str, root: str) -> str:
    """Return the path of the shim that this name means if a file of the project tells it what to run, or ""."""
    found = find_on_path(name, os.environ.get("PATH", ""))
    if not found or not _is_shim(found, os.path.basename(os.path.realpath(found))):  # noqa: PTH119
        return ""
    return found if find_version_file(cwd, root) else ""


def find_version_file(cwd: str, root: str) -> str:
    """Return the nearest file, from a folder up to the root, that tells a version manager what to run, or ""."""
    folder = cwd
    while contains(root, folder):
        try:
            names = os.listdir(folder)  # noqa: PTH208 (only names are needed)
        except OSError:
            return folder
        found = next((name for name in sorted(names) if _VERSION_FILE.fullmatch(name)), "")
        if found or folder == root:
            return found
        folder = folder.rpartition("/")[0]
    return ""


def find_on_path(name: str, search: str) -> str:
    """Return the first executable with this name on PATH, or ""."""
    for folder in search.split(":"):
        path = f"{folder}/{name}"
        if folder.startswith("/") and os.access(path, os.X_OK) and os.path.isfile(path):  # noqa: PTH113
            return path
    return ""


def _is_shim(path: str, target: str) -> bool:
    parts = path.split("/")[:-1]
    if "shims" in parts or (_SHIM_FOLDERS.intersection(parts) and not _REAL_FOLDERS.intersection(parts)):
        return True
    return (target in _MANAGERS and target != path.rsplit("/", 1)[-1]) or _is_shim_script(path, _stamp_of(path))


def _stamp_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


@lru_cache(maxsize=512)
def _is_shim_script(path: str, modified: int) -> bool:
    """True for a short script that calls a version manager. The time is part of the key of the cache."""
    try:
        if os.stat(path).st_size > _MAX_SHIM_BYTES:  # noqa: PTH116
            return False
        data = Path(path).read_bytes()
    except OSError:
        return False
    return data.startswith(b"#!") and _SHIM_SCRIPT.search(data) is not None


@lru_cache(maxsize=256)
def _find_project_folders(search: str, cwd: str, root: str) -> tuple[str, ...]:
    """Return the folders on PATH that lie in the project or depend on the current directory."""
    resolved = ((folder, resolve_path(folder or ".", cwd)) for folder in search.split(":"))
    return tuple(
        path or cwd for folder, path in resolved if not folder.startswith("/") or not path or contains(root, path)
    )
