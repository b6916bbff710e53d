"""Where a path really leads: inside the project or not, and whether changing it could run something later."""

import os
import re
import stat

_STREAMS = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")

_IGNORED_BY_FILE_SYSTEMS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")

_PROTECTED_FOLDERS = frozenset(
    ".git .odin .claude .codex .gemini .cursor .agents .vscode .idea .husky .cargo .devcontainer .yarn .mvn "
    ".ssh .gnupg .direnv".split()
)

_PROTECTED_FILES = frozenset(
    "odinconfig.json .gitconfig .gitmodules .envrc .npmrc .bazelrc .pre-commit-config.yaml .ripgreprc "
    "pyrightconfig.json .mcp.json bunfig.toml gradle-wrapper.properties maven-wrapper.properties "
    ".profile .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zshenv .zprofile .zlogin .zlogout "
    ".kshrc .cshrc .tcshrc .inputrc .netrc .pypirc .curlrc .wgetrc".split()
)

_PROTECTED_STARTS = (".yarnrc", ".pnp.", "lefthook.", ".lefthook.")


def real(path: str, cwd: str) -> str | None:
    """The path with `..` and symbolic links resolved as far as it exists; None when it cannot be a path."""
    try:
        return os.path.realpath(os.path.join(cwd, path))  # noqa: PTH118
    except (ValueError, OSError):
        return None


def contains(root: str, path: str) -> bool:
    """Whether a resolved path is the folder or lies in it, compared by components: /proj-evil is not in /proj."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def inside(path: str, root: str, cwd: str = "") -> bool:
    found = real(path, cwd or root)
    top = real(root, "/")
    return found is not None and top is not None and contains(top, found)


def is_stream(path: str) -> bool:
    """The null device and the standard streams belong to nobody."""
    return path in _STREAMS


def special(path: str, cwd: str) -> bool:
    """A pipe, socket or device: reading it may never end."""
    try:
        mode = os.stat(os.path.join(cwd, path)).st_mode  # noqa: PTH116, PTH118
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def protected(path: str, root: str, cwd: str = "") -> str:
    """The part of a path inside the project that makes it one to ask about, or "".

    These files make other programs run something: git, editors, shells, package managers, other agents, and Odin's own
    rules. They are told by name, so that one that does not exist yet is protected too.
    """
    top = real(root, "/") or root
    there = cwd or root
    written = os.path.normpath(os.path.join(there, path))  # noqa: PTH118
    for form in (written, real(path, there) or written):
        names = form[len(top) :] if contains(top, form) else form
        for name in names.split("/"):
            if _runs_things(_folded(name)):
                return name
        if "/.config/git" in form:
            return ".config/git"
    return ""


def _folded(name: str) -> str:
    """The name as a forgiving file system sees it: any case, trailing dots, invisible characters, short 8.3 names."""
    plain = _IGNORED_BY_FILE_SYSTEMS.sub("", name).casefold().rstrip(". ").split(":", 1)[0]
    return ".git" if re.fullmatch(r"git~\d+", plain) else plain


def _runs_things(name: str) -> bool:
    return name in _PROTECTED_FOLDERS or name in _PROTECTED_FILES or name.startswith(_PROTECTED_STARTS)
