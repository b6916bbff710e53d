"""What a sandbox kept a command from, told from what the command printed: a guess that errs on the quiet side.

Keeps the commands of a session in the strongest sandbox that works here, and says which one that is.

A sandbox is made when the first command needs it, and commands are started inside it from then on: one that may change
the project and temporary files, and one that may only look. Both see the same network, which is their own and leads
nowhere unless it is allowed.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from odin.core.path_names import contains
from odin.core.tool import SandboxProfile
from odin.sandbox.backends import (
    BUBBLEWRAP_VARIANTS,
    build_nested_argv,
    can_leak_network,
    can_open,
    list_candidates,
    list_private_temp_folders,
    open_sandbox,
)
from odin.sandbox.layout import (
    HIDDEN_VARIABLES,
    FileStamps,
    SandboxLayout,
    SandboxSession,
    build_programs_path,
    find_tampered_files,
    list_exposed_sockets,
    list_protected_files,
    plan_layout,
    stamp_protected_files,
)
from odin.sandbox.probe import (
    ProbeResult,
    SandboxCandidate,
    SandboxKind,
    SandboxOptions,
    compute_probe_key,
    describe_problem,
    describe_sandbox,
    find_program,
    load_probe,
    save_probe,
)
from odin.sandbox.runner import SandboxUnavailable
from odin.sandbox.supervisor import (
    SandboxedChild,
    SandboxSetupError,
    SandboxSupervisor,
    SupervisorGone,
    open_nested_supervisor,
)

_MAX_SCANNED_CHARS = 20_000
"""Characters at the end of the output that are looked at."""

_NOT_EXECUTABLE = 126
"""The shell's code for a file that it may not run."""

