"""Sandboxes made with Landlock: what the kernel is to allow a process that gives up everything else."""

import os
from collections.abc import Sequence

from odin.policy.confine.layout import SandboxLayout
from odin.policy.confine.secret import has_reachable_socket
from odin.policy.paths import contains

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm")

_MAX_ENTRIES = 2_000
"""Entries of one folder that are named one by one at most."""


def build_landlock_args(plan: SandboxLayout, *, network: bool) -> list[str]:
    """The words that tell the program inside what to allow. Landlock only ever allows, so what lies beside a secret is
    named, and the secret is not."""
    words = [
        "landlock",
        *(f"+{path}" for path in (*_DEVICES, *list_private_temp_folders(plan), *_expand_writable(plan))),
    ]
    words += [f"-{path}" for path in (*list_readable(plan.hidden), *plan.visible)]
    families = _choose_socket_families(network=network)
    return [*words, *(["net"] if network else []), *([f"={families}"] if families else [])]


def _choose_socket_families(*, network: bool) -> str:
    """The kinds of sockets that can be made. Landlock lets everybody speak to whoever has a socket among the files, so
    where there is somebody, nobody can; and it holds back connections, not messages."""
    files = "" if has_reachable_socket() else "1"
    if network:
        return "" if files else "2,10,16,17,38"
    return f"{files},16".lstrip(",")


def _expand_writable(plan: SandboxLayout) -> list[str]:
    """Where a secret lies in a folder that may be written, what is in the folder, one by one, and not the secret."""
    found: list[str] = []
    for place in plan.writable:
        inside = [path for path in plan.hidden if contains(place, path) and path != place]
        found.extend(path for path in list_readable(inside) if contains(place, path)) if inside else found.append(place)
    return found


def list_private_temp_folders(plan: SandboxLayout) -> list[str]:
    """The folders for temporary files that hold nothing else; out of the others nothing can be taken."""
    return [folder for folder in plan.temporary if not any(contains(folder, path) for path in plan.persistent)]


def list_readable(hidden: Sequence[str]) -> list[str]:
    """Everything but the hidden: the neighbours of each, and of each folder above it."""
    above = {"/"}
    for path in hidden:
        folder = path.rpartition("/")[0]
        while folder:
            above.add(folder)
            folder = folder.rpartition("/")[0]
    found: list[str] = []
    for folder in sorted(above):
        inside = sorted(_list_real_entries(folder))[:_MAX_ENTRIES]
        found.extend(path for path in inside if path not in above and path not in hidden)
    return found


def _list_real_entries(folder: str) -> list[str]:
    """What lies in a folder. A link is left out: what it leads to is allowed where it lies, or not."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
