"""Which sandbox works on this machine: options, probe result, and the cache of that result.

The cached result is valid until something changes that decides it: kernel, settings, bwrap binary, user.
"""

import os
import sys
from collections.abc import Callable, Mapping
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
"""Files that decide, besides the kernel and the bwrap binary, whether namespaces can be created."""


class ViewLimits(Struct, frozen=True):
    """What one command in a view may use, as bytes of memory, number of processes, and bytes in the upper layers.

    0 is no limit. They are looked at about twice a second.
    """

    memory: int = 0
    processes: int = 0
    disk: int = 0

    def describe(self, exceeded: int) -> str:
        """Return why a command was killed that has exceeded the limit with this index."""
        amounts = (
            f"{self.memory / 1e9:.3g} GB of memory",
            f"{self.processes} processes",
            f"{self.disk / 1e9:.3g} GB or {self.disk // 20_000:,} files",
        )
        return f"It was stopped because it used more than {amounts[exceeded]}."


def make_limits() -> ViewLimits:
    """Return limits that only a command out of control exceeds."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ViewLimits(memory=memory * 3 // 4, processes=4_000, disk=20_000_000_000)


class SandboxOptions(Struct, frozen=True):
    """The user's settings: `backend` is auto, bubblewrap, landlock or off. `limits` are those of commands in views."""

    backend: str = "auto"
    network: bool = False
    unsandboxed_commands: tuple[str, ...] = ()
    limits: ViewLimits = ViewLimits()


class SandboxCandidate(Struct, frozen=True):
    """One way to create a sandbox. `variant` is an index into `BUBBLEWRAP_VARIANTS`."""

    kind: SandboxKind
    variant: int = 0


class ProbeResult(Struct, frozen=True):
    """The first candidate that worked, and why the stronger ones failed.

    `leaks`: this sandbox cannot switch the network off. `no_view`: why commands cannot have views on this machine; a
    project can have other reasons. `with_views` are the projects in which a view was mounted.
    """

    key: str
    candidate: SandboxCandidate
    reasons: dict[str, str] = {}
    leaks: bool = False
    no_view: str = ""
    with_views: tuple[str, ...] = ()


def find_program(name: str, path: str) -> str:
    """Return the executable of this name in the folders of `path`, or ""."""
    for folder in path.split(os.pathsep) or ():
        file = f"{folder}/{name}"
        if folder.startswith("/") and os.access(file, os.X_OK) and not os.path.isdir(file):  # noqa: PTH112
            return file
    return ""


def compute_probe_key(options: SandboxOptions, path: str) -> str:
    """Return a cache key of everything that decides which sandbox works."""
    return f"{options.backend} {options.network} {_describe_machine(path)}"


def describe_problem(options: SandboxOptions, probe: ProbeResult | None) -> str:
    """Return why no command can run because the configured sandbox does not work, or ""."""
    if probe is None or options.backend in ("auto", "off") or probe.candidate.kind != "none":
        return ""
    reason = probe.reasons.get(options.backend, "unknown reason")
    return (
        f"The configured sandbox {options.backend} does not work: {reason}. "
        'Set sandbox.backend to "auto" or "off" in your user configuration; `odin doctor` shows what is available.'
    )


def describe_sandbox(
    options: SandboxOptions, probe: ProbeResult | None, path: str = os.defpath, no_view: str = ""
) -> str:
    """Return one line about the sandbox of commands; before it was tried, the one that will probably be used."""
    network = "network on" if options.network else "network off"
    if options.backend == "off":
        return "no sandbox, as configured"
    if probe is None:
        return f"{_guess_kind(options, path)} (untried), {network}"
    if probe.candidate.kind != "none":
        leaks = probe.leaks and not options.network
        views = ", no views" if no_view or probe.no_view or probe.candidate.kind == "landlock" else ""
        return f"{probe.candidate.kind}, {'network cannot be switched off on this kernel' if leaks else network}{views}"
    if describe_problem(options, probe):
        return f"{options.backend} does not work, commands are disabled"
    reasons = "; ".join(f"{name}: {reason}" for name, reason in probe.reasons.items())
    return f"no sandbox ({reasons})" if reasons else "no sandbox"


_APPARMOR_PROFILE = """\
Allow bubblewrap to create user namespaces and to mount in them:

sudo tee /etc/apparmor.d/bwrap >/dev/null <<'END'
abi <abi/4.0>,
include <tunables/global>
profile bwrap {bwrap} flags=(unconfined) {{
  userns,
}}
END
sudo apparmor_parser -r /etc/apparmor.d/bwrap"""

_APPARMOR_OTHER = "/etc/apparmor.d/bwrap-userns-restrict"
"""Ubuntu's own profile, which lets bubblewrap start but takes all privileges from what it starts."""


def is_restricted_by_apparmor() -> bool:
    """True if user namespaces need an AppArmor profile, as on Ubuntu."""
    return _read_text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"


def describe_remedy(reason: str, failures: Mapping[str, str], bwrap: str, *, needs_profile: bool) -> str:
    """Return how to confine commands better than for this `reason`, in sentences or with commands, or "".

    `failures` are the backends that do not work. `needs_profile`: AppArmor restricts bubblewrap without one.
    """
    why = failures.get("bubblewrap", "")
    if not sys.platform.startswith("linux") or "sandbox.backend" in reason:
        return ""
    if not bwrap:
        return "Install bubblewrap (the program bwrap)."
    is_forbidden = any(word in f"{reason} {why}" for word in ("namespace", "uid map", "ermi", "may not mount"))
    if is_forbidden and needs_profile:
        first = f"sudo apparmor_parser -R {_APPARMOR_OTHER}\nsudo ln -s {_APPARMOR_OTHER} /etc/apparmor.d/disable/\n"
        profile = _APPARMOR_PROFILE.format(bwrap=bwrap)
        if os.path.exists(_APPARMOR_OTHER):  # noqa: PTH110
            profile = profile.replace("sudo tee", f"{first}sudo tee")
        return profile
    if "no overlay file system" in reason:
        return "Load it with `sudo modprobe overlay`."
    if "on an overlay" in reason:
        return "Put the project or ~/.local/state/odin on a volume of its own."
    return f"bubblewrap does not work: {why}." if why else ""


def _guess_kind(options: SandboxOptions, path: str) -> str:
    if options.backend != "auto":
        return options.backend
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
    namespaces = [_read_link(f"/proc/self/ns/{name}") for name in ("user", "mnt", "pid")]
    switches = [_read_text(name) for name in _KERNEL_SWITCHES]
    return " ".join([os.uname().release, str(os.getuid()), sys.executable, binary, *namespaces, *switches])


def load_probe(file: Path | None, key: Callable[[], str]) -> ProbeResult | None:
    """Return the cached result, or None if there is none for this key."""
    if file is None:
        return None
    try:
        probe = msgspec.json.decode(file.read_bytes(), type=ProbeResult)
    except (OSError, msgspec.MsgspecError):
        return None
    return probe if probe.key == key() else None


def save_probe(file: Path | None, probe: ProbeResult) -> None:
    """Cache the result for later sessions. Errors are ignored; the next session probes again."""
    if file is None:
        return
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.write_bytes(msgspec.json.encode(probe))
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