_NETWORK = re.compile(
    r"network is unreachable|network unreachable|\bENETUNREACH\b|could not resolve|temporary failure in name resolution"
    r"|name or service not known|\bEAI_AGAIN\b|getaddrinfo (?:ENOTFOUND|failed)|failed to resolve|no such host"
    r"|unable to resolve host|failed to lookup address|NameResolutionError|cannot resolve host",
    re.IGNORECASE,
)
_CONNECT_DENIED = re.compile(r"connect(?:ion)?\b.*(?:permission denied|\bEACCES\b)|dial tcp.*permission denied", re.I)
_DOCKER = re.compile(r"cannot connect to the docker daemon|docker\.sock|podman\.sock", re.IGNORECASE)
_READ_ONLY = re.compile(r"read-only file system|\bEROFS\b", re.IGNORECASE)
_BUSY = re.compile(r"device or resource busy|\bEBUSY\b", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|\bEACCES\b", re.IGNORECASE)
_REFUSED = re.compile(r"connection refused|\bECONNREFUSED\b|couldn't connect|failed to connect", re.IGNORECASE)
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?:[\s\w(),\"]*port)?[:\s]+(\d{2,5})\b")
_PATH_BEFORE = re.compile(
    r"""(?:['"‘`]([^'"’`\n]+)['"’`]|([^\s:'"]+)): (?=read-only file|permission denied)""", re.IGNORECASE
)
_ERROR_WORD = re.compile(r"E[A-Z]+|\[?[Ee]rrno|\d+\]?|[A-Za-z]*Error")
_QUOTED = re.compile(r"""['"‘`]([^'"’`\n]*[/.\w][^'"’`\n]*)['"’`]""")
_BARE = re.compile(r"""(?:^|[\s(=])((?:\.{0,2}/|\.)[^\s:'"]+)""")


def describe_denial(output: str, code: int, cwd: str, plan: SandboxLayout, *, network: bool) -> str:
    """What it was kept from, to follow "the sandbox kept it from", or ""."""
    for line in output[-_MAX_SCANNED_CHARS:].splitlines():
        found = _describe_file_denial(line, code, cwd, plan) or ("" if network else _describe_network_denial(line))
        if found:
            return found
    return ""


def _describe_network_denial(line: str) -> str:
    if _DOCKER.search(line):
        return "reaching the container daemon"
    if _NETWORK.search(line) or _CONNECT_DENIED.search(line):
        return "reaching the network"
    port = _LOCAL.search(line) if _REFUSED.search(line) else None
    return f"reaching port {port[1]} of this machine" if port and _is_port_open(int(port[1])) else ""


def _describe_file_denial(line: str, code: int, cwd: str, plan: SandboxLayout) -> str:
    if _READ_ONLY.search(line):
        path = _extract_path(line, cwd)
        return f"writing {path}" if path else "writing outside the project and the temporary folders"
    if _BUSY.search(line):
        held = (*plan.protected, *plan.pinned)
        named = (_join_path(cwd, name) for name in _QUOTED.findall(line) or _BARE.findall(line))
        return next((f"changing {path}" for path in named if any(contains(path, guard) for guard in held)), "")
    if _DENIED.search(line) and code != _NOT_EXECUTABLE:
        return _describe_denied_path(_extract_path(line, cwd), plan)
    return ""


def _describe_denied_path(path: str, plan: SandboxLayout) -> str:
    """A denial is the sandbox's doing when Odin itself could have done it."""
    if not path or path.startswith(("/proc", "/sys", "/dev")):
        return ""
    real = os.path.realpath(path)
    if any(contains(place, real) for place in plan.hidden):
        return f"reading {path}"
    kept = any(contains(place, real) for place in plan.persistent)
    if any(contains(place, real) for place in (*plan.writable, *(() if kept else plan.temporary))):
        return ""
    there = real if os.path.exists(real) else os.path.dirname(real)  # noqa: PTH110, PTH120
    can_read = not os.path.exists(real) or os.access(real, os.R_OK)  # noqa: PTH110
    return f"writing {path}" if can_read and os.access(there, os.W_OK) else ""


def _extract_path(line: str, cwd: str) -> str:
    """The path a complaint is about: what stands right before it, or what is quoted, or what looks like a path."""
    before = [quoted or bare for quoted, bare in _PATH_BEFORE.findall(line)]
    names = [name for name in before if not _ERROR_WORD.fullmatch(name)] or _QUOTED.findall(line) or _BARE.findall(line)
    return _join_path(cwd, names[-1]) if names else ""


def _join_path(cwd: str, name: str) -> str:
    return os.path.normpath(os.path.join(cwd, name.rstrip(".,;)")))  # noqa: PTH118


def _is_port_open(port: int) -> bool:
    """Whether something on this machine, outside the sandbox, waits for connections there."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False


_SHELL_SYNTAX = re.compile(r"[;&|<>`$(){}\n\\\"'*?\[\]~#!]")

_PRIVATE_TMP = "/dev/shm"

_MAX_TRIES = 3


class Sandbox:
    """`proofs` is the file in which it is kept which sandbox works here."""

    def __init__(
        self, session: SandboxSession, options: SandboxOptions | None = None, probe_file: Path | None = None
    ) -> None:
        self._session = session
        self._options = options or SandboxOptions()
        self._probe_file = probe_file
        self._path = build_programs_path(session)
        self._error = ""
        self._probe: ProbeResult | None = None
        self._supervisors: dict[bool, SandboxSupervisor] = {}
        self._layouts: dict[bool, SandboxLayout] = {}
        self._root_identity: tuple[int, int] = (0, 0)
        self._is_network_shared = False
        self._report_group: Callable[[int, bool], None] = lambda group, alive: None

    def watch_groups(self, tell: Callable[[int, bool], None]) -> None:
        """Tell of process groups that begin and end, so that somebody can end them when Odin is killed."""
        self._report_group = tell

    @property
    def kind(self) -> SandboxKind | None:
        """What commands run in, or None when it was never tried here."""
        if self._options.backend == "off":
            return "none"
        proof = self._load_probe()
        return proof.found.kind if proof else None

    @property
    def problem(self) -> str:
        """Why commands do not run at all: the sandbox that was asked for does not work, or not for this project."""
        return self._error or describe_problem(self._options, self._load_probe())

    def list_failures(self) -> dict[str, str]:
        """Why the sandboxes that were tried do not work."""
        proof = self._load_probe()
        return proof.reasons if proof else {}

    def describe(self) -> str:
        """One line for people."""
        return describe_sandbox(self._options, self._load_probe(), self._path)

    def probe(self, *, force: bool = False) -> None:
        """Find out now which sandbox works, instead of with the first command, whatever was found before."""
        if force and self._options.backend != "off":
            self._probe_again()
        elif self.kind is None:
            self._get_supervisor(writes=True)

    def _probe_again(self) -> None:
        self.kill()
        keeper = self._try_candidates(writes=True)
        if keeper is not None:
            keeper.kill()

    def should_sandbox(self, command: str | Sequence[str], sandbox_profile: SandboxProfile) -> bool:
        """Whether a command is to run inside. Raises Unconfined when it must and cannot."""
        if (
            self._options.backend == "off"
            or (sandbox_profile.unsandboxed and sandbox_profile.writes)
            or self._is_exempt(command)
        ):
            return False
        if self.kind is None:
            self._get_supervisor(writes=sandbox_profile.writes)
        lacking = describe_problem(self._options, self._load_probe())
        if lacking:
            raise SandboxUnavailable(0, lacking)
        return self.kind != "none"

    def _is_exempt(self, command: str | Sequence[str]) -> bool:
        """Whether the user wants it outside: one plain command, without anything the shell would make of it."""
        if not isinstance(command, str) or _SHELL_SYNTAX.search(command):
            return False
        words = command.split()
        begun = (prefix.split() for prefix in self._options.unsandboxed_commands)
        return any(prefix and words[: len(prefix)] == prefix for prefix in begun)

    def build_environment(self, env: Mapping[str, str], sandbox_profile: SandboxProfile) -> dict[str, str]:
        """Without the ways to agents and daemons outside, and with a place for temporary files."""
        inside = {name: value for name, value in env.items() if name not in HIDDEN_VARIABLES}
        plan = self._get_layout(writes=sandbox_profile.writes)
        folders = list_private_temp_folders(plan) if self.kind == "landlock" else list(plan.temporary)
        if os.path.realpath(env.get("TMPDIR") or "/tmp") not in folders:
            inside["TMPDIR"] = folders[0] if folders else _PRIVATE_TMP
        return inside

    def start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], out: int, err: int, sandbox_profile: SandboxProfile
    ) -> SandboxedChild:
        """Start a command inside. Raises OSError when it cannot be started."""
        keeper = self._get_supervisor(writes=sandbox_profile.writes)
        if keeper is None:
            raise SandboxUnavailable(0, self.problem or "the sandbox that worked before does not work any more")
        try:
            return keeper.start(argv, cwd, env, out, err)
        except SupervisorGone:
            self.kill()
        keeper = self._get_supervisor(writes=sandbox_profile.writes)
        if keeper is None:
            raise SandboxUnavailable(0, self.problem or "the sandbox has ended and cannot be made again")
        return keeper.start(argv, cwd, env, out, err)

    def stamp_protected_files(self, cwd: str, sandbox_profile: SandboxProfile) -> FileStamps | None:
        """What other programs obey in the project, as it is before a command."""
        return stamp_protected_files(self._session.root, os.path.realpath(cwd)) if sandbox_profile.writes else None

    def find_tampered_files(self, seen: FileStamps | None, cwd: str) -> tuple[str, ...]:
        """Which of that is new, or not as it was."""
        return find_tampered_files(seen, self._session.root, os.path.realpath(cwd)) if seen is not None else ()

    def describe_denial(self, output: str, code: int, cwd: str, sandbox_profile: SandboxProfile) -> str:
        """What the sandbox seems to have kept a failed command from, or ""."""
        return describe_denial(
            output, code, cwd, self._get_layout(writes=sandbox_profile.writes), network=self._options.network
        )

    def kill(self) -> None:
        """End the sandboxes with everything in them."""
        for keeper in self._supervisors.values():
            keeper.kill()
            if keeper.group:
                self._report_group(keeper.group, False)
        self._supervisors.clear()
        self._layouts.clear()
        self._is_network_shared = False

    def _load_probe(self) -> ProbeResult | None:
        if self._probe is None:
            proof = load_probe(self._probe_file, lambda: compute_probe_key(self._options, self._path))
            if proof is not None and (proof.found in list_candidates(self._options.backend) or proof.found.kind == "none"):
                self._probe = proof
        return self._probe

    def _get_layout(self, *, writes: bool) -> SandboxLayout:
        if writes not in self._layouts:
            self._layouts[writes] = plan_layout(self._session, writes=writes)
        return self._layouts[writes]

    def _get_supervisor(self, *, writes: bool) -> SandboxSupervisor | None:
        """The sandbox to start commands in, made when it is needed. None when none works."""
        self._stop_if_outdated()
        if not writes and self._has_separate_network():
            self._supervisors.pop(False).kill()
        if writes not in self._supervisors:
            keeper = self._make_supervisor(writes=writes)
            if keeper is None:
                return None
            self._supervisors[writes] = keeper
            if keeper.group:
                self._report_group(keeper.group, True)
        return self._supervisors[writes]

    def _stop_if_outdated(self) -> None:
        """Begin anew when the project's folder is another one, or there is more to guard or hide and nothing runs."""
        moved = True in self._supervisors and self._identify_root() != self._root_identity
        if moved or (self._is_outdated() and all(self._is_idle(keeper) for keeper in self._supervisors.values())):
            self.kill()

    def _is_outdated(self) -> bool:
        plans = [self._layouts[writes] for writes in self._supervisors if writes in self._layouts]
        if any(plan.protected != tuple(list_protected_files(self._session.root)) for plan in plans if plan.writable):
            return True
        return any(list_exposed_sockets(plan, self._session) for plan in plans)

    def _is_idle(self, keeper: SandboxSupervisor) -> bool:
        """Whether nothing but our own programs runs in a sandbox."""
        proof = self._probe
        if proof is None or proof.found.kind != "bubblewrap" or not BUBBLEWRAP_VARIANTS[proof.found.way].processes:
            return False
        inner = self._supervisors.get(False)
        try:
            return keeper.count_processes() <= (3 if inner is not None and not inner.group else 1)
        except OSError:
            return False

    def _has_separate_network(self) -> bool:
        """Whether the sandbox for looking has a network of its own although there is one to share, and is idle."""
        looking = self._supervisors.get(False)
        shared = self._options.network or self._is_network_shared or True not in self._supervisors
        return looking is not None and not shared and self._is_idle(looking)

    def _identify_root(self) -> tuple[int, int]:
        try:
            status = Path(self._session.root).stat()
        except OSError:
            return (0, 0)
        return status.st_dev, status.st_ino

    def _make_supervisor(self, *, writes: bool) -> SandboxSupervisor | None:
        if writes:
            self._layouts.pop(True, None)
            self._root_identity = self._identify_root()
        known = self._load_probe()
        if known is not None:
            if known.found.kind == "none":
                return None
            try:
                return self._open_without_downgrade(known.found, writes=writes)
            except SandboxSetupError:
                self._probe = None
        return self._try_candidates(writes=writes)

    def _open_without_downgrade(self, candidate: SandboxCandidate, *, writes: bool) -> SandboxSupervisor | None:
        """A sandbox of this kind; None when the machine can make one, and not this one.

        A project must not be able to choose a weaker one by what it puts in the way. What was to be hidden may have
        gone in the meantime, so it is tried again with what is there now. Raises NotConfined when the machine cannot.
        """
        self._error = ""
        for _ in range(_MAX_TRIES):
            try:
                return self._open_candidate(candidate, writes=writes)
            except SandboxSetupError as error:
                self._layouts.pop(writes, None)
                if not error.is_transient and not can_open(candidate, network=self._options.network, path=self._path):
                    raise
                self._error = (
                    f"The sandbox {candidate.kind} works on this machine and could not be made now: {error}. "
                    'If it stays so, set sandbox.backend to "landlock" or "off" in your user file.'
                )
                if error.is_transient:
                    break
        return None

    def _try_candidates(self, *, writes: bool) -> SandboxSupervisor | None:
        reasons: dict[str, str] = {}
        keeper, found = None, SandboxCandidate("none")
        for candidate in list_candidates(self._options.backend):
            try:
                keeper, found = self._open_without_downgrade(candidate, writes=writes), candidate
            except SandboxSetupError as error:
                reasons.setdefault(candidate.kind, str(error))
            else:
                reasons.pop(candidate.kind, None)
                break
        self._probe = ProbeResult(compute_probe_key(self._options, self._path), found, reasons, can_leak_network(found))
        if not self._error:
            save_probe(self._probe_file, self._probe)
        return keeper

    def _open_candidate(self, candidate: SandboxCandidate, *, writes: bool) -> SandboxSupervisor:
        plan = self._get_layout(writes=writes)
        network = self._options.network
        if not writes and not network and candidate.kind == "bubblewrap" and True in self._supervisors:
            try:
                keeper = self._open_sharing_network(self._supervisors[True], candidate, plan)
            except (SandboxSetupError, OSError):
                pass
            else:
                self._is_network_shared = True
                return keeper
        return open_sandbox(candidate, plan, network=network, path=self._path)

    def _open_sharing_network(
        self, outer: SandboxSupervisor, candidate: SandboxCandidate, plan: SandboxLayout
    ) -> SandboxSupervisor:
        """A sandbox for looking, with the network of the one for writing: root enters it, others are put inside."""
        if os.getuid() == 0:
            return open_sandbox(
                candidate, plan, network=False, path=self._path, join_network=f"/proc/{outer.pid}/ns/net"
            )
        return open_nested_supervisor(
            outer, build_nested_argv(find_program("bwrap", self._path), sys.executable), {"PATH": self._path}
        )
