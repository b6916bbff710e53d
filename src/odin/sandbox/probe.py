"""Which sandbox was proved to work on this machine, remembered until something about the machine changes."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

SandboxKind = Literal["bubblewrap", "landlock", "none"]

_KERNEL_SWITCHES = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
    "/proc/self/attr/current",
)
"""What decides whether namespaces may be made, beside the kernel and the binary."""


class SandboxOptions(Struct, frozen=True):
    """What the user asks for: `use` is auto, bubblewrap, landlock or off."""

    use: str = "auto"
    network: bool = False
    unsandboxed_commands: tuple[str, ...] = ()


class SandboxCandidate(Struct, frozen=True):
    """One way to make a sandbox. `way` is an index into bubblewrap's ways."""

    kind: SandboxKind
    way: int = 0


class ProbeResult(Struct, frozen=True):
    """What came of trying: the first that worked, and the reasons of those before it.

    `leaks` says that it cannot switch the network off.
    """

    key: str
    found: SandboxCandidate
    reasons: dict[str, str] = {}
    leaks: bool = False


def find_program(name: str, path: str) -> str:
    """The program of that name in these folders, or ""."""
    for folder in path.split(os.pathsep) or ():
        file = f"{folder}/{name}"
        if folder.startswith("/") and os.access(file, os.X_OK) and not os.path.isdir(file):  # noqa: PTH112
            return file
    return ""


def compute_probe_key(wanted: SandboxOptions, path: str) -> str:
    """A text that changes when something changes that decides which sandbox is the strongest that works."""
    return f"{wanted.use} {wanted.network} {_describe_machine(path)}"


def describe_problem(wanted: SandboxOptions, proof: ProbeResult | None) -> str:
    """Why commands do not run at all: the sandbox that was asked for does not work."""
    if proof is None or wanted.use in ("auto", "off") or proof.found.kind != "none":
        return ""
    why = proof.reasons.get(wanted.use, "it does not work here")
    return (
        f"The configuration asks for the sandbox {wanted.use}, and it does not work: {why}. "
        'Set sandbox.use to "auto" or "off" in your user file; `odin doctor` shows what there is.'
    )


def describe_sandbox(wanted: SandboxOptions, proof: ProbeResult | None, path: str = os.defpath) -> str:
    """One line for people: what commands run in, or before it was tried, what is there to run them in."""
    network = "network on" if wanted.network else "network off"
    if wanted.use == "off":
        return "no sandbox, as configured"
    if proof is None:
        return f"{_guess_kind(wanted, path)} (untried), {network}"
    if proof.found.kind != "none" and proof.leaks and not wanted.network:
        return f"{proof.found.kind}, which cannot switch the network off on this kernel"
    if proof.found.kind != "none":
        return f"{proof.found.kind}, {network}"
    if describe_problem(wanted, proof):
        return f"no {wanted.use}, so no commands"
    why = "; ".join(f"{name}: {reason}" for name, reason in proof.reasons.items())
    return f"no sandbox ({why})" if why else "no sandbox"


def _guess_kind(wanted: SandboxOptions, path: str) -> str:
    if wanted.use != "auto":
        return wanted.use
    if not sys.platform.startswith("linux"):
        return "no sandbox"
    return "bubblewrap" if find_program("bwrap", path) else "landlock"


def _describe_machine(path: str) -> str:
    bwrap = find_program("bwrap", path)
    try:
        status = Path(bwrap).stat() if bwrap else None
    except OSError:
        status = None
    binary = f"{bwrap} {status.st_size} {status.st_mtime_ns} {status.st_mode}" if status else ""
    spaces = [_read_link(f"/proc/self/ns/{name}") for name in ("user", "mnt", "pid")]
    switches = [_read_text(name) for name in _KERNEL_SWITCHES]
    return " ".join([os.uname().release, str(os.getuid()), sys.executable, binary, *spaces, *switches])


def load_probe(file: Path | None, key: Callable[[], str]) -> ProbeResult | None:
    """What was proved before, while the machine is as it was."""
    if file is None:
        return None
    try:
        proof = msgspec.json.decode(file.read_bytes(), type=ProbeResult)
    except (OSError, msgspec.MsgspecError):
        return None
    return proof if proof.key == key() else None


def save_probe(file: Path | None, proof: ProbeResult) -> None:
    """For the next session. Where it cannot be kept, that one tries again."""
    if file is None:
        return
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.write_bytes(msgspec.json.encode(proof))
        new.replace(file)
    except OSError:
        return


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
