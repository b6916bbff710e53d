"""Starts `odin` processes fast: a server process that has loaded Odin forks once for each of them.

Starting Python and loading Odin takes 0.4 s of work; a fork takes a hundredth of that. Tests that depend on the start
itself (the locale, another program, limits) must start a real process.
"""

import array
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import odin
from tests.waiting import LIMIT_S

ROOT = Path(__file__).parent.parent
_SERVER_CODE = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.fork_server import serve; serve(int(sys.argv[1]))"
)
_READ_AT_START = ("LC_", "LANG", "PYTHON", "TEXTUAL")
"""Variables that Python and Textual read when they start."""


def can_fork(env: Mapping[str, str]) -> bool:
    return not any(name.startswith(_READ_AT_START) for name in env)


class ForkedProcess:
    """A forked `odin`, with the methods of `subprocess.Popen` that the tests use. `stdout` is a pipe if `piped`."""

    def __init__(self, args: Sequence[str], cwd: Path, env: Mapping[str, str], terminal: int, piped: bool) -> None:
        self.stdout: IO[bytes] | None = None
        self.returncode: int | None = None
        self._server = get_fork_server()
        output = terminal
        if piped:
            reading, output = os.pipe()
            self.stdout = os.fdopen(reading, "rb")
        self._number, self.pid = self._server.fork([*args], cwd, env, (terminal, output, terminal))
        if piped:
            os.close(output)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.get_exit_code(self._number)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("odin", timeout)
            self._server.wait_for_report(0.05)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, but the server has not reported that yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The client of the server process. Threads may share it.

    It numbers the processes, because the system gives the pid of an ended one to another, at the latest after 32,768.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _SERVER_CODE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()

    def fork(
        self, args: list[str], cwd: Path, env: Mapping[str, str], streams: tuple[int, int, int]
    ) -> tuple[int, int]:
        """Start a process and return its number and its pid."""
        with self._lock:
            self._count += 1
            request = json.dumps({"number": self._count, "args": args, "cwd": str(cwd), "env": dict(env)}).encode()
            self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
            while self._count not in self._pids:
                assert self._read_report(LIMIT_S), "the server does not fork"
            return self._count, self._pids.pop(self._count)

    def get_exit_code(self, number: int) -> int | None:
        """Return the exit code of a process, negative for a signal; None while it runs."""
        with self._lock:
            while self._read_report(0.0):
                pass
            return self._codes.get(number)

    def wait_for_report(self, seconds: float) -> None:
        select.select([self._socket], [], [], seconds)

    def _read_report(self, seconds: float) -> bool:
        if not select.select([self._socket], [], [], seconds)[0]:
            return False
        report: dict[str, int] = json.loads(self._socket.recv(1000))
        if "code" in report:
            self._codes[report["number"]] = report["code"]
        else:
            self._pids[report["number"]] = report["pid"]
        return True


@functools.cache
def get_fork_server() -> ForkServer:
    """Return the server of this test process. It ends with this process, which closes its socket."""
    return ForkServer()


# --- the server process ---


def serve(number: int) -> None:
    """Load Odin, fork a process for every request, and report its exit code when it ends."""
    for module in pkgutil.walk_packages(odin.__path__, "odin."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    connection = socket.socket(fileno=number)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    numbers: dict[int, int] = {}
    signal.signal(signal.SIGCHLD, _ignore_signal)
    signal.set_wakeup_fd(writing)
    while True:
        ready, _, _ = select.select([connection, reading], [], [])
        if reading in ready:
            os.read(reading, 1000)
            _report_ended(connection, numbers)
        if connection not in ready:
            continue
        request, rights, _, _ = connection.recvmsg(1_000_000, socket.CMSG_SPACE(12))
        if not request:
            return
        wanted = json.loads(request)
        streams = array.array("i")
        streams.frombytes(rights[0][2])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background
            for fd in (number, reading, writing):
                os.close(fd)
            _become_odin(wanted, [*streams])
        for fd in streams:
            os.close(fd)
        numbers[pid] = wanted["number"]
        connection.send(json.dumps({"number": wanted["number"], "pid": pid}).encode())


def _ignore_signal(number: int, frame: object) -> None:
    """Do nothing. Python writes to the wake-up pipe only for signals that have a handler."""


def _report_ended(connection: socket.socket, numbers: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        connection.send(json.dumps({"number": numbers.pop(pid), "code": os.waitstatus_to_exitcode(status)}).encode())


def _become_odin(request: dict[str, Any], streams: list[int]) -> None:
    """Turn this forked process into an `odin` with these arguments, streams and environment variables."""
    os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for fd in streams:
        os.close(fd)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv = [str(ROOT / "src" / "odin" / "__main__.py"), *request["args"]]
    from odin.entry import start

    start()
