"""Lets the kernel limit memory and processes of a sandbox, where this user may make control groups (cgroup v2).

Systemd delegates such groups to users. Elsewhere the limits are only looked at twice a second, as they are here, too:
that says why a command was stopped, and the kernel holds it back in between.
"""

import os
from contextlib import suppress
from pathlib import Path

from odin.sandbox.probe import ViewLimits

_PREFIX = "odin-sandbox-"


def limit_processes(pid: int, limits: ViewLimits) -> None:
    """Put the first process of a sandbox with its descendants into a new group, or do nothing.

    The group remains until the next sandbox is made. It allows somewhat more, so that the limits are noticed first.
    """
    with suppress(OSError):
        parent = find_parent()
        if parent is None:
            return
        for left in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):  # it is in use
                left.rmdir()
        group = parent / f"{_PREFIX}{pid}"
        group.mkdir()
        for file, limit in ("memory.max", limits.memory * 9 // 8), ("pids.max", limits.processes * 2):
            if limit and (group / file).exists():
                (group / file).write_text(str(limit))
        waiting = [str(pid)]
        for found in waiting:
            (group / "cgroup.procs").write_text(found)
            waiting += Path(f"/proc/{found}/task/{found}/children").read_text().split()


def find_parent(proc: Path = Path("/proc/self")) -> Path | None:
    """Return the innermost group around this process in which this user can make one with limits, or None.

    A group with processes cannot limit groups in it, so the parent is not Odin's own group, unless that is the root.
    """
    mounts = (line.split() for line in (proc / "mountinfo").read_text().splitlines())
    top = next(
        (Path(words[4]) for words in mounts if words[3] == "/" and words[words.index("-") + 1] == "cgroup2"), None
    )
    groups = (proc / "cgroup").read_text().splitlines()
    own = next((line.removeprefix("0::/") for line in groups if line.startswith("0::/")), None)
    if not top or own is None:
        return None
    for group in Path(top, own).parents if own else [Path(top)]:
        if not group.is_relative_to(top):
            break
        can_add = os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
        if can_add and not {"memory", "pids"}.isdisjoint((group / "cgroup.subtree_control").read_text().split()):
            return group
    return None
