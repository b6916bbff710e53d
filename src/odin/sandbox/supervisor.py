"""Odin's end of the program that starts commands inside a sandbox."""

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
from pathlib import Path

from odin.sandbox.init import COUNT, HELLO, START
from odin.sandbox.orphans import list_group_members, signal_group

_START_SECONDS = 10.0
"""Seconds the program may take to begin, or to answer."""

_MAX_COMPLAINT_BYTES = 2_000
"""Bytes of its complaint that are read when it does not begin."""

_INIT_CODE = "import sys; sys.path.append(sys.argv[1]); import init; init.main(*sys.argv[2:])"


class SandboxSetupError(Exception):
    """Why a sandbox could not be made, in a few words. `passing`: it may be different in a moment."""

    def __init__(self, why: str, *, is_transient: bool = False) -> None:
        super().__init__(why)
        self.is_transient = is_transient


class SupervisorGone(OSError):
    """The program in the sandbox has ended, and everything it started with it."""


def build_init_argv(python: str, fd: int, *setup: str) -> list[str]:
    """The command line of the program inside."""
    folder = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
    return [python, "-I", "-S", "-c", _INIT_CODE, folder, str(fd), *setup]


class SandboxedChild:
    """A command in a sandbox: not our child, so its end and its code are told through a pipe."""

    def __init__(self, pid: int, pidfd: int, status: int) -> None:
        self.pid = pid
        self.code = -signal.SIGKILL
        self._pidfd = pidfd
        self._status = status
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._status, on_exit)

    def collect(self) -> dict[int, int]:
        told = os.read(self._status, 8)
        if len(told) == 5:
            self.code = int.from_bytes(told[:4], "big", signed=True)
        else:
            self._kill_orphan()
        self._close()
        return list_group_members(self.pid) if told[4:] != b"-" else {}

    def _kill_orphan(self) -> None:
        """The program that would have told us is gone. What it started goes too, if the kernel does not see to it."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            signal_group(self.pid, signal.SIGKILL)
        select.select([self._pidfd], [], [], 1.0)

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
        """Nobody needs to know of its end."""
        self._close()

    def _close(self) -> None:
        if self._status >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._status)
            os.close(self._status)
            os.close(self._pidfd)
            self._status = self._pidfd = -1


class SandboxSupervisor:
    """A sandbox that commands can be started in."""

    def __init__(self, channel: socket.socket, pidfd: int, popen: "subprocess.Popen[bytes] | None" = None) -> None:
        self._channel = channel
        self._pidfd = pidfd
        self._popen = popen

    @property
    def group(self) -> int:
        """The process group of a sandbox that was started from here; 0 for one inside another."""
        return self._popen.pid if self._popen is not None else 0

    @property
    def pid(self) -> int:
        """The number of the program inside, as it is out here."""
        return _pid_of(self._pidfd)

    def start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], out: int, err: int, *more: int
    ) -> SandboxedChild:
        """Start a command. Raises KeeperGone, or the OSError that kept it from starting."""
        words = [cwd, str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
        reading, writing = os.pipe()
        try:
            pidfd = self._request_start(words, [out, err, writing, *more])
            return SandboxedChild(_pid_of(pidfd), pidfd, reading)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)

    def _request_start(self, words: Sequence[str], fds: Sequence[int]) -> int:
        error, _, got = self._request(START, words, fds)
        if error or not got:
            raise OSError(error, os.strerror(error))
        return got[0]

    def count_processes(self) -> int:
        """How many processes there are inside, this program among them."""
        return self._request(COUNT, [], [])[1]

    def _request(self, kind: bytes, words: Sequence[str], fds: Sequence[int]) -> tuple[int, int, list[int]]:
        body = b"\0".join([kind, *(os.fsencode(word) for word in words)])
        try:
            message = len(body).to_bytes(4, "big") + body
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            sent = self._channel.sendmsg([message], rights)
            if sent < len(message):
                self._channel.sendall(message[sent:])
            told, got, _, _ = socket.recv_fds(self._channel, 8, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise SupervisorGone(error.errno, "the sandbox does not answer") from error
        if len(told) != 8:
            raise SupervisorGone(0, "the sandbox has ended")
        return int.from_bytes(told[:4], "big"), int.from_bytes(told[4:], "big"), got

    def kill(self) -> None:
        """End it with everything in it."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._channel.close()
        os.close(self._pidfd)
        if self._popen is not None:
            signal_group(self._popen.pid, signal.SIGKILL)
            _wait_in_background(self._popen)


def open_supervisor(argv: Callable[[int], Sequence[str]], env: Mapping[str, str]) -> SandboxSupervisor:
    """Make a sandbox: `argv(fd)` is its command line, for the descriptor that leads back here. Raises NotConfined."""
    ours, theirs = socket.socketpair()
    with theirs:
        reading, writing = os.pipe()
        try:
            popen = subprocess.Popen(
                argv(theirs.fileno()),
                cwd="/",
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=writing,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            os.close(reading)
            raise SandboxSetupError(f"{error.filename or 'it'} cannot be started: {error.strerror or error}") from error
        finally:
            os.close(writing)
    try:
        return SandboxSupervisor(ours, _await_hello(ours), popen)
    except SandboxSetupError as error:
        ours.close()
        signal_group(popen.pid, signal.SIGKILL)
        popen.wait()
        raise SandboxSetupError(_read_complaint(reading) or str(error), is_transient=error.is_transient) from None
    finally:
        os.close(reading)


def open_nested_supervisor(outer: SandboxSupervisor, argv: Sequence[str], env: Mapping[str, str]) -> SandboxSupervisor:
    """Make a sandbox inside another one; the descriptor that leads back is 3. Raises NotConfined."""
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    child = None
    try:
        with theirs:
            child = outer.start(argv, "/", env, writing, writing, theirs.fileno())
        return SandboxSupervisor(ours, _await_hello(ours))
    except (SandboxSetupError, OSError) as error:
        ours.close()
        os.close(writing)
        writing = -1
        raise SandboxSetupError(_read_complaint(reading) or str(error)) from None
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
        if child is not None:
            child.detach()


def _wait_in_background(popen: "subprocess.Popen[bytes]") -> None:
    """In the background: a sandbox takes some milliseconds to go, and nobody needs to wait for it."""
    try:
        threading.Thread(target=popen.wait, daemon=True).start()
    except RuntimeError:
        popen.wait()  # the interpreter is going away


def _await_hello(channel: socket.socket) -> int:
    """Wait until the program inside is ready. Returns a descriptor for it."""
    channel.settimeout(_START_SECONDS)
    try:
        told, fds, _, _ = socket.recv_fds(channel, 1, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise SandboxSetupError("it did not begin in time", is_transient=True) from error
    if told != HELLO or not fds:
        raise SandboxSetupError("it ended at once")
    return fds[0]


def _read_complaint(fd: int) -> str:
    """The last line somebody printed before ending."""
    os.set_blocking(fd, False)
    said = b""
    deadline = time.monotonic() + 1.0
    while len(said) < _MAX_COMPLAINT_BYTES and time.monotonic() < deadline:
        try:
            piece = os.read(fd, _MAX_COMPLAINT_BYTES)
        except BlockingIOError:
            select.select([fd], [], [], 0.05)
            continue
        if not piece:
            break
        said += piece
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _pid_of(pidfd: int) -> int:
    """The number that a process has where we are, which differs from the one it has inside."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines():
        if line.startswith("Pid:"):
            return int(line[4:])
    raise SupervisorGone(0, "the command cannot be watched")
