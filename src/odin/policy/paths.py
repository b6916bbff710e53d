"""Where a path really leads: inside the project or not, and whether changing it could make something run later."""

import os
import re
import stat
from pathlib import Path

_STREAMS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")

_INVISIBLE = "[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]"
"""Characters that some file systems leave out when they compare names."""

_PROTECTED = """
    .git .gitconfig .gitmodules .odin odinconfig.json
    .claude .codex .gemini .cursor .agents .mcp.json
    .vscode .idea .husky .devcontainer .cargo .yarn .mvn .npmrc bunfig.toml .bazelrc .pre-commit-config.yaml .envrc
    .direnv .ripgreprc pyrightconfig.json gradle-wrapper.properties maven-wrapper.properties
    .profile .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zshenv .zprofile .zlogin .zlogout
    .kshrc .cshrc .tcshrc .inputrc .ssh .gnupg .netrc .pypirc .curlrc .wgetrc
""".split()  # noqa: SIM905

_PROTECTED_STARTS = (".yarnrc", ".pnp.", "lefthook.", ".lefthook.")


def joined(cwd: str, path: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"


def real(path: str, cwd: str) -> str | None:
    """The path with `..` and symbolic links resolved as far as it exists; None when it cannot be a path."""
    try:
        return os.path.realpath(joined(cwd, path))
    except (ValueError, OSError):
        return None


def contains(root: str, path: str) -> bool:
    """Whether a resolved path is the folder or lies in it, compared by components: /proj-evil is not in /proj."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def inside(path: str, root: str, cwd: str = "") -> bool:
    """Whether a path, wherever its links lead, stays in the root."""
    found, top = real(path, cwd or root), real(root, "/")
    return found is not None and top is not None and contains(top, found)


def is_stream(path: str) -> bool:
    """The null device and the standard streams belong to nobody."""
    return path in _STREAMS


def is_folder(path: str) -> bool:
    return stat.S_ISDIR(_mode(path))


def special(path: str, cwd: str) -> bool:
    """A pipe, socket or device: reading it may never end."""
    mode = _mode(joined(cwd, path))
    return bool(mode) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _mode(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


def protected(path: str, root: str, cwd: str = "") -> str:
    """The part of a path that makes it one to ask about, or "".

    These files make other programs run something: git, editors, shells, package managers, other agents, and Odin's own
    rules. They are told by name, so that one that does not exist yet is protected too. What lies above the root is not
    the path's own doing and does not count.
    """
    top = real(root, "/") or root
    there = cwd or top
    written = os.path.normpath(joined(there, path))
    for form in (written, real(path, there) or written):
        names = [_folded(name) for name in (form[len(top) :] if contains(top, form) else form).split("/")]
        for name in names:
            if name in _PROTECTED or name.startswith(_PROTECTED_STARTS):
                return name
        if "/.config/git/" in "/".join([*names, ""]):
            return ".config/git"
    return ""


def _folded(name: str) -> str:
    """The name as a forgiving file system sees it: any case, trailing dots, invisible characters, short 8.3 names."""
    plain = re.sub(_INVISIBLE, "", name).casefold().rstrip(". ").split(":", 1)[0]
    return ".git" if re.fullmatch(r"git~\d+", plain) else plain
