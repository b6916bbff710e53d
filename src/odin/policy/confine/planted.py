"""Files that make other programs run something, and that a command has left or changed."""

import os

from odin.policy.confine.gitplace import git_folders, obeyed_files
from odin.policy.untouchable import untouchable

_MOST = 500
"""Names of one folder that are looked at."""

_MOST_GUARDED = 200

Stamps = dict[str, tuple[int, int, int]]


def obeyed(root: str) -> list[str]:
    """What exists in the project's own folder, and in its folders of git, that other programs obey."""
    found = [path for folder in git_folders(root) for path in obeyed_files(folder)]
    for name in _names(root):
        if name == ".git":
            continue
        path = f"{root}/{name}"
        if untouchable([name]):
            found.append(path)
        elif name.startswith(".") and os.path.isdir(path):  # noqa: PTH112
            found.extend(f"{path}/{inner}" for inner in _names(path) if untouchable([name, inner]))
    if os.path.isfile(f"{root}/.git"):  # noqa: PTH113
        found.append(f"{root}/.git")
    return [path for path in found if not os.path.islink(path)][:_MOST_GUARDED]  # noqa: PTH114


def stamps(root: str, cwd: str) -> Stamps:
    """How those files are now, so that a change can be told later."""
    paths = obeyed(root) if cwd == root else [*obeyed(root), *obeyed(cwd)]
    found: Stamps = {}
    for path in paths:
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
