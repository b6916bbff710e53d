"""The sandbox of a session: runs its commands in the strongest backend that works on this machine.

Two sandboxes are created when the first command needs them: a writable one that may change the project and temporary
files, and a read-only one. Both share a network namespace without access to the network, unless it is allowed.
A command that the user granted more to (`SandboxGrants`), or whose agent may change only a part of the project, runs in
a sandbox of its own, and so do servers and Odin's own git.
Only the user can let a command run unsandboxed, once per call and never in a read-only mode; no rule, hook or
permission mode can. Git and servers never do: where no sandbox works, or it is off, they get one or do not run.

`describe_denial` guesses from the output of a failed command what the sandbox denied; when in doubt it says nothing.
"""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from odin.core.path_names import contains
from odin.core.profile import PROJECT, ProcessProfile
from odin.core.timing import DEFAULT_TIMING
from odin.sandbox.backends import (
    build_nested_argv,
    can_leak_network,
    can_open,
    list_candidates,
    list_private_temp_folders,
    open_sandbox,
)
from odin.sandbox.layout import (
    HIDDEN_VARIABLES,
    SandboxLayout,
    SandboxSession,
    SecretPaths,
    add_grants,
    find_kernel_mounts,
    find_writable_folders,
    has_exposed_files,
    is_writable,
    list_exposed_sockets,
    plan_git_layout,
    plan_layout,
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
from odin.sandbox.protected_files import ProtectedFiles, ProtectedState, find_tampered_files
from odin.sandbox.runner import SandboxUnavailable
from odin.sandbox.supervisor import (
    SandboxedChild,
    SandboxSetupError,
    SandboxSupervisor,
    SupervisorGone,
    open_nested_supervisor,
)

_MAX_SCANNED_CHARS = 20_000
"""Number of characters at the end of the output that are scanned."""

_NOT_EXECUTABLE = 126
"""The shell's exit code for a file that is not executable."""

_NETWORK = re.compile(
    r"network is unreachable|network unreachable|\bENETUNREACH\b|could not resolve|temporary failure in name resolution"
    r"|name or service not known|\bEAI_AGAIN\b|getaddrinfo (?:ENOTFOUND|failed)|failed to resolve|no such host"
    r"|unable to resolve host|failed to lookup address|NameResolutionError|cannot resolve host",
    re.IGNORECASE,
)
_CONNECT_DENIED = re.compile(r"connect(?:ion)?\b.*(?:permission denied|\bEACCES\b)|dial tcp.*permission denied", re.I)
_CREDENTIALS = re.compile(
    r"permission denied \(publickey|could not read (?:username|password) for|host key verification failed"
    r"|terminal prompts disabled|authentication failed for 'http",
    re.IGNORECASE,
)
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

_SHELL_SYNTAX = re.compile(r"[;&|<>`$(){}\n\\\"'*?\[\]~#!]")
_PRIVATE_TMP = "/dev/shm"

_APART = frozenset(("git", "git-remote", "server"))
"""Profiles of programs that do not see the network of the commands, nor their temporary files if they are git."""

_MAX_SPARE = 1
"""Idle sandboxes kept for git: it often runs several times in a row with the same profile."""

_MAX_TRIES = 3


def describe_denial(output: str, code: int, cwd: str, layout: SandboxLayout, *, network: bool) -> str:
    """Return what was denied, as in "the sandbox kept it from ...", or ""."""
    for line in output[-_MAX_SCANNED_CHARS:].splitlines():
        denial = _describe_file_denial(line, code, cwd, layout) or _describe_network_denial(line, network=network)
        if denial:
            return denial
    return ""


def _describe_network_denial(line: str, *, network: bool) -> str:
    if _CREDENTIALS.search(line):
        return "using your keys and passwords"
    if _DOCKER.search(line):
        return "reaching the container daemon"
    if network:
        return ""
    if _NETWORK.search(line) or _CONNECT_DENIED.search(line):
        return "reaching the network"
    port = _LOCAL.search(line) if _REFUSED.search(line) else None
    return f"reaching port {port[1]} of this machine" if port and _is_port_open(int(port[1])) else ""


def _describe_file_denial(line: str, code: int, cwd: str, layout: SandboxLayout) -> str:
    if _READ_ONLY.search(line):
        path = _extract_path(line, cwd)
        return f"writing {path}" if path else "writing outside the project and the temporary folders"
    if _BUSY.search(line):
        fixed = (*layout.protected, *layout.pinned, *(granted.path for granted in layout.granted))
        paths = (_join_path(cwd, name) for name in _QUOTED.findall(line) or _BARE.findall(line))
        return next((f"changing {path}" for path in paths if any(contains(path, other) for other in fixed)), "")
    if _DENIED.search(line) and code != _NOT_EXECUTABLE:
        # What was denied if Odin itself could access the path, so that the sandbox must be the reason; else "".
        path = _extract_path(line, cwd)
        if not path or path.startswith(("/proc", "/sys", "/dev")):
            return ""
        real = os.path.realpath(path)
        if any(contains(place, real) for place in layout.hidden):
            return f"reading {path}"
        if is_writable(real, layout):
            return ""
        existing = real if os.path.exists(real) else os.path.dirname(real)  # noqa: PTH110, PTH120
        can_read = not os.path.exists(real) or os.access(real, os.R_OK)  # noqa: PTH110
        return f"writing {path}" if can_read and os.access(existing, os.W_OK) else ""
    return ""


def _extract_path(line: str, cwd: str) -> str:
    """Return the path an error message is about: the word before it, else a quoted word, else a path-like word."""
    before = [quoted or bare for quoted, bare in _PATH_BEFORE.findall(line)]
    names = [name for name in before if not _ERROR_WORD.fullmatch(name)] or _QUOTED.findall(line) or _BARE.findall(line)
    return _join_path(cwd, names[-1]) if names else ""


def _join_path(cwd: str, name: str) -> str:
    return os.path.normpath(os.path.join(cwd, name.rstrip(".,;)")))  # noqa: PTH118


def _is_port_open(port: int) -> bool:
    """True if a process on this machine, outside the sandbox, listens on this port."""
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


def _needs_own_sandbox(profile: ProcessProfile) -> bool:
    return profile.name in _APART or (profile.writes and (bool(profile.grants) or profile.scope is not None))


class Sandbox:
    """The sandboxes of one session. `probe_file` caches which backend works on this machine.

    Those in which nothing has run for `idle_s` are ended: a hundred open sessions must not keep hundreds of processes,
    and a new one takes some milliseconds.
    """

    def __init__(
        self,
        session: SandboxSession,
        options: SandboxOptions | None = None,
        probe_file: Path | None = None,
        idle_s: float = DEFAULT_TIMING.sandbox_idle_s,
    ) -> None:
        self._session = session
        self._options = options or SandboxOptions()
        self._probe_file = probe_file
        self._path = find_writable_folders(session).filter_path(session.env.get("PATH", ""))
        self._error = ""
        self._probe: ProbeResult | None = None
        self._supervisors: dict[bool, SandboxSupervisor] = {}  # by `writes`
        self._layouts: dict[bool, SandboxLayout] = {}  # by `writes`
        self._own: dict[SandboxSupervisor, bool] = {}  # True: it may use the network of the shared ones
        self._spare: list[tuple[SandboxLayout, SandboxSupervisor]] = []
        self._own_layouts: dict[ProcessProfile, SandboxLayout] = {}
        self._protected_files = ProtectedFiles(session.root, find_kernel_mounts([session.root]))
        self._secrets = SecretPaths(session)
        self._protected_state: ProtectedState | None = None
        self._late_changes: tuple[str, ...] = ()
        self._root_identity: tuple[int, int] = (0, 0)
        self._is_network_shared = False
        self._idle_s = idle_s
        self._last_use = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._report_group: Callable[[int, bool], None] = lambda group, alive: None

    def watch_groups(self, on_change: Callable[[int, bool], None]) -> None:
        """Call `on_change(group, alive)` when a sandbox starts or ends, for the watchdog."""
        self._report_group = on_change

    @property
    def kind(self) -> SandboxKind | None:
        """The backend in use, or None if it has not been probed yet."""
        if self._options.backend == "off":
            return "none"
        probe = self._load_probe()
        return probe.candidate.kind if probe else None

    @property
    def problem(self) -> str:
        """Why no command can run: the configured sandbox does not work, or not for this project. Else ""."""
        return self._error or describe_problem(self._options, self._load_probe())

    def list_failures(self) -> dict[str, str]:
        """Return why the backends that were tried do not work."""
        probe = self._load_probe()
        return probe.reasons if probe else {}

    def describe(self) -> str:
        """Return one line about the sandbox."""
        return describe_sandbox(self._options, self._load_probe(), self._path)

    def probe(self, *, force: bool = False) -> None:
        """Find out now which backend works, instead of with the first command. `force` ignores an earlier result."""
        if force and self._options.backend != "off":
            self._probe_again()
        elif self.kind is None:
            self._get_supervisor(writes=True)

    def _probe_again(self) -> None:
        self.kill()
        supervisor = self._try_candidates(writes=True)
        if supervisor is not None:
            supervisor.kill()

    def should_sandbox(self, command: str | Sequence[str], profile: ProcessProfile) -> bool:
        """True if the command must run sandboxed. Raise SandboxUnavailable if it must and cannot."""
        if profile.is_outside:
            return False
        is_exempt = profile.scope is None and self._is_exempt(command)
        if not profile.needs_sandbox and (self._options.backend == "off" or is_exempt):
            return False
        if self._load_probe() is None:
            self._get_supervisor(writes=profile.writes)
        probe = self._load_probe()
        if problem := describe_problem(self._options, probe):
            raise SandboxUnavailable(0, problem)
        works = probe is None or probe.candidate.kind != "none"
        if profile.needs_sandbox and not works:
            raise SandboxUnavailable(0, "No sandbox works on this machine (`odin doctor` says why).")
        if profile.needs_sandbox and probe is not None and probe.leaks:
            raise SandboxUnavailable(0, "The sandbox of this machine cannot switch the network off.")
        return works

    def explain_unconfined(self, command: str = "") -> str:
        """Return why a command would not be confined to the project without network, as a clause, or ""."""
        if self._options.backend == "off":
            return "the sandbox is off (sandbox.backend)"
        if self._options.network:
            return "sandboxed commands may use the network (sandbox.network)"
        if command and self._is_exempt(command):
            return "this one runs without it (sandbox.unsandboxed_commands)"
        if self.kind is None:
            self._probe_again()
        probe = self._load_probe()
        if self.problem:
            return self.problem[:1].lower() + self.problem[1:].rstrip(".")
        if probe is None or probe.candidate.kind == "none":
            return "no sandbox works on this machine (`odin doctor` says why)"
        return "this sandbox cannot switch the network off on this kernel" if probe.leaks else ""

    def _is_exempt(self, command: str | Sequence[str]) -> bool:
        """True if `unsandboxed_commands` names it and it has no shell syntax."""
        if not isinstance(command, str) or _SHELL_SYNTAX.search(command):
            return False
        words = command.split()
        prefixes = (prefix.split() for prefix in self._options.unsandboxed_commands)
        return any(prefix and words[: len(prefix)] == prefix for prefix in prefixes)

    def build_environment(self, env: Mapping[str, str], profile: ProcessProfile) -> dict[str, str]:
        """Return the environment without variables that lead to agents and daemons, and with a usable TMPDIR."""
        environment = {name: value for name, value in env.items() if name not in HIDDEN_VARIABLES}
        own = _needs_own_sandbox(profile)
        layout = self._plan_own_layout(profile) if own else self._get_layout(writes=profile.writes)
        probe = self._load_probe()
        is_landlock = probe is not None and probe.candidate.kind == "landlock"
        folders = list_private_temp_folders(layout) if is_landlock else list(layout.temporary)
        if profile.name in ("git", "git-remote"):
            environment["PATH"] = self._path
        if profile.name == "git-remote":
            environment.update({name: env[name] for name in ("SSH_AUTH_SOCK",) if name in env})
        if os.path.realpath(env.get("TMPDIR") or "/tmp") not in folders:
            environment["TMPDIR"] = folders[0] if folders else _PRIVATE_TMP
        return environment

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        out: int,
        err: int,
        profile: ProcessProfile,
        stdin: int = -1,
    ) -> SandboxedChild:
        """Start a sandboxed command, restarting a sandbox that has died. Raise OSError if it cannot be started."""
        self._note_use()
        if profile.name in _APART:
            return self._start_apart(profile, lambda found: found.start(argv, cwd, env, out, err, stdin=stdin))
        supervisor = self._get_supervisor(writes=profile.writes)
        if supervisor is None:
            raise SandboxUnavailable(0, self.problem or "the sandbox no longer works")
        if _needs_own_sandbox(profile):
            own = self._open_own(profile, supervisor)
            if own is not None:
                # The command's own sandbox ends with the last process that the command has started.
                self._own[own] = True
                self._report_group(own.group, True)
                try:
                    child = own.start(argv, cwd, env, out, err, stdin=stdin)
                except BaseException:
                    self._end_own(own)
                    raise
                child.on_exit = lambda left: None if left else self._end_own(own)
                return child
            if profile.scope is not None:
                raise SandboxUnavailable(0, "the sandbox for this agent's write scope could not be created")
        try:
            return supervisor.start(argv, cwd, env, out, err, stdin=stdin)
        except SupervisorGone:
            self.kill()
        supervisor = self._get_supervisor(writes=profile.writes)
        if supervisor is None:
            raise SandboxUnavailable(0, self.problem or "the sandbox ended and cannot be restarted")
        return supervisor.start(argv, cwd, env, out, err, stdin=stdin)

    def _start_apart(
        self, profile: ProcessProfile, start: Callable[[SandboxSupervisor], SandboxedChild]
    ) -> SandboxedChild:
        """Start git or a server in a sandbox of its own. What it leaves behind is killed when it exits."""
        layout = self._plan_own_layout(profile)
        is_git = profile.name == "git"
        known = next((spare for spare in self._spare if is_git and spare[0] == layout), None)
        if known is not None:
            self._spare.remove(known)
            with suppress(SupervisorGone):
                return self._start_once(*known, start, is_kept=True)
        probe = self._load_probe()
        if probe is None:
            raise SandboxUnavailable(0, self.problem or "The sandbox no longer works.")
        network = profile.name == "git-remote" or profile.grants.network
        why = ""
        for _ in range(_MAX_TRIES):
            try:
                supervisor = open_sandbox(probe.candidate, layout, network=network, path=self._path)
            except SandboxSetupError as error:  # a path to hide may have disappeared meanwhile
                why, layout = str(error), self._plan_own_layout(profile)
                continue
            self._own[supervisor] = False
            self._report_group(supervisor.group, True)
            return self._start_once(layout, supervisor, start, is_kept=is_git)
        raise SandboxUnavailable(0, f"The sandbox could not be created: {why}.")

    def _start_once(
        self,
        layout: SandboxLayout,
        supervisor: SandboxSupervisor,
        start: Callable[[SandboxSupervisor], SandboxedChild],
        *,
        is_kept: bool,
    ) -> SandboxedChild:
        """Start one program in this sandbox. If the program leaves nothing behind, the next can use it (`is_kept`)."""

        def end_or_keep(left: bool) -> None:
            if is_kept and not left and supervisor in self._own:
                self._spare.append((layout, supervisor))
                self._note_use()
                if len(self._spare) > _MAX_SPARE:
                    self._end_own(self._spare.pop(0)[1])
            else:
                self._end_own(supervisor)

        try:
            child = start(supervisor)
        except BaseException:
            self._end_own(supervisor)
            raise
        child.on_exit = end_or_keep
        return child

    def _plan_own_layout(self, profile: ProcessProfile) -> SandboxLayout:
        """Return the layout of a sandbox for one process."""
        scope, grants = profile.scope, profile.grants
        if profile.name in ("git", "git-remote"):
            remote = profile.name == "git-remote"
            return plan_git_layout(self._session, scope or (), profile.visible, remote=remote)
        session = replace(self._session, writable=()) if profile.name == "server" else self._session
        base = plan_layout(session, writes=True, protected_files=self._protected_files, scope=scope)
        exact = self.kind == "bubblewrap"
        return add_grants(base, self._session, grants.paths, removes=grants.removes, exact=exact)

    def _open_own(self, profile: ProcessProfile, outer: SandboxSupervisor) -> SandboxSupervisor | None:
        """Create the sandbox for a command with grants or a write scope; None if that fails."""
        probe = self._load_probe()
        if probe is None:
            return None
        layout = self._plan_own_layout(profile)
        network = self._options.network or profile.grants.network
        joinable = probe.candidate.kind == "bubblewrap" and not network and os.getuid() == 0
        for joined in (f"/proc/{outer.pid}/ns/net", "") if joinable else ("",):
            with suppress(SandboxSetupError):
                supervisor = open_sandbox(
                    probe.candidate, layout, network=network, path=self._path, join_network=joined
                )
                self._own_layouts[profile] = layout
                return supervisor
        return None

    def _end_own(self, supervisor: SandboxSupervisor) -> None:
        if supervisor in self._own:
            del self._own[supervisor]
            supervisor.kill()
            self._report_group(supervisor.group, False)

    def watch_protected_files(self, cwd: str, profile: ProcessProfile, *, is_alone: bool) -> None:
        """Note the state of the protected files before a command that may write."""
        if profile.writes or profile.name == "server":
            before, now = self._protected_state, self._protected_files.read_state(os.path.realpath(cwd))
            if before is not None and not is_alone:
                self._late_changes += find_tampered_files(before, now, self._session.root)
            self._protected_state = now

    def find_tampered_files(self, cwd: str, profile: ProcessProfile) -> tuple[str, ...]:
        """Return the protected files that are new or changed since the last look."""
        before = self._protected_state
        if before is None or not profile.writes:
            return ()
        self._protected_state = now = self._protected_files.read_state(os.path.realpath(cwd))
        return find_tampered_files(before, now, self._session.root)

    def take_late_changes(self, *, look: bool) -> tuple[str, ...]:
        """Return the protected files that changed while no command ran but a process in the background did."""
        changes = self._late_changes
        if look:
            changes += self.find_tampered_files(self._session.root, PROJECT)
        self._late_changes = ()
        return tuple(dict.fromkeys(changes))

    def describe_denial(self, output: str, code: int, cwd: str, profile: ProcessProfile) -> str:
        """Return what the sandbox probably denied a failed command, or ""."""
        layout = self._own_layouts.get(profile) or self._get_layout(writes=profile.writes)
        network = self._options.network or profile.grants.network
        return describe_denial(output, code, cwd, layout, network=network)

    def _note_use(self) -> None:
        with suppress(RuntimeError):  # without an event loop the caller ends them soon
            loop = asyncio.get_running_loop()
            self._last_use = loop.time()
            if self._idle_timer is None:
                self._idle_timer = loop.call_later(self._idle_s, self._end_idle, loop)

    def _end_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the sandboxes in which nothing runs, unless one was used lately; look again later if there are any."""
        self._idle_timer = None
        left = self._last_use + self._idle_s - loop.time()
        if left <= 0:
            while self._spare:
                self._end_own(self._spare.pop()[1])
            if not any(self._own.values()) and all(map(self._is_idle, self._supervisors.values())):
                self._kill_shared()
        if self._supervisors or self._spare:
            self._idle_timer = loop.call_later(left if left > 0 else self._idle_s, self._end_idle, loop)

    def kill(self) -> None:
        """Kill the sandboxes and everything in them."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._kill_shared()
        self._spare.clear()
        for supervisor in list(self._own):
            self._end_own(supervisor)
        self._own_layouts.clear()

    def _kill_shared(self) -> None:
        """Kill the two sandboxes that commands share. The next command makes new ones."""
        for supervisor in self._supervisors.values():
            supervisor.kill()
            if supervisor.group:
                self._report_group(supervisor.group, False)
        self._supervisors.clear()
        self._layouts.clear()
        self._is_network_shared = False

    def _load_probe(self) -> ProbeResult | None:
        if self._probe is None:
            probe = load_probe(self._probe_file, lambda: compute_probe_key(self._options, self._path))
            if probe is not None and (
                probe.candidate in list_candidates(self._options.backend) or probe.candidate.kind == "none"
            ):
                self._probe = probe
        return self._probe

    def _get_layout(self, *, writes: bool) -> SandboxLayout:
        if writes not in self._layouts:
            self._layouts[writes] = plan_layout(self._session, writes=writes, protected_files=self._protected_files)
        return self._layouts[writes]

    def _get_supervisor(self, *, writes: bool) -> SandboxSupervisor | None:
        """Return the sandbox to start commands in, creating it if needed; None if no backend works."""
        # Kill all sandboxes if the project folder was replaced, and the shared ones if they are idle and outdated.
        if True in self._supervisors and self._identify_root() != self._root_identity:
            self.kill()
        elif self._is_outdated() and all(self._is_idle(supervisor) for supervisor in self._supervisors.values()):
            self._kill_shared()
        if not writes and self._has_separate_network():
            self._supervisors.pop(False).kill()
        if writes not in self._supervisors:
            supervisor = self._make_supervisor(writes=writes)
            if supervisor is None:
                return None
            self._supervisors[writes] = supervisor
            self._note_use()
            if supervisor.group:
                self._report_group(supervisor.group, True)
        return self._supervisors[writes]

    def _is_outdated(self) -> bool:
        """True if there are other files to protect or to hide than when the sandboxes were created."""
        layouts = [self._layouts[writes] for writes in self._supervisors if writes in self._layouts]
        read_only = [layout.protected for layout in layouts if layout.writable]
        if read_only and read_only[0] != tuple(self._protected_files.list_read_only(is_fresh=True)):
            return True
        return any(
            has_exposed_files(layout, self._secrets) or list_exposed_sockets(layout, self._session)
            for layout in layouts
        )

    def _is_idle(self, supervisor: SandboxSupervisor) -> bool:
        """True if no process runs in the sandbox but our init programs."""
        inner = self._supervisors.get(False)
        is_outer = supervisor is not inner and inner is not None and not inner.group
        try:
            return supervisor.count_children() <= is_outer
        except OSError:
            return False

    def _has_separate_network(self) -> bool:
        """True if the read-only sandbox is idle and has its own network although it could share the writable one's."""
        read_only = self._supervisors.get(False)
        is_shared = self._options.network or self._is_network_shared or True not in self._supervisors
        return read_only is not None and not is_shared and self._is_idle(read_only)

    def _identify_root(self) -> tuple[int, int]:
        try:
            status = os.stat(self._session.root)  # noqa: PTH116
        except OSError:
            return (0, 0)
        return status.st_dev, status.st_ino

    def _make_supervisor(self, *, writes: bool) -> SandboxSupervisor | None:
        if writes:
            self._layouts.pop(True, None)
            self._root_identity = self._identify_root()
        probe = self._load_probe()
        if probe is not None:
            if probe.candidate.kind == "none":
                return None
            try:
                return self._open_without_downgrade(probe.candidate, writes=writes)
            except SandboxSetupError:
                self._probe = None
        return self._try_candidates(writes=writes)

    def _open_without_downgrade(self, candidate: SandboxCandidate, *, writes: bool) -> SandboxSupervisor | None:
        """Create a sandbox of this kind. Return None if the machine can create one, but not for this project now.

        A project must not be able to force a weaker sandbox by its files. A path to hide may have disappeared
        meanwhile, so creation is retried with a new layout. Raise SandboxSetupError if the machine cannot create it.
        """
        self._error = ""
        for _ in range(_MAX_TRIES):
            try:
                layout = self._get_layout(writes=writes)
                network = self._options.network
                if not writes and not network and candidate.kind == "bubblewrap" and True in self._supervisors:
                    try:
                        supervisor = self._open_sharing_network(self._supervisors[True], candidate, layout)
                    except (SandboxSetupError, OSError):
                        pass
                    else:
                        self._is_network_shared = True
                        return supervisor
                return open_sandbox(candidate, layout, network=network, path=self._path)
            except SandboxSetupError as error:
                self._layouts.pop(writes, None)
                if not error.is_transient and not can_open(candidate, network=self._options.network, path=self._path):
                    raise
                self._error = (
                    f"The sandbox {candidate.kind} works on this machine but could not be created now: {error}. "
                    'If this persists, set sandbox.backend to "landlock" or "off" in your user configuration.'
                )
                if error.is_transient:
                    break
        return None

    def _try_candidates(self, *, writes: bool) -> SandboxSupervisor | None:
        reasons: dict[str, str] = {}
        supervisor, found = None, SandboxCandidate("none")
        for candidate in list_candidates(self._options.backend):
            try:
                supervisor, found = self._open_without_downgrade(candidate, writes=writes), candidate
            except SandboxSetupError as error:
                reasons.setdefault(candidate.kind, str(error))
            else:
                reasons.pop(candidate.kind, None)
                break
        self._probe = ProbeResult(compute_probe_key(self._options, self._path), found, reasons, can_leak_network(found))
        if not self._error:
            save_probe(self._probe_file, self._probe)
        return supervisor

    def _open_sharing_network(
        self, outer: SandboxSupervisor, candidate: SandboxCandidate, layout: SandboxLayout
    ) -> SandboxSupervisor:
        """Create the read-only sandbox in the writable one's network: root joins its namespace, other users nest it."""
        if os.getuid() == 0:
            return open_sandbox(
                candidate, layout, network=False, path=self._path, join_network=f"/proc/{outer.pid}/ns/net"
            )
        return open_nested_supervisor(
            outer, build_nested_argv(find_program("bwrap", self._path), sys.executable), {"PATH": self._path}
        )
