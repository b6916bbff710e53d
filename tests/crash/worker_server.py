"""Starts workers fast: a server process that has loaded Odin forks once for each of them (see worker.py)."""

import functools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.waiting import LIMIT_S

from .worker import ForkRequest

ROOT = Path(__file__).parent.parent.parent


class WorkerProcess:
    """One forked worker, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, server: "WorkerServer", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        return self._poll_exit_code(0.0)

    def wait(self, timeout: float) -> int:
        code = self._poll_exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a worker", timeout)
        return code

    def kill(self) -> None:
        """Kill the worker if it still runs, and wait until it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(LIMIT_S)

    def _poll_exit_code(self, timeout: float) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.read_number(f"exit code of {self.pid}", timeout)
        return self.returncode


class WorkerServer:
    """The client of the server process. Only one worker runs at a time."""

    def __init__(self, path: str) -> None:
        self._last: WorkerProcess | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker"],
            cwd=ROOT,
            env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def start(self, plan: Path, env: Mapping[str, str], out: Path) -> WorkerProcess:
        """Start a worker that carries out the plan in file `plan` and prints to file `out`. Kill the one before it."""
        assert self._process.stdin is not None
        if self._last is not None:
            self._last.kill()  # a test that failed may have left it
        request = ForkRequest(str(plan), dict(env), str(ROOT), str(out))
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        pid = self.read_number("pid", 60.0)
        assert pid is not None
        self._last = WorkerProcess(self, pid)
        return self._last

    def read_number(self, name: str, timeout: float) -> int | None:
        """Return the number that the server reports under this name; None if it reports nothing in that time.

        The name is checked, because an exit code that is taken for a process id would kill the wrong processes.
        """
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], timeout)
        if not ready:
            return None
        line = stdout.readline().decode()
        reported, _, number = line.rpartition(": ")
        assert reported == name, f"expected the {name}, got {line!r}"
        return int(number)


@functools.cache
def get_worker_server(path: str) -> WorkerServer:
    """Return the server of this test process. It ends with the tests, because they close its input."""
    return WorkerServer(path)
