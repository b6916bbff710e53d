"""The sandboxes there are, the strongest first, and how each is made."""

import os
import sys

from odin.policy.confine.bubblewrap import WAYS, Way, sandbox_argv
from odin.policy.confine.keeper import Keeper, NotConfined, open_keeper, program
from odin.policy.confine.landlock import setup
from odin.policy.confine.layout import NOTHING, Layout
from odin.policy.confine.proof import Candidate, find_program


def candidates(use: str) -> list[Candidate]:
    """What to try, the strongest first. Where we are not root, a user namespace is always made."""
    ways = [Candidate("bubblewrap", at) for at, way in enumerate(WAYS) if os.getuid() == 0 or way != Way(user=True)]
    wanted = {"bubblewrap": ways, "landlock": [Candidate("landlock")], "off": []}
    return wanted.get(use, [*ways, Candidate("landlock")])


def make(
    candidate: Candidate, plan: Layout, *, network: bool, path: str, join: str = "", python: str = sys.executable
) -> Keeper:
    """Make a sandbox of this kind; `join` names a network namespace to enter. Raises NotConfined with the reason."""
    if not sys.platform.startswith("linux"):
        raise NotConfined("it needs Linux")
    if not python:
        raise NotConfined("the Python interpreter is not known by its path")
    env = {"PATH": path}
    if candidate.kind == "landlock":
        if not landlock_abi():
            raise NotConfined("the kernel has no Landlock, or it is switched off")
        return open_keeper(lambda fd: program(python, fd, *setup(plan, network=network)), env)
    bwrap = find_program("bwrap", path)
    if not bwrap:
        raise NotConfined("bwrap is not installed")
    before = [find_program("nsenter", path) or "nsenter", f"--net={join}", "--"] if join else []
    way = WAYS[candidate.way]
    return open_keeper(
        lambda fd: [*before, *sandbox_argv(bwrap, way, plan, python, fd, network=network, joins=bool(join))], env
    )


def possible(candidate: Candidate, *, network: bool, path: str) -> bool:
    """Whether the machine can make a sandbox of this kind at all, for a project with nothing in it."""
    try:
        make(candidate, NOTHING, network=network, path=path).kill()
    except NotConfined as error:
        return error.passing
    return True


def landlock_abi() -> int:
    """The version of Landlock the kernel offers, or 0."""
    if not sys.platform.startswith("linux"):
        return 0
    from odin.policy.confine.enclosure import abi

    return abi()


def leaks(candidate: Candidate) -> bool:
    """Whether it cannot switch the network off here: Landlock alone holds back connections at most."""
    from odin.policy.confine.enclosure import can_filter

    return candidate.kind == "landlock" and not can_filter()
