"""Sandboxes made with Landlock: what the kernel is to allow a process that gives up everything else.

Sandboxes made with bubblewrap: the command line that makes one, and in which of its ways it works here.

The sandboxes there are, the strongest first, and how each is made.
"""

import os
import sys
from collections.abc import Sequence

from msgspec import Struct

from odin.core.path_names import contains
from odin.sandbox.layout import EMPTY_LAYOUT, SandboxLayout, has_reachable_socket
from odin.sandbox.probe import SandboxCandidate, find_program
from odin.sandbox.supervisor import SandboxSetupError, SandboxSupervisor, build_init_argv, open_supervisor

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


def list_candidates(use: str) -> list[SandboxCandidate]:
    """What to try, the strongest first. Where we are not root, a user namespace is always made."""
    ways = [
        SandboxCandidate("bubblewrap", at)
        for at, way in enumerate(BUBBLEWRAP_VARIANTS)
        if os.getuid() == 0 or way != BubblewrapVariant(user=True)
    ]
    wanted = {"bubblewrap": ways, "landlock": [SandboxCandidate("landlock")], "off": []}
    return wanted.get(use, [*ways, SandboxCandidate("landlock")])


def open_sandbox(
    candidate: SandboxCandidate,
    plan: SandboxLayout,
    *,
    network: bool,
    path: str,
    join_network: str = "",
    python: str = sys.executable,
) -> SandboxSupervisor:
    """Make a sandbox of this kind; `join` names a network namespace to enter. Raises NotConfined with the reason."""
    if not sys.platform.startswith("linux"):
        raise SandboxSetupError("it needs Linux")
    if not python:
        raise SandboxSetupError("the Python interpreter is not known by its path")
    env = {"PATH": path}
    if candidate.kind == "landlock":
        if not find_landlock_abi():
            raise SandboxSetupError("the kernel has no Landlock, or it is switched off")
        return open_supervisor(lambda fd: build_init_argv(python, fd, *build_landlock_args(plan, network=network)), env)
    bwrap = find_program("bwrap", path)
    if not bwrap:
        raise SandboxSetupError("bwrap is not installed")
    before = [find_program("nsenter", path) or "nsenter", f"--net={join_network}", "--"] if join_network else []
    way = BUBBLEWRAP_VARIANTS[candidate.way]
    return open_supervisor(
        lambda fd: [
            *before,
            *build_bubblewrap_argv(bwrap, way, plan, python, fd, network=network, joins=bool(join_network)),
        ],
        env,
    )


def can_open(candidate: SandboxCandidate, *, network: bool, path: str) -> bool:
    """Whether the machine can make a sandbox of this kind at all, for a project with nothing in it."""
    try:
        open_sandbox(candidate, EMPTY_LAYOUT, network=network, path=path).kill()
    except SandboxSetupError as error:
        return error.is_transient
    return True


def find_landlock_abi() -> int:
    """The version of Landlock the kernel offers, or 0."""
    if not sys.platform.startswith("linux"):
        return 0
    from odin.sandbox.lockdown import read_landlock_abi

    return read_landlock_abi()


def can_leak_network(candidate: SandboxCandidate) -> bool:
    """Whether it cannot switch the network off here: Landlock alone holds back connections at most."""
    from odin.sandbox.lockdown import can_filter_sockets

    return candidate.kind == "landlock" and not can_filter_sockets()
