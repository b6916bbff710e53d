"""Sandboxes made with bubblewrap: the command line that makes one, and in which of its ways it works here."""

import os
from collections.abc import Sequence

from msgspec import Struct

from odin.policy.confine.keeper import build_init_argv
from odin.policy.confine.layout import SandboxLayout

_VISIBLE_RUN_PATHS = (
    "/run/current-system",
    "/run/opengl-driver",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
)
"""What programs need of /run, where the sockets of daemons are: a system's own software, and how names are resolved."""

NESTED_FD = 3

_SOCKET_FAMILIES = "=1,2,10,16,38"
"""Sockets to the files, the network and the kernel itself. Others, such as those to a virtual machine's host, know
nothing of a network of one's own."""


class BubblewrapVariant(Struct, frozen=True):
    """How namespaces are made: with a user namespace when root may not do without, with processes of its own or not."""

    user: bool = False
    processes: bool = True


BUBBLEWRAP_VARIANTS = (BubblewrapVariant(), BubblewrapVariant(user=True), BubblewrapVariant(user=True, processes=False))
"""From the strongest to the one that works in the most places."""


def build_bubblewrap_argv(
    bwrap: str, way: BubblewrapVariant, plan: SandboxLayout, python: str, fd: int, *, network: bool, joins: bool = False
) -> list[str]:
    """Everything read-only, then what may be written, then what of it may not, then what nobody needs to see.

    `joins` says that it is begun in a network that is not the machine's already.
    """
    spaces = _list_namespace_flags(way, network=network or joins)
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", *spaces, *_list_capability_flags(way)]
    argv += _list_run_mounts()
    for path in plan.temporary:
        argv += ["--bind", path, path]
    for path in plan.persistent:
        argv += ["--ro-bind", path, path]
    for path in (*plan.writable, *plan.pinned):
        argv += ["--bind", path, path]
    for path in plan.protected:
        argv += ["--ro-bind-try", path, path]
    argv += _list_hidden_mounts((*plan.hidden, *plan.sockets))
    for path in plan.visible:
        argv += ["--ro-bind-try", path, path]
    return [*argv, "--", *build_init_argv(python, fd, "private", "net" if network else _SOCKET_FAMILIES)]


def build_nested_argv(bwrap: str, python: str) -> list[str]:
    """A read-only sandbox inside another: it keeps the network, the processes and the secrets of the one around it."""
    return [
        *(bwrap, "--unshare-user", "--ro-bind", "/", "/", "--dev", "/dev", "--cap-drop", "ALL"),
        *("--", *build_init_argv(python, NESTED_FD, "plain")),
    ]


def _list_namespace_flags(way: BubblewrapVariant, *, network: bool) -> list[str]:
    found = ["--unshare-ipc"]
    if way.user:
        found.append("--unshare-user")
    if way.processes:
        found += ["--unshare-pid", "--as-pid-1", "--proc", "/proc"]
    if not network:
        found.append("--unshare-net")
    return found


def _list_capability_flags(way: BubblewrapVariant) -> list[str]:
    """What the program inside needs for a moment, and what root keeps: see `enclosure`."""
    wanted = ["CAP_SYS_ADMIN"]
    if os.getuid() == 0:
        wanted += ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"]
    return ["--cap-drop", "ALL", *(word for name in wanted for word in ("--cap-add", name))]


def _list_run_mounts() -> list[str]:
    argv: list[str] = []
    for folder in dict.fromkeys(os.path.realpath(path) for path in ("/run", "/var/run")):
        if os.path.isdir(folder):  # noqa: PTH112
            argv += ["--tmpfs", folder]
    for path in _VISIBLE_RUN_PATHS:
        argv += ["--ro-bind-try", path, path]
    return argv


def _list_hidden_mounts(paths: Sequence[str]) -> list[str]:
    """An empty folder over a folder, nothing over a file."""
    argv: list[str] = []
    for path in paths:
        argv += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]  # noqa: PTH112
    return argv
