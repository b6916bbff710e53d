"""The sandbox of a session: runs its commands in the strongest backend that works on this machine.

A sandbox that does not answer is replaced for the next command; what runs in it goes on. What is slow happens in
threads, and `examine` finds out what the sandbox can do before its properties are asked for.

Two sandboxes are created when the first command needs them: a writable one that may change the project and temporary
files, and a read-only one. Both share a network namespace without access to the network, unless it is allowed.
A command that the user granted more to (`SandboxGrants`), or whose agent may change only a part of the project, runs in
a sandbox of its own, and so do servers and Odin's own git.
Only the user can let a command run unsandboxed, once per call and never in a read-only mode; no rule, hook or
permission mode can. Git and servers never do: where no sandbox works, or it is off, they get one or do not run.

`describe_denial` guesses from the output of a failed command what the sandbox denied; when in doubt it says nothing.
"""

import asyncio
import concurrent.futures
import errno
import functools
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from odin.core.path_names import contains, resolve_links
from odin.core.profile import PROJECT, CommandLevel, ProcessProfile
from odin.core.timing import DEFAULT_TIMING, Timing, run_in_thread
from odin.sandbox.backends import (
    build_nested_argv,
    can_leak_network,
    can_open,
    list_candidates,
    open_sandbox,
)
from odin.sandbox.control_group import limit_processes
from odin.sandbox.layout import (
    HIDDEN_VARIABLES,
    SandboxLayout,
    SandboxSession,
    SecretPaths,
    add_grants,
    find_kernel_mounts,
    find_writable_folders,
    has_exposed_files,
    hides_all,
    is_same_but_hidden,
    is_writable,
    list_exposed_sockets,
    list_open_sockets,
    list_view_covers,
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
    describe_remedy,
    describe_sandbox,
    find_program,
    is_restricted_by_apparmor,
    load_probe,
    save_probe,
)
from odin.sandbox.protected_files import ProtectedFiles, ProtectedState, find_tampered_files, list_git_folders
from odin.sandbox.runner import SandboxUnavailable, ViewUnavailable
from odin.sandbox.secret_files import SecretFiles
from odin.sandbox.supervisor import (
    SandboxedChild,
    SandboxSetupError,
    SandboxSupervisor,
    SupervisorGone,
    SupervisorSilent,
    ViewMountError,
    open_nested_supervisor,
)
from odin.sandbox.temporary_files import TemporaryFiles
from odin.sandbox.views.layer import remove_layer
from odin.sandbox.views.setup import describe_mount_error
from odin.sandbox.views.store import PrivateFolder

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
_FOREIGN = re.compile(r"value too large for defined data type|\bEOVERFLOW\b", re.IGNORECASE)
"""What programs say when a view cannot change a file of another group."""

