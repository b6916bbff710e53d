"""Victims that begin in an instant: a program that has loaded everything forks once for each of them."""

import functools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .victim import Birth

ROOT = Path(__file__).parent.parent.parent


class Child:
    """One process of the nursery, as far as `subprocess.Popen` is needed for it."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a victim", timeout)
        return code

    def kill(self) -> None:
        """Kill it if it still runs, and wait until it is gone."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(60.0)

    def _look(self, timeout: float) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.read_number(f"exit code of {self.pid}", timeout)
        return self.returncode


class Nursery:
    """Begins one process at a time."""

    def __init__(self, path: str) -> None:
        self._last: Child | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.victim"],
            cwd=ROOT,
            env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def begin(self, told: Path, env: Mapping[str, str], out: Path) -> Child:
        """A process that lives as the file says; what it prints goes to another file."""
        assert self._process.stdin is not None
        if self._last is not None:
            self._last.kill()  # a test that failed may have left it
        birth = Birth(str(told), dict(env), str(ROOT), str(out))
        self._process.stdin.write(msgspec.json.encode(birth) + b"\n")
        pid = self.read_number("pid", 60.0)
        assert pid is not None
        self._last = Child(self, pid)
        return self._last

    def read_number(self, name: str, timeout: float) -> int | None:
        """Return the number that the program reports under this name; None if it reports nothing in that time.

        The name is checked, because an exit code that is taken for a process id would kill the wrong processes.
        """
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], timeout)
        if not ready:
            return None
        line = stdout.readline().decode()
        found, _, number = line.rpartition(": ")
        assert found == name, f"expected the {name}, got {line!r}"
        return int(number)


@functools.cache
def nursery(path: str) -> Nursery:
    """The one of these tests. It ends with them, because its input does."""
    return Nursery(path)
