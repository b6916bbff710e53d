"""`odin` in a process of its own that has loaded everything already: a server forks one for each start.

Starting Python and loading Odin takes 0.4 s of work; a fork takes a hundredth of that. What depends on the start itself
(the locale, another program, limits) needs a real one.
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

ROOT = Path(__file__).parent.parent
_BEGIN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.forked import serve; serve(int(sys.argv[1]))"
_OF_THE_START = ("LC_", "LANG", "PYTHON", "TEXTUAL")
"""Variables that Python and Textual read when they start."""


def can_fork(env: Mapping[str, str]) -> bool:
    return not any(name.startswith(_OF_THE_START) for name in env)


class ForkedProcess:
    """A forked `odin`, as far as `subprocess.Popen` is needed for it. `stdout` is a pipe if no terminal was given."""

    def __init__(self, args: Sequence[str], cwd: Path, env: Mapping[str, str], terminal: int, piped: bool) -> None:
        self.stdout: IO[bytes] | None = None
        self.returncode: int | None = None
        self._server = fork_server()
        printed = terminal
        if piped:
            reading, printed = os.pipe()
            self.stdout = os.fdopen(reading, "rb")
        self.pid = self._server.fork([*args], cwd, env, (terminal, printed, terminal))
        if piped:
            os.close(printed)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("odin", timeout)
            self._server.await_news(0.05)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the news of it is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The side of the tests. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._pids: list[int] = []
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BEGIN, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()

    def fork(self, args: list[str], cwd: Path, env: Mapping[str, str], streams: tuple[int, int, int]) -> int:
        told = json.dumps({"args": args, "cwd": str(cwd), "env": dict(env)}).encode()
        with self._lock:
            self._socket.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
            while not self._pids:
                self._hear(60.0)
            return self._pids.pop()

    def code_of(self, pid: int) -> int | None:
        """The exit code of a process that has ended, negative for a signal."""
        with self._lock:
            while self._hear(0.0):
                pass
            return self._codes.get(pid)

    def await_news(self, seconds: float) -> None:
        select.select([self._socket], [], [], seconds)

    def _hear(self, seconds: float) -> bool:
        if not select.select([self._socket], [], [], seconds)[0]:
            return False
        news: dict[str, int] = json.loads(self._socket.recv(1000))
        if "code" in news:
            self._codes[news["pid"]] = news["code"]
        else:
            self._pids.append(news["pid"])
        return True


@functools.cache
def fork_server() -> ForkServer:
    """The one of this test process. It ends with it, because its socket is closed."""
    return ForkServer()


# --- the side of the server ---


def serve(number: int) -> None:
    """Load Odin, then fork whenever it is asked for, and tell how each process ended."""
    for module in pkgutil.walk_packages(odin.__path__, "odin."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    asked = socket.socket(fileno=number)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, _wake_up)
    signal.set_wakeup_fd(writing)
    while True:
        ready, _, _ = select.select([asked, reading], [], [])
        if reading in ready:
            os.read(reading, 1000)
            _tell_ended(asked)
        if asked not in ready:
            continue
        told, rights, _, _ = asked.recvmsg(1_000_000, socket.CMSG_SPACE(12))
        if not told:
            return
        streams = array.array("i")
        streams.frombytes(rights[0][2])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (number, reading, writing):
                os.close(fd)
            _become_odin(json.loads(told), [*streams])
        for fd in streams:
            os.close(fd)
        asked.send(json.dumps({"pid": pid}).encode())


def _wake_up(number: int, frame: object) -> None:
    """A signal with a handler writes to the wake-up pipe; nothing else is to be done."""


def _tell_ended(asked: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        asked.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _become_odin(told: dict[str, Any], streams: list[int]) -> None:
    """Put this process into the place of one that was started with these arguments, streams and variables."""
    os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for fd in streams:
        os.close(fd)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["env"])
    time.tzset()
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv = [str(ROOT / "src" / "odin" / "__main__.py"), *told["args"]]
    from odin.entry import start

    start()
