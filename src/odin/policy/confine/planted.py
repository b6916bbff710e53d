"""Files that make other programs run something, and that a command has left or changed."""

import os

from odin.policy.confine.gitplace import git_folders, obeyed_below, obeyed_files
from odin.policy.untouchable import untouchable

_MOST = 500
"""Names of one folder that are looked at."""

_MOST_GUARDED = 200

Stamps = dict[str, tuple[int, int, int]]


def obeyed(root: str) -> list[str]:
    """What exists in the project's own folder, and in its folders of git, that other programs obey.

    What is reached through a link is left out: it lies elsewhere, and nothing can be mounted there.
    """
    real = os.path.realpath(root)
    return [path for path in _named(root) if _is_there(path, root, real)][:_MOST_GUARDED]


def _named(root: str) -> list[str]:
    repositories = git_folders(root)
    found = [path for folder in repositories for path in obeyed_files(folder)]
    for name in _names(root):
        path = f"{root}/{name}"
        if name == ".git":
            found.extend([] if os.path.isdir(path) and not os.path.islink(path) else [path])  # noqa: PTH112, PTH114
        elif untouchable([name]):
            found.append(path)
        elif name.startswith(".") and os.path.isdir(path):  # noqa: PTH112
            found.extend(f"{path}/{inner}" for inner in _names(path) if untouchable([name, inner]))
    return [*found, *(path for folder in repositories for path in obeyed_below(folder))]


def _is_there(path: str, root: str, real: str) -> bool:
    below = path.removeprefix(root) if path.startswith(f"{root}/") else ""
    return os.path.realpath(path) == (f"{real}{below}" if below else path)


def stamps(root: str, cwd: str) -> Stamps:
    """How those files are now, so that a change can be told later. A link in their place is told as well."""
    found: Stamps = {}
    for path in _named(root) if cwd == root else [*_named(root), *_named(cwd)]:
        try:
            status = os.lstat(path)
        except OSError:
            continue
        found[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def planted(before: Stamps, root: str, cwd: str) -> tuple[str, ...]:
    """The names of those that are new or not as they were, as they are written from the project."""
    after = stamps(root, cwd)
    changed = [path for path, stamp in after.items() if before.get(path) != stamp]
    return tuple(sorted(os.path.relpath(path, root) for path in changed))


def _names(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry, _ in zip(entries, range(_MOST), strict=False)]
    except OSError:
        return []
