"""Memory of a program with all processes that it starts.

What a program leaves behind would get the machine's first process as parent, as the helpers in the sandbox do. Here it
gets the process that counts (`PR_SET_CHILD_SUBREAPER`), so that none is missed. PSS counts a page that several
processes share once, and shares it with everything else that runs on the machine; RSS counts it in each of them.
"""

import contextlib
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

EVERY_S = 0.02
_SUBREAPER = 36
_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine(), -1)
"""The number of the system call that compares what two processes have."""
_KCMP_MEMORY = 1

_libc = ctypes.CDLL(None, use_errno=True)


class Memory(NamedTuple):
    """The greatest sums over all processes, in MB, and the number of processes when PSS was greatest."""

    pss_mb: float
    rss_mb: float
    processes: int


def measure_memory(argv: list[str], env: dict[str, str], cwd: Path) -> Memory:
    """Run a program and return what all of its processes used together at most, looked at every 20 ms."""
    counter = [sys.executable, "-I", "-S", __file__, *argv]
    done = subprocess.run(counter, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: {argv[-1]} ended with {done.returncode}: {done.stderr[-500:]}")
    return Memory(*json.loads(done.stdout.splitlines()[-1]))


def adopt_orphans() -> None:
    """Make this process the parent of what the processes below it leave behind."""
    if _libc.prctl(_SUBREAPER, 1, 0, 0, 0):
        raise SystemExit("bench: this system does not let a process adopt others")


def list_below(pid: int) -> list[int]:
    """Return all processes below this one, without those that still use their parent's memory: `exec` follows."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, path.read_text().split()):
                if _KCMP < 0 or _libc.syscall(_KCMP, pid, child, _KCMP_MEMORY, 0, 0) != 0:
                    found += [child, *list_below(child)]
    return found


def read_kb(pid: int, field: str) -> int:
    """Return `Pss` or `Rss` of a process, 0 if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    return 0


def _count(argv: list[str]) -> int:
    """Run a program, end what it leaves behind, and print its `Memory`."""
    adopt_orphans()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    pss = rss = processes = 0
    while process.poll() is None:
        started = time.monotonic()
        below = list_below(os.getpid())
        now = sum(read_kb(pid, "Pss") for pid in below)
        if now > pss:
            pss, processes = now, len(below)
        rss = max(rss, sum(read_kb(pid, "Rss") for pid in below))
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - started)))
    for pid in list_below(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    print(json.dumps([pss / 1024, rss / 1024, processes]))
    return process.returncode


if __name__ == "__main__":
    sys.exit(_count(sys.argv[1:]))
