"""Odin's side of a sandbox: starts the init program (`init.py`) in it and asks it to start commands."""

import array
import asyncio
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from odin.core.effects import ViewLayer
from odin.sandbox.init import (
    CONNECT,
    COUNT,
    EXCEEDED,
    GROUP_LEFT,
    HELLO,
    NO_VIEW,
    NOTHING_LEFT,
    PREPARE,
    SEEN,
    SOCKET,
    START,
)
from odin.sandbox.probe import ViewLimits
from odin.sandbox.process import list_group_members, signal_group
from odin.sandbox.views.layer import begin_layer, remove_layer
from odin.sandbox.views.setup import ViewSetup

_START_SECONDS = 10.0
"""Maximum seconds the init program may take to start or to answer."""

_REAP_SECONDS = 2.0
"""How long the first process of the machine may take to reap an orphan."""

_MAX_COMPLAINT_BYTES = 2_000
"""Maximum bytes of its error output read when it does not start."""

_INIT_CODE = "import sys; sys.path.append(sys.argv[1]); import init; init.main(*sys.argv[2:])"


class SandboxSetupError(Exception):
    """A sandbox could not be created; the message says why. `is_transient`: trying again may help."""

    def __init__(self, reason: str, *, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.is_transient = is_transient


class ViewMountError(OSError):
    """The view for a command could not be mounted, so the command was not started."""


class SupervisorGone(OSError):
    """The init program of the sandbox has exited, and with it everything it started."""


def build_init_argv(python: str, fd: int, *setup: str) -> list[str]:
    """Return the command line of the init program."""
    folder = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
    return [python, "-I", "-S", "-c", _INIT_CODE, folder, str(fd), *setup]


class SandboxedChild:
    """A sandboxed command. It is not our child process, so its exit code arrives through a pipe.

    `on_exit` is called when it has ended, with True if other processes run in its sandbox. `view` is what it runs in,
    if its writes go there; `excess` says which of its limits it has exceeded when it has ended, or "". `open_socket`
    makes a socket in its network.
    """

    def __init__(
        self,
        pid: int,
        pidfd: int,
        status: int,
        open_socket: Callable[[int], socket.socket],
        view: ViewLayer | None = None,
        limits: ViewLimits | None = None,
    ) -> None:
        self.pid = pid
        self.open_socket = open_socket
        self.view = view
        self.excess = ""
        self._limits = limits or ViewLimits()
        self.code = -signal.SIGKILL
        self.left_processes = False
        self.on_exit: Callable[[bool], None] = lambda left: None
        self._pidfd = pidfd
        self._status = status
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._status, on_exit)

    def collect(self) -> dict[int, int]:
        report = os.read(self._status, 8)
        if len(report) == 5:
            self.code = int.from_bytes(report[:4], "big", signed=True)
        else:
            # The init program is gone without a report: kill the command in case the kernel did not.
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                signal_group(self.pid, signal.SIGKILL)
            select.select([self._pidfd], [], [], 1.0)
        self._close()
        if report[4:] in EXCEEDED:
            self.excess = self._limits.describe(EXCEEDED.index(report[4:]))
        self.left_processes = report[4:] not in (NOTHING_LEFT, *EXCEEDED)
        self.on_exit(self.left_processes)
        return list_group_members(self.pid) if report[4:] in (GROUP_LEFT, b"") else {}

    def reap(self) -> bool:
        if self._status < 0:
            return True
        ready = bool(select.select([self._status], [], [], 1.0)[0])
        if ready:
            self.collect()
        else:
            self._close()
        return ready

    def detach(self) -> None:
        """Stop watching it; its exit code is not needed."""
        self._close()

    def _close(self) -> None:
        if self._status >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._status)
            os.close(self._status)
            os.close(self._pidfd)
            self._status = self._pidfd = -1


_orphans_stay = threading.Event()
"""Set if no process of this machine reaps orphans, as in a container whose first process is not made for it."""


