"""The sandboxes there are, the strongest first, and how each is made."""

import os
import sys

from odin.policy.confine.bubblewrap import BUBBLEWRAP_VARIANTS, BubblewrapVariant, build_bubblewrap_argv
from odin.policy.confine.keeper import SandboxSetupError, SandboxSupervisor, build_init_argv, open_supervisor
from odin.policy.confine.landlock import build_landlock_args
from odin.policy.confine.layout import EMPTY_LAYOUT, SandboxLayout
from odin.policy.confine.proof import SandboxCandidate, find_program


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
    from odin.policy.confine.enclosure import read_landlock_abi

    return read_landlock_abi()


def can_leak_network(candidate: SandboxCandidate) -> bool:
    """Whether it cannot switch the network off here: Landlock alone holds back connections at most."""
    from odin.policy.confine.enclosure import can_filter_sockets

    return candidate.kind == "landlock" and not can_filter_sockets()