_BUSY = re.compile(r"device or resource busy|\bEBUSY\b", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|\bEACCES\b", re.IGNORECASE)
_REFUSED = re.compile(r"connection refused|\bECONNREFUSED\b|couldn't connect|failed to connect", re.IGNORECASE)
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?:[\s\w(),\"]*port)?[:\s]+(\d{2,5})\b")
_PATH_BEFORE = re.compile(
    r"""(?:['"‘`]([^'"’`\n]+)['"’`]|([^\s:'"]+)): (?=read-only file|permission denied|value too large)""", re.IGNORECASE
)
_ERROR_WORD = re.compile(r"E[A-Z]+|\[?[Ee]rrno|\d+\]?|[A-Za-z]*Error")
_QUOTED = re.compile(r"""['"‘`]([^'"’`\n]*[/.\w][^'"’`\n]*)['"’`]""")
_BARE = re.compile(r"""(?:^|[\s(=])((?:\.{0,2}/|\.)[^\s:'"]+)""")

_SHELL_SYNTAX = re.compile(r"[;&|<>`$(){}\n\\\"'*?\[\]~#!]")
_PRIVATE_TMP = "/dev/shm"

_APART = frozenset(("git", "git-remote", "server"))
"""Profiles of programs that do not see the network of the commands, nor their temporary files if they are git."""

_MAX_SPARE = 12
"""Idle sandboxes kept for git: a worktree is made, compared and removed with about twelve profiles in turn."""

_MAX_TRIES = 3
_MAX_OUTDATED_TRIES = 30
"""How often a sandbox is planned anew if sockets vanish while it is made: some programs make many in a second."""

_CLOSE_SECONDS = 5.0
"""How long the processes of a sandbox may take to be gone after they were killed."""

_MAX_REMEMBERED = 100
"""Projects of which it is remembered that views work there."""


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
    if _FOREIGN.search(line):
        return f"changing {_extract_path(line, cwd) or 'files'} of another group"
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


SandboxUse = tuple[bool, tuple[str, ...]]
"""What a shared sandbox is for: commands that write, or else those from which these paths are hidden."""

WRITING: SandboxUse = (True, ())

StartIn = Callable[[SandboxSupervisor, SandboxLayout], Awaitable[SandboxedChild]]
"""Starts a program in a sandbox with this layout."""


def _choose_use(profile: ProcessProfile) -> SandboxUse:
    return WRITING if profile.writes else (False, profile.hidden)


def _is_outdated(layout: SandboxLayout, error: SandboxSetupError) -> bool:
    """True if the sandbox could not be created because something to hide has vanished since it was planned.

    A socket may have been made again by now.
    """
    why = str(error)
    gone = (path for path in layout.hidden if path in why and not os.path.lexists(path))
    return any(path in why for path in layout.sockets) or any(gone)


def _needs_own_sandbox(profile: ProcessProfile) -> bool:
    return profile.name in _APART or (profile.writes and (bool(profile.grants) or profile.scope is not None))


class Sandbox:
    """The sandboxes of one session. `probe_file` caches which backend works on this machine.

    Those in which nothing has run for a while are ended: a hundred open sessions must not keep hundreds of processes,
    and a new one takes some milliseconds.
    """

    def __init__(
        self,
        session: SandboxSession,
        options: SandboxOptions | None = None,
        probe_file: Path | None = None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self._options = options or SandboxOptions()
        self._probe_file = probe_file
        self._error = ""
        self._probe: ProbeResult | None = None
        self._supervisors: dict[SandboxUse, SandboxSupervisor] = {}
        self._layouts: dict[SandboxUse, SandboxLayout] = {}
        self._own: dict[SandboxSupervisor, bool] = {}  # True: it may use the network of the shared ones
        self._spare: list[tuple[SandboxLayout, SandboxSupervisor]] = []
        self._own_layouts: dict[ProcessProfile, SandboxLayout] = {}
        self._retired: list[SandboxSupervisor] = []  # made for other roots, or silent, but perhaps still in use
        self._ended: list[concurrent.futures.Future[None]] = []  # done when the processes of a killed one are gone
        self._kills = 0
        self._making = asyncio.Lock()  # for the shared ones, their layouts and the files of their commands
        self._looking = asyncio.Lock()
        self._set_session(session)
        self._no_view: str | None = None
        self._examination: asyncio.Future[None] | None = None
        self._folder = PrivateFolder(session.views)
        self._temporary_files: TemporaryFiles | None = None
        self._is_old = False  # there is more to hide than in the shared sandboxes, but they are in use
        self._protected_state: ProtectedState | None = None
        self._late_changes: tuple[str, ...] = ()
        self._root_identities: list[tuple[int, int]] = []
        self._sharing: set[SandboxUse] = set()  # the read-only sandboxes that share the network of the writable one
        self._idle_s = timing.sandbox_idle_s
        self._answer_s = timing.sandbox_answer_s
        self._last_use = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_look: asyncio.Task[None] | None = None
        self._report_group: Callable[[int, bool], None] = lambda group, alive: None

    def _set_session(self, session: SandboxSession) -> None:
        self._session = session
        self._path = find_writable_folders(session).filter_path(session.env.get("PATH", ""))
        self._protected_files = ProtectedFiles(*session.projects, skipped=find_kernel_mounts(session.projects))
        self._secrets = SecretPaths(session)
        checkouts = (f"{path}/".partition("/.git/") for path in list_git_folders(session.folders))
        others = [path for path, mark, _ in checkouts if mark]  # those of which roots are worktrees
        self._secret_files = SecretFiles(tuple(dict.fromkeys((*session.folders, *session.writable, *others))))

    def change_session(self, session: SandboxSession) -> None:
        """Use another session from the next command on. A process that runs keeps the sandbox it was started in."""
        self._set_session(session)
        self._retire_shared()
        while self._spare:
            self._end_own(self._spare.pop()[1])
        self._own_layouts.clear()
        self._protected_state = None

    def _retire_shared(self) -> None:
        """Let the next command make new sandboxes. These are ended when nothing runs in them."""
        self._retired += self._supervisors.values()
        self._supervisors.clear()
        self._layouts.clear()
        self._sharing.clear()

    def _retire(self, supervisor: SandboxSupervisor) -> None:
        """Let the next command make a new sandbox instead of this one, which is silent or gone."""
        if supervisor is self._supervisors.get(WRITING):  # others may have its network
            self._retire_shared()
            return
        for use in [use for use, found in self._supervisors.items() if found is supervisor]:
            self._retired.append(self._supervisors.pop(use))
            self._layouts.pop(use, None)
            self._sharing.discard(use)

    def watch_groups(self, on_change: Callable[[int, bool], None]) -> None:
        """Call `on_change(group, alive)` when a sandbox starts or ends, for the watchdog; now for those that run."""
        self._report_group = on_change
        for supervisor in self._supervisors.values():
            if supervisor.group:
                on_change(supervisor.group, True)

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
        return describe_sandbox(self._options, self._load_probe(), self._path, self._no_view or "")

    async def probe(self, *, force: bool = False) -> None:
        """Find out now which backend works, instead of with the first command. `force` ignores an earlier result."""
        if force and self._options.backend != "off":
            self._kill_all()
            async with self._making:
                supervisor = await self._try_candidates(WRITING)
            if supervisor is not None:
                self._kill(supervisor)
        elif self.kind is None:
            await self._get_supervisor(WRITING)

    async def examine(self, *, views: bool = True) -> None:
        """Find out what the sandbox can do: whether one works and, with `views`, whether commands can have views.

        `is_confining` and the like know nothing before. That a view was mounted is remembered for later sessions.
        """
        await self.probe()
        if not views or self._no_view is not None or not self.is_confining() or not self.explain_no_view():
            return
        # One attempt for all that ask, which goes on if one of them is cancelled: half an attempt says nothing.
        if self._examination is None:
            self._examination = asyncio.ensure_future(self._examine_views())
        await asyncio.shield(self._examination)

    async def _examine_views(self) -> None:
        try:
            self._no_view = await self._try_view()
        finally:
            self._examination = None
        if self._probe is not None and self._no_view == "":
            known = (*self._probe.with_views, self._session.root)[-_MAX_REMEMBERED:]
            self._probe = replace(self._probe, with_views=known)
            save_probe(self._probe_file, self._probe)

    async def should_sandbox(self, command: str | Sequence[str], profile: ProcessProfile) -> bool:
        """True if the command must run sandboxed. Raise SandboxUnavailable if it must and cannot."""
        if profile.is_outside:
            return False
        is_exempt = profile.scope is None and self._is_exempt(command)
        if not profile.needs_sandbox and (self._options.backend == "off" or is_exempt):
            return False
        if self._load_probe() is None:
            await self._get_supervisor(_choose_use(profile))
        probe = self._load_probe()
        if problem := describe_problem(self._options, probe):
            raise SandboxUnavailable(0, problem)
        works = probe is None or probe.candidate.kind != "none"
        if (profile.needs_sandbox or profile.sandboxed) and not works:
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

    def _build_environment(
        self, env: Mapping[str, str], profile: ProcessProfile, layout: SandboxLayout
    ) -> dict[str, str]:
        """Return the environment without variables that lead to agents and daemons, and with a usable TMPDIR."""
        environment = {name: value for name, value in env.items() if name not in HIDDEN_VARIABLES}
        folders = [path for path in layout.temporary if path not in layout.persistent]
        if profile.name in ("git", "git-remote"):
            environment["PATH"] = self._path
        if profile.name == "git-remote":
            environment.update({name: env[name] for name in ("SSH_AUTH_SOCK",) if name in env})
        if self.kind == "landlock" and folders and layout.private:
            environment["TMPDIR"] = layout.temporaries[folders[0]]
        elif os.path.realpath(env.get("TMPDIR") or "/tmp") not in folders:
            environment["TMPDIR"] = folders[0] if folders else _PRIVATE_TMP
        return environment

    async def start(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        out: int,
        err: int,
        profile: ProcessProfile,
        stdin: int = -1,
    ) -> SandboxedChild:
        """Start a sandboxed command, restarting a sandbox that has died. Raise OSError if it cannot be started.

        `env` is its environment outside. If the sandbox does not answer, raise SandboxUnavailable.
        """
        self._note_use()

        def start_in(found: SandboxSupervisor, layout: SandboxLayout) -> Awaitable[SandboxedChild]:
            inner = self._build_environment(env, profile, layout)
            start = functools.partial(found.start, argv, cwd, inner, out, err, stdin=stdin)
            return self._start_in_view(start, found, layout, profile) if profile.view else start()

        try:
            if profile.name in _APART:
                return await self._start_apart(profile, start_in)
            return await self._start_command(profile, start_in)
        except SupervisorSilent:
            raise SandboxUnavailable(
                0,
                f"The sandbox has not answered for {self._answer_s:g} s, so this was not run. What runs in it goes on. "
                "The next command gets another one.",
            ) from None

    async def _start_command(self, profile: ProcessProfile, start_in: StartIn) -> SandboxedChild:
        use = _choose_use(profile)
        supervisor = await self._get_supervisor(use)
        if supervisor is None:
            raise SandboxUnavailable(0, self.problem or "the sandbox no longer works")
        if _needs_own_sandbox(profile):
            layout, own = await self._open_own(profile, supervisor)
            # The command's own sandbox ends with the last process that the command has started.
            self._own_layouts[profile] = layout
            self._own[own] = True
            self._report_group(own.group, True)
            try:
                child = await start_in(own, layout)
            except BaseException:
                self._end_own(own)
                raise
            child.on_exit = lambda left: None if left else self._end_own(own)
            return child
        try:
            child = await start_in(supervisor, self._layouts[use])
        except SupervisorSilent:
            self._retire(supervisor)
            raise
        except SupervisorGone:
            self._retire(supervisor)
            supervisor = await self._get_supervisor(use)
            if supervisor is None:
                raise SandboxUnavailable(0, self.problem or "the sandbox ended and cannot be restarted") from None
            child = await start_in(supervisor, self._layouts[use])
        if child.view is not None:
            child.on_exit = lambda left: supervisor.prepare_view()
        return child

    async def _start_in_view(
        self,
        start: Callable[..., Awaitable[SandboxedChild]],
        found: SandboxSupervisor,
        layout: SandboxLayout,
        profile: ProcessProfile,
    ) -> SandboxedChild:
        if found.views is None:
            self._no_view = found.no_view
            raise ViewUnavailable(0, found.no_view)
        new: list[str] = []
        if self._is_old:
            new = [*self._secrets.find(), *list_exposed_sockets(layout, self._session, list_open_sockets())]
        hidden, shown = list_view_covers(layout, (*new, *profile.hidden))
        view = found.take_view()
        try:
            return await start(view=view, limits=self._options.limits, hidden=hidden, shown=shown)
        except BaseException as error:
            with suppress(OSError):
                remove_layer(view)
            if isinstance(error, ViewMountError):
                raise self._note_no_view(error, found) from None
            raise

    def find_level(self, command: str = "") -> CommandLevel:
        """Return how commands are confined, or this one, as far as that was examined."""
        if not self.is_confining(command):
            return "none"
        return "kernel" if self.explain_no_view() else "view"

    def is_confining(self, command: str = "") -> bool:
        """True if commands, or this one, run in a sandbox, with or without a view."""
        if self._options.backend == "off" or (command and self._is_exempt(command)):
            return False
        return self.kind not in (None, "none") and not self.problem

    def explain_level(self) -> str:
        """Return why commands are not confined better, and how they would be; "" if there is nothing better."""
        level = self.find_level()
        if level == "view":
            return ""
        reason = self.explain_no_view() if level == "kernel" else self.explain_unconfined()
        bwrap = find_program("bwrap", self._path)
        hint = describe_remedy(reason, self.list_failures(), bwrap, needs_profile=is_restricted_by_apparmor())
        return f"{reason[:1].upper()}{reason[1:]}. {hint}".strip()

    def explain_no_view(self) -> str:
        """Return why commands cannot have a view of this project, as a clause, or ""."""
        if self._options.backend == "off":
            return "the sandbox is off (sandbox.backend)"
        if self._no_view is None:
            probe = self._load_probe()
            return "" if probe is not None and self._session.root in probe.with_views else "it was not tried yet"
        return self._no_view

    async def _try_view(self) -> str | None:
        """Return why commands cannot have a view, "" if they can, or None if that is not known."""
        supervisor = await self._get_supervisor(WRITING)
        if supervisor is None:
            return self.problem or "no sandbox works on this machine"
        try:
            await self.start(["/"], "/", {}, 2, 2, replace(PROJECT, view=True))
        except ViewUnavailable as error:
            return str(error)
        except SandboxUnavailable:
            return None
        except OSError:  # a folder is no program, but one would have been started in a view
            supervisor.prepare_view()
        return ""

    def _note_no_view(self, error: ViewMountError, supervisor: SandboxSupervisor) -> ViewUnavailable:
        """Remember why views do not work in this sandbox. Return the exception for it."""
        number = error.errno or 0
        assert supervisor.views is not None
        reason = describe_mount_error(number, supervisor.views)
        if number in (errno.EINVAL, errno.EACCES, errno.ENODEV, errno.EPERM):  # others may not come again
            supervisor.views, supervisor.no_view = None, reason
            self._no_view = reason
            if number in (errno.ENODEV, errno.EPERM):
                self._note_no_views(reason)
        return ViewUnavailable(0, reason)

    def _note_no_views(self, reason: str) -> None:
        """Remember that views do not work on this machine, whatever the project."""
        if self._probe is not None:
            self._probe = replace(self._probe, no_view=reason)
            save_probe(self._probe_file, self._probe)

    async def _open_with_views(
        self, candidate: SandboxCandidate, layout: SandboxLayout, *, network: bool, join_network: str = ""
    ) -> SandboxSupervisor:
        """Create a sandbox in which commands can have views, or one without if that is not possible."""
        reason = self._probe.no_view if self._probe is not None else ""
        if not self._session.views:
            reason = "there is no folder for views"
        elif candidate.kind != "bubblewrap":
            reason = "only bubblewrap can mount views"
        open_it = functools.partial(self._open, candidate, layout, network=network, join_network=join_network)
        if not reason:
            try:
                supervisor = await open_it(views=self._folder.layers)
            except SandboxSetupError as error:
                if error.is_transient or _is_outdated(layout, error):
                    raise
                reason = str(error)
            else:
                limits = self._options.limits
                await run_in_thread(lambda _: limit_processes(supervisor.pid, limits), lambda _: supervisor.kill())
                return supervisor
        supervisor = await open_it()
        supervisor.no_view = reason
        if reason.endswith(os.strerror(errno.EPERM)):
            self._note_no_views(reason)
        return supervisor

    async def _open(
        self,
        candidate: SandboxCandidate,
        layout: SandboxLayout,
        *,
        network: bool,
        join_network: str = "",
        views: str = "",
    ) -> SandboxSupervisor:
        return await open_sandbox(
            candidate,
            layout,
            network=network,
            path=self._path,
            join_network=join_network,
            views=views,
            answer_s=self._answer_s,
        )

    async def _start_apart(self, profile: ProcessProfile, start_in: StartIn) -> SandboxedChild:
        """Start git or a server in a sandbox of its own. What it leaves behind is killed when it exits."""
        is_git = profile.name == "git"
        layout = await asyncio.to_thread(self._plan_own_layout, profile) if is_git else None
        known = self._take_spare(layout) if layout is not None else None
        if known is not None:
            with suppress(SupervisorGone, SupervisorSilent):
                return await self._start_once(*known, start_in, is_kept=True)
        network = profile.name == "git-remote" or profile.grants.network
        layout, supervisor = await self._open_planned(profile, functools.partial(self._open, network=network), layout)
        self._own[supervisor] = False
        self._report_group(supervisor.group, True)
        return await self._start_once(layout, supervisor, start_in, is_kept=is_git)

    def _take_spare(self, layout: SandboxLayout) -> tuple[SandboxLayout, SandboxSupervisor] | None:
        """Return an idle sandbox for this layout, or None. End those of the kind that no longer hide all of it."""
        similar = [spare for spare in self._spare if is_same_but_hidden(spare[0], layout)]
        for spare in similar:
            if hides_all(spare[0], layout):
                self._spare.remove(spare)
                return spare
        for spare in similar:
            self._spare.remove(spare)
            self._end_own(spare[1])
        return None

    async def _open_planned(
        self,
        profile: ProcessProfile,
        open_it: Callable[[SandboxCandidate, SandboxLayout], Awaitable[SandboxSupervisor]],
        layout: SandboxLayout | None = None,
    ) -> tuple[SandboxLayout, SandboxSupervisor]:
        """Create a sandbox for one process. It is planned anew if it fails: a path to hide may have disappeared.

        Raise SandboxUnavailable: a process never runs with more or less than its profile says.
        """
        probe, why = self._load_probe(), ""
        if probe is None:
            raise SandboxUnavailable(0, self.problem or "The sandbox no longer works.")
        for number in range(1, _MAX_OUTDATED_TRIES + 1):
            layout = layout or await asyncio.to_thread(self._plan_own_layout, profile)
            try:
                return layout, await open_it(probe.candidate, layout)
            except SandboxSetupError as error:
                why = str(error)
                if error.is_transient or (number >= _MAX_TRIES and not _is_outdated(layout, error)):
                    break
                layout = None
        raise SandboxUnavailable(0, f"The sandbox could not be created: {why}.")

    async def _start_once(
        self, layout: SandboxLayout, supervisor: SandboxSupervisor, start_in: StartIn, *, is_kept: bool
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
            child = await start_in(supervisor, layout)
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
        session = self._session
        if profile.name == "server":  # servers are the project's, and write nowhere else
            others = tuple(replace(root, access="read") for root in session.roots)
            session = replace(session, writable=(), roots=others)
        private = self._folder.temporary
        base = plan_layout(session, writes=True, protected_files=self._protected_files, scope=scope, private=private)
        exact = self.kind == "bubblewrap"
        return add_grants(base, self._session, grants.paths, removes=grants.removes, exact=exact)

    async def _open_own(
        self, profile: ProcessProfile, outer: SandboxSupervisor
    ) -> tuple[SandboxLayout, SandboxSupervisor]:
        """Create the sandbox for a command with grants or a write scope. Raise SandboxUnavailable."""
        network = self._options.network or profile.grants.network

        async def open_it(candidate: SandboxCandidate, layout: SandboxLayout) -> SandboxSupervisor:
            make = self._open_with_views if profile.view else self._open
            if candidate.kind == "bubblewrap" and not network and os.getuid() == 0:
                with suppress(SandboxSetupError, OSError):
                    return await make(candidate, layout, network=False, join_network=f"/proc/{outer.pid}/ns/net")
            return await make(candidate, layout, network=network)

        return await self._open_planned(profile, open_it)

    def _end_own(self, supervisor: SandboxSupervisor) -> None:
        if supervisor in self._own:
            del self._own[supervisor]
            self._kill(supervisor)

    async def watch_protected_files(self, cwd: str, profile: ProcessProfile, *, is_alone: bool) -> None:
        """Note the state of the protected files before a command that may write."""
        if (profile.writes and not profile.view) or profile.name == "server":
            async with self._looking:
                before, now = await self._look_again(cwd)
                if before is not None and not is_alone:
                    self._late_changes += find_tampered_files(before, now, self._session.root)

    async def find_tampered_files(self, cwd: str, profile: ProcessProfile) -> tuple[str, ...]:
        """Return the protected files that are new or changed since the last look."""
        if self._protected_state is None or not profile.writes or profile.view:
            return ()
        async with self._looking:
            before, now = await self._look_again(cwd)
        return find_tampered_files(before or now, now, self._session.root)

    async def _look_again(self, cwd: str) -> tuple[ProtectedState | None, ProtectedState]:
        """Return the state of the protected files at the last look, if any, and the one that is noted now."""
        while True:
            files, before = self._protected_files, self._protected_state
            now = await asyncio.to_thread(files.read_state, os.path.realpath(cwd))
            if files is self._protected_files and before is self._protected_state:  # else there was a look meanwhile
                self._protected_state = now
                return before, now

    def take_late_changes(self, *, look: bool) -> tuple[str, ...]:
        """Return the protected files that changed while no command ran but a process in the background did."""
        changes, self._late_changes = self._late_changes, ()
        if look and self._protected_state is not None:
            before, now = self._protected_state, self._protected_files.read_state(self._session.root)
            self._protected_state = now
            changes += find_tampered_files(before, now, self._session.root)
        return tuple(dict.fromkeys(changes))

    def describe_denial(self, output: str, code: int, cwd: str, profile: ProcessProfile) -> str:
        """Return what the sandbox probably denied a failed command, or "".

        A write in a read-only root is not named: the user has decided about it, so it is not offered without a sandbox.
        """
        layout = self._own_layouts.get(profile) or self._layouts.get(_choose_use(profile))
        if layout is None:
            return ""
        network = self._options.network or profile.grants.network
        denial = describe_denial(output, code, cwd, layout, network=network)
        decided = [root.path for root in self._session.roots if not root.is_writable]
        path = resolve_links(denial.removeprefix("writing ")) if decided else None
        return "" if path and any(contains(root, path) for root in decided) else denial

    def _note_use(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_use = loop.time()
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(self._idle_s, self._begin_idle_look, loop)

    def _begin_idle_look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._idle_timer = None
        self._idle_look = loop.create_task(self._end_idle(loop))

    async def _end_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the sandboxes in which nothing runs, unless one was used lately; look again later if there are any."""
        left = self._last_use + self._idle_s - loop.time()
        if left <= 0:
            async with self._making:
                while self._spare:
                    self._end_own(self._spare.pop()[1])
                if not any(self._own.values()) and await self._are_idle(self._supervisors.values()):
                    self._kill_shared()
                for supervisor in list(self._retired):
                    if await self._is_idle(supervisor):
                        self._retired.remove(supervisor)
                        self._kill(supervisor)
        self._idle_look = None
        if self._idle_timer is None and (self._supervisors or self._spare or self._retired):
            self._idle_timer = loop.call_later(left if left > 0 else self._idle_s, self._begin_idle_look, loop)

    def kill(self) -> None:
        """Kill the sandboxes and everything in them, and remove their temporary files."""
        self._kills += 1
        self._kill_all()
        self._temporary_files = None
        self._folder.remove()

    async def close(self) -> None:
        """Kill the sandboxes and everything in them, and wait until nothing is left of them."""
        if self._examination is not None:
            self._examination.cancel()
            await asyncio.wait([self._examination])
        self.kill()
        ended, self._ended = self._ended, []
        if ended:
            await asyncio.wait([asyncio.wrap_future(future) for future in ended], timeout=_CLOSE_SECONDS)

    def _kill(self, supervisor: SandboxSupervisor) -> None:
        supervisor.kill()
        self._ended = [future for future in (*self._ended, supervisor.ended) if not future.done()]
        if supervisor.group:
            self._report_group(supervisor.group, False)

    def _kill_all(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._idle_look is not None:
            self._idle_look.cancel()
            self._idle_look = None
        self._kill_shared()
        while self._retired:
            self._kill(self._retired.pop())
        self._spare.clear()
        for supervisor in list(self._own):
            self._end_own(supervisor)
        self._own_layouts.clear()

    def _kill_shared(self) -> None:
        """Kill the two sandboxes that commands share. The next command makes new ones."""
        for supervisor in self._supervisors.values():
            self._kill(supervisor)
        self._supervisors.clear()
        self._layouts.clear()
        self._sharing.clear()

    def _load_probe(self) -> ProbeResult | None:
        if self._probe is None:
            probe = load_probe(self._probe_file, lambda: compute_probe_key(self._options, self._path))
            if probe is not None and (
                probe.candidate in list_candidates(self._options.backend) or probe.candidate.kind == "none"
            ):
                self._probe = probe
        return self._probe

    async def _plan(self, use: SandboxUse) -> SandboxLayout:
        if use not in self._layouts:
            self._layouts[use] = await asyncio.to_thread(
                lambda: plan_layout(
                    self._session,
                    writes=use[0],
                    protected_files=self._protected_files,
                    private=self._folder.temporary,
                    concealed=use[1],
                )
            )
            if use == WRITING:
                layout = self._layouts[use]
                self._temporary_files = TemporaryFiles(layout.temporaries, layout.persistent)
        return self._layouts[use]

    @property
    def temporary_files(self) -> TemporaryFiles | None:
        """The temporary files of commands, or None if there are none or commands use those of the machine."""
        return self._temporary_files if self.is_confining() and self.kind == "bubblewrap" else None

    async def prepare_temporary_files(self) -> TemporaryFiles | None:
        """Return the temporary files of commands also if no command has run."""
        await self.probe()
        if self._temporary_files is None and self.is_confining():
            async with self._making:
                await self._plan(WRITING)
        return self.temporary_files

    def find_secret_files(self) -> tuple[str, ...]:
        """Return the files of the project that may contain secrets, for the profile of a command that hides them."""
        return self._secret_files.find()

    async def _get_supervisor(self, use: SandboxUse) -> SandboxSupervisor | None:
        """Return the sandbox to start commands in, creating it if needed; None if no backend works."""
        async with self._making:
            # Kill all sandboxes if a writable root was replaced, and the shared ones if they are idle and outdated.
            if WRITING in self._supervisors and self._identify_roots() != self._root_identities:
                self._kill_all()
            for supervisor in [supervisor for supervisor in self._supervisors.values() if supervisor.is_silent]:
                self._retire(supervisor)
            self._is_old = bool(self._supervisors) and await asyncio.to_thread(self._is_outdated)
            if self._is_old and await self._are_idle(self._supervisors.values()):
                self._kill_shared()
                self._is_old = False
            for other in [other for other in self._supervisors if not other[0]]:
                # It hides what is no longer to be hidden, or it cannot reach the servers of the writable one.
                is_useless = self._has_separate_network(other) if other == use else bool(other[1] and use[1])
                if is_useless and await self._is_idle(self._supervisors[other]):
                    self._kill(self._supervisors.pop(other))
                    del self._layouts[other]
            if use not in self._supervisors:
                planned_for = self._session, self._kills
                supervisor = await self._make_supervisor(use)
                if supervisor is None:
                    return None
                if planned_for != (self._session, self._kills):
                    self._layouts.pop(use, None)
                    self._kill(supervisor)
                    raise SandboxUnavailable(0, "The sandbox was changed or closed meanwhile, so this was not run.")
                self._supervisors[use] = supervisor
                self._note_use()
                if supervisor.group:
                    self._report_group(supervisor.group, True)
            return self._supervisors[use]

    def _is_outdated(self) -> bool:
        """True if there are other files to protect or to hide than when the sandboxes were created."""
        layouts = [self._layouts[use] for use in self._supervisors if use in self._layouts]
        read_only = [layout.protected for layout in layouts if layout.writable]
        if read_only and read_only[0] != tuple(self._protected_files.list_read_only(is_fresh=True)):
            return True
        sockets = list_open_sockets() if layouts else []
        return any(
            has_exposed_files(layout, self._secrets) or list_exposed_sockets(layout, self._session, sockets)
            for layout in layouts
        )

    async def _is_idle(self, supervisor: SandboxSupervisor) -> bool:
        """True if no process runs in the sandbox but our init programs."""
        is_outer = supervisor is self._supervisors.get(WRITING)
        inner = sum(not nested.group for nested in self._supervisors.values()) if is_outer else 0
        try:
            return await supervisor.count_children() <= inner
        except SupervisorGone:
            return True
        except OSError:
            return False

    async def _are_idle(self, supervisors: Iterable[SandboxSupervisor]) -> bool:
        return all([await self._is_idle(supervisor) for supervisor in list(supervisors)])

    def _has_separate_network(self, use: SandboxUse) -> bool:
        """True if a read-only sandbox has its own network although it could share the writable one's."""
        return not self._options.network and use not in self._sharing and WRITING in self._supervisors

    def _identify_roots(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for path in self._session.projects:
            with suppress(OSError):
                status = os.stat(path)  # noqa: PTH116
                found.append((status.st_dev, status.st_ino))
        return found

    async def _make_supervisor(self, use: SandboxUse) -> SandboxSupervisor | None:
        if use == WRITING:
            self._layouts.pop(use, None)
            self._root_identities = self._identify_roots()
        probe = self._load_probe()
        if probe is not None:
            if probe.candidate.kind == "none":
                return None
            try:
                return await self._open_without_downgrade(probe.candidate, use)
            except SandboxSetupError:
                self._probe = None
        return await self._try_candidates(use)

    async def _open_without_downgrade(self, candidate: SandboxCandidate, use: SandboxUse) -> SandboxSupervisor | None:
        """Create a sandbox of this kind. Return None if the machine can create one, but not for this project now.

        A project must not be able to force a weaker sandbox by its files. A path to hide may have disappeared
        meanwhile, so creation is retried with a new layout. Raise SandboxSetupError if the machine cannot create it.
        """
        self._error = why = ""
        for number in range(1, _MAX_OUTDATED_TRIES + 1):
            layout = await self._plan(use)
            try:
                network = self._options.network
                outer = self._supervisors.get(WRITING)
                self._sharing.discard(use)
                if use != WRITING and not network and candidate.kind == "bubblewrap" and outer is not None:
                    try:
                        supervisor = await self._open_sharing_network(outer, candidate, layout)
                    except (SandboxSetupError, OSError):
                        pass
                    else:
                        self._sharing.add(use)
                        return supervisor
                if use == WRITING:
                    return await self._open_with_views(candidate, layout, network=network)
                return await self._open(candidate, layout, network=network)
            except SandboxSetupError as error:
                self._layouts.pop(use, None)
                why = str(error)
                if error.is_transient:
                    break
                if _is_outdated(layout, error):
                    continue
                if not await can_open(candidate, network=self._options.network, path=self._path):
                    raise
                if number >= _MAX_TRIES:
                    break
        self._error = (
            f"The sandbox {candidate.kind} works on this machine but could not be created now: {why}. "
            'If this persists, set sandbox.backend to "landlock" or "off" in your user configuration.'
        )
        return None

    async def _try_candidates(self, use: SandboxUse) -> SandboxSupervisor | None:
        if self._probe_file is not None:  # a folder of Odin's that appeared later would have to be hidden, too
            with suppress(OSError):
                self._probe_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        reasons: dict[str, str] = {}
        supervisor, found = None, SandboxCandidate("none")
        for candidate in list_candidates(self._options.backend):
            try:
                supervisor, found = await self._open_without_downgrade(candidate, use), candidate
            except SandboxSetupError as error:
                reasons.setdefault(candidate.kind, str(error))
            else:
                reasons.pop(candidate.kind, None)
                break
        self._probe = ProbeResult(compute_probe_key(self._options, self._path), found, reasons, can_leak_network(found))
        if not self._error:
            save_probe(self._probe_file, self._probe)
        return supervisor

    async def _open_sharing_network(
        self, outer: SandboxSupervisor, candidate: SandboxCandidate, layout: SandboxLayout
    ) -> SandboxSupervisor:
        """Create the read-only sandbox in the writable one's network: root joins its namespace, other users nest it."""
        if os.getuid() == 0:
            return await self._open(candidate, layout, network=False, join_network=f"/proc/{outer.pid}/ns/net")
        argv = build_nested_argv(find_program("bwrap", self._path), sys.executable, layout)
        return await open_nested_supervisor(outer, argv, {"PATH": self._path}, answer_s=self._answer_s)
