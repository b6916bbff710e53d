"""Sandboxes made with bubblewrap: the command line that makes one, and in which of its ways it works here."""

import os
from collections.abc import Sequence

from msgspec import Struct

from odin.policy.confine.keeper import program
from odin.policy.confine.layout import Layout

_SHOWN_OF_RUN = (
    "/run/current-system",
    "/run/opengl-driver",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
)
"""What programs need of /run, where the sockets of daemons are: a system's own software, and how names are resolved."""

INNER_FD = 3

_FAMILIES = "=1,2,10,16,38"
"""Sockets to the files, the network and the kernel itself. Others, such as those to a virtual machine's host, know
nothing of a network of one's own."""


class Way(Struct, frozen=True):
    """How namespaces are made: with a user namespace when root may not do without, with processes of its own or not."""

    user: bool = False
    processes: bool = True


WAYS = (Way(), Way(user=True), Way(user=True, processes=False))
"""From the strongest to the one that works in the most places."""


def sandbox_argv(
    bwrap: str, way: Way, plan: Layout, python: str, fd: int, *, network: bool, joins: bool = False
) -> list[str]:
    """Everything read-only, then what may be written, then what of it may not, then what nobody needs to see.

    `joins` says that it is begun in a network that is not the machine's already.
    """
    spaces = _namespaces(way, network=network or joins)
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", *spaces, *_privileges(way)]
    argv += _run_folder()
    for path in plan.temporary:
        argv += ["--bind", path, path]
    for path in plan.kept:
        argv += ["--ro-bind", path, path]
    for path in (*plan.writable, *plan.pinned):
        argv += ["--bind", path, path]
    for path in plan.guarded:
        argv += ["--ro-bind-try", path, path]
    argv += _hidden((*plan.hidden, *plan.sockets))
    for path in plan.shown:
        argv += ["--ro-bind-try", path, path]
    return [*argv, "--", *program(python, fd, "private", "net" if network else _FAMILIES)]


def inner_argv(bwrap: str, python: str) -> list[str]:
    """A read-only sandbox inside another: it keeps the network, the processes and the secrets of the one around it."""
    return [
        *(bwrap, "--unshare-user", "--ro-bind", "/", "/", "--dev", "/dev", "--cap-drop", "ALL"),
        *("--", *program(python, INNER_FD, "plain")),
    ]


def _namespaces(way: Way, *, network: bool) -> list[str]:
    found = ["--unshare-ipc"]
    if way.user:
        found.append("--unshare-user")
    if way.processes:
        found += ["--unshare-pid", "--as-pid-1", "--proc", "/proc"]
    if not network:
        found.append("--unshare-net")
    return found


def _privileges(way: Way) -> list[str]:
    """What the program inside needs for a moment, and what root keeps: see `enclosure`."""
    wanted = ["CAP_SYS_ADMIN"]
    if os.getuid() == 0:
        wanted += ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"]
    return ["--cap-drop", "ALL", *(word for name in wanted for word in ("--cap-add", name))]


def _run_folder() -> list[str]:
    argv: list[str] = []
    for folder in dict.fromkeys(os.path.realpath(path) for path in ("/run", "/var/run")):
        if os.path.isdir(folder):  # noqa: PTH112
            argv += ["--tmpfs", folder]
    for path in _SHOWN_OF_RUN:
        argv += ["--ro-bind-try", path, path]
    return argv


def _hidden(paths: Sequence[str]) -> list[str]:
    """An empty folder over a folder, nothing over a file."""
    argv: list[str] = []
    for path in paths:
        argv += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]  # noqa: PTH112
    return argv
