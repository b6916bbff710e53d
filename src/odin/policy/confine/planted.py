"""Files that make other programs run something, and that a command has left or changed."""

import os

from odin.policy.confine.gitplace import find_git_folders, list_git_protected, list_nested_git_protected
from odin.policy.untouchable import find_protected_name

_MAX_NAMES = 500
"""Names of one folder that are looked at."""

_MAX_PROTECTED = 200

FileStamps = dict[str, tuple[int, int, int]]


def list_protected_files(root: str) -> list[str]:
    """What exists in the project's own folder, and in its folders of git, that other programs obey.

    What is reached through a link is left out: it lies elsewhere, and nothing can be mounted there.
    """
    real = os.path.realpath(root)
    return [path for path in _scan_protected(root) if _is_own_path(path, root, real)][:_MAX_PROTECTED]


def _scan_protected(root: str) -> list[str]:
    repositories = find_git_folders(root)
    found = [path for folder in repositories for path in list_git_protected(folder)]
    for name in _list_names(root):
        path = f"{root}/{name}"
        if name == ".git":
            found.extend([] if os.path.isdir(path) and not os.path.islink(path) else [path])  # noqa: PTH112, PTH114
        elif find_protected_name([name]):
            found.append(path)
        elif name.startswith(".") and os.path.isdir(path):  # noqa: PTH112
            found.extend(f"{path}/{inner}" for inner in _list_names(path) if find_protected_name([name, inner]))
    return [*found, *(path for folder in repositories for path in list_nested_git_protected(folder))]


def _is_own_path(path: str, root: str, real: str) -> bool:
    below = path.removeprefix(root) if path.startswith(f"{root}/") else ""
    return os.path.realpath(path) == (f"{real}{below}" if below else path)


def stamp_protected_files(root: str, cwd: str) -> FileStamps:
    """How those files are now, so that a change can be told later. A link in their place is told as well."""
    found: FileStamps = {}
    for path in _scan_protected(root) if cwd == root else [*_scan_protected(root), *_scan_protected(cwd)]:
        try:
            status = os.lstat(path)
        except OSError:
            continue
        found[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def find_tampered_files(before: FileStamps, root: str, cwd: str) -> tuple[str, ...]:
    """The names of those that are new or not as they were, as they are written from the project."""
    after = stamp_protected_files(root, cwd)
    changed = [path for path, stamp in after.items() if before.get(path) != stamp]
    return tuple(sorted(os.path.relpath(path, root) for path in changed))


def _list_names(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry, _ in zip(entries, range(_MAX_NAMES), strict=False)]
    except OSError:
        return []