class SandboxSupervisor:
    """A running sandbox in which commands can be started.

    `has_own_pids`: the init program is the first process of a namespace, so that all others end with it. `views` is
    what views of commands are made of, if they can have one; else `no_view` says why not.
    """

    def __init__(
        self,
        channel: socket.socket,
        pidfd: int,
        popen: "subprocess.Popen[bytes] | None" = None,
        *,
        has_own_pids: bool = False,
        views: ViewSetup | None = None,
    ) -> None:
        self.views = views
        self.no_view = ""
        self._waiting: ViewLayer | None = None
        self._channel = channel
        self._pidfd = pidfd
        self._popen = popen
        self._has_own_pids = has_own_pids
        self._is_orphan = False
        if popen is not None and has_own_pids and not _orphans_stay.is_set():
            # End bwrap, which only waits for the init program: one process per sandbox is enough.
            popen.kill()
            popen.wait()
            self._is_orphan = True

    @property
    def group(self) -> int:
        """The process group of the sandbox; 0 for a nested one."""
        return self._popen.pid if self._popen is not None else 0

    @property
    def pid(self) -> int:
        """The pid of the init program as seen from outside."""
        return _read_pid(self._pidfd)

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        out: int,
        err: int,
        *more: int,
        stdin: int = -1,
        view: ViewLayer | None = None,
        hidden: Sequence[str] = (),
        shown: Sequence[str] = (),
        limits: ViewLimits | None = None,
    ) -> SandboxedChild:
        """Start a command, without input unless `stdin` is given. Raise SupervisorGone, or the OSError behind it.

        In a `view`, these paths are hidden, except those `shown`. Raise ViewMountError if it cannot be mounted.
        """
        begun = begin_layer(view) if view is not None else None
        limits = limits or ViewLimits()
        words = ["", "", "", ""]
        if view is not None:
            bounds = f"{limits.memory},{limits.processes},{limits.disk}"
            words = [view.name, bounds, str(len(hidden)), str(len(shown)), *hidden, *shown]
        words += [cwd, str(len(argv)), *argv]
        words += [f"{name}={value}" for name, value in env.items()]
        read_end, write_end = os.pipe()
        try:
            given = [stdin] if stdin >= 0 else []
            pidfd = self._request_start(CONNECT if given else START, words, [*given, out, err, write_end, *more])
            try:
                return SandboxedChild(_read_pid(pidfd), pidfd, read_end, self.open_socket, begun, limits)
            finally:
                with suppress(OSError):
                    self._channel.sendall(len(SEEN).to_bytes(4, "big") + SEEN)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)

    def _request_start(self, kind: bytes, words: Sequence[str], fds: Sequence[int]) -> int:
        error, step, received = self._request(kind, words, fds)
        if error and step == NO_VIEW:
            raise ViewMountError(error, os.strerror(error))
        if error or not received:
            raise OSError(error, os.strerror(error))
        return received[0]

    def prepare_view(self) -> None:
        """Let the view for the next command be mounted now, without waiting for it."""
        if self.views is not None and self._waiting is None:
            with suppress(OSError):
                self._waiting = self.views.make_layer()
                body = PREPARE + b"\0" + os.fsencode(self._waiting.name)
                self._channel.sendall(len(body).to_bytes(4, "big") + body)

    def take_view(self) -> ViewLayer:
        """Return a new view for a command, mounted or not. Raise OSError."""
        assert self.views is not None
        view, self._waiting = self._waiting or self.views.make_layer(), None
        return view

    def count_children(self) -> int:
        """Return the number of commands and of orphans that run in the sandbox. Raise OSError if it is unknown."""
        error, count, _ = self._request(COUNT, [], [])
        if error:
            raise OSError(error, os.strerror(error))
        return count

    def open_socket(self, family: int) -> socket.socket:
        """Return a TCP socket in the network of the sandbox. Raise OSError."""
        error, _, received = self._request(SOCKET, [str(family)], [])
        if error or not received:
            raise OSError(error, os.strerror(error))
        return socket.socket(fileno=received[0])

    def _request(self, kind: bytes, words: Sequence[str], fds: Sequence[int]) -> tuple[int, int, list[int]]:
        body = kind + b"\0" + os.fsencode("\0".join(words)) if words else kind
        try:
            message = len(body).to_bytes(4, "big") + body
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            sent = self._channel.sendmsg([message], rights)
            if sent < len(message):
                self._channel.sendall(message[sent:])
            reply, received, _, _ = socket.recv_fds(self._channel, 8, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise SupervisorGone(error.errno, "the sandbox does not answer") from error
        if len(reply) != 8:
            raise SupervisorGone(0, "the sandbox has ended")
        return int.from_bytes(reply[:4], "big"), int.from_bytes(reply[4:], "big"), received

    def kill(self) -> None:
        """Kill the sandbox and everything in it."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._channel.close()
        if self._popen is not None and not self._has_own_pids:  # otherwise bwrap reaps the init program, then exits
            signal_group(self._popen.pid, signal.SIGKILL)
        self._clear_waiting()
        # Reap in a thread: a sandbox takes some milliseconds to exit, and nothing depends on it.
        try:
            threading.Thread(target=self._reap, daemon=True).start()
        except RuntimeError:
            os.close(self._pidfd)  # the interpreter is shutting down

    def _reap(self) -> None:
        if self._popen is not None:
            self._popen.wait()
        if self._is_orphan:
            try:
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)  # Odin may itself be the first process
            except ChildProcessError:
                select.select([self._pidfd], [], [], _START_SECONDS)
                deadline = time.monotonic() + _REAP_SECONDS
                while self.pid > 0 and time.monotonic() < deadline:
                    time.sleep(0.05)
                if self.pid > 0:
                    _orphans_stay.set()
        self._clear_waiting()
        os.close(self._pidfd)

    def _clear_waiting(self) -> None:
        if self._waiting is not None:
            with suppress(OSError):  # it may just be mounted: then again when the sandbox has ended
                remove_layer(self._waiting)
                self._waiting = None


def open_supervisor(
    argv: Callable[[int], Sequence[str]],
    env: Mapping[str, str],
    *,
    has_own_pids: bool = False,
    views: ViewSetup | None = None,
) -> SandboxSupervisor:
    """Start a sandbox with the command line `argv(fd)`, where `fd` is its socket to us. Raise SandboxSetupError."""
    ours, theirs = socket.socketpair()
    with theirs:
        read_end, write_end = os.pipe()
        try:
            popen = subprocess.Popen(
                argv(theirs.fileno()),
                cwd="/",
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=write_end,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except (SandboxSetupError, OSError) as error:
            ours.close()
            os.close(read_end)
            if isinstance(error, SandboxSetupError):
                raise
            raise SandboxSetupError(f"cannot start {error.filename or 'it'}: {error.strerror or error}") from error
        finally:
            os.close(write_end)
    try:
        pidfd = _await_hello(ours)
    except SandboxSetupError as error:
        ours.close()
        signal_group(popen.pid, signal.SIGKILL)
        popen.wait()
        raise SandboxSetupError(_read_complaint(read_end) or str(error), is_transient=error.is_transient) from None
    finally:
        os.close(read_end)
    return SandboxSupervisor(ours, pidfd, popen, has_own_pids=has_own_pids, views=views)


def open_nested_supervisor(outer: SandboxSupervisor, argv: Sequence[str], env: Mapping[str, str]) -> SandboxSupervisor:
    """Start a sandbox inside another one; its socket to us is descriptor 3. Raise SandboxSetupError."""
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    child = None
    try:
        with theirs:
            child = outer.start(argv, "/", env, write_end, write_end, theirs.fileno())
        return SandboxSupervisor(ours, _await_hello(ours))
    except (SandboxSetupError, OSError) as error:
        ours.close()
        os.close(write_end)
        write_end = -1
        raise SandboxSetupError(_read_complaint(read_end) or str(error)) from None
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
        if child is not None:
            child.detach()


def _await_hello(channel: socket.socket) -> int:
    """Wait until the init program is ready. Return its pidfd."""
    channel.settimeout(_START_SECONDS)
    try:
        greeting, fds, _, _ = socket.recv_fds(channel, 1, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise SandboxSetupError("it did not start in time", is_transient=True) from error
    if greeting != HELLO or not fds:
        raise SandboxSetupError("it exited at once")
    return fds[0]


def _read_complaint(fd: int) -> str:
    """Return the last line of the error output."""
    os.set_blocking(fd, False)
    output = b""
    deadline = time.monotonic() + 1.0
    while len(output) < _MAX_COMPLAINT_BYTES and time.monotonic() < deadline:
        try:
            chunk = os.read(fd, _MAX_COMPLAINT_BYTES)
        except BlockingIOError:
            select.select([fd], [], [], 0.05)
            continue
        if not chunk:
            break
        output += chunk
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _read_pid(pidfd: int) -> int:
    """Return the pid in our namespace, which differs from the pid inside the sandbox."""
    fd = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, 1024)
    finally:
        os.close(fd)
    for line in text.splitlines():
        if line.startswith(b"Pid:"):
            return int(line[4:])
    raise SupervisorGone(0, "the command cannot be watched")
