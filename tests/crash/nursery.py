"""Victims that begin in an instant: a program that has loaded everything forks once for each of them."""

import functools
import select
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

    def _look(self, timeout: float) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.hear(timeout)
        return self.returncode


class Nursery:
    """Begins one process at a time."""

    def __init__(self, path: str) -> None:
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
        birth = Birth(str(told), dict(env), str(ROOT), str(out))
        self._process.stdin.write(msgspec.json.encode(birth) + b"\n")
        pid = self.hear(60.0)
        assert pid is not None
        return Child(self, pid)

    def hear(self, timeout: float) -> int | None:
        """The next number that the program tells; None if there is none in that time."""
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], timeout)
        return int(stdout.readline()) if ready else None


@functools.cache
def nursery(path: str) -> Nursery:
    """The one of these tests. It ends with them, because its input does."""
    return Nursery(path)
