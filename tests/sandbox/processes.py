"""Inspects real processes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 20.0


def alive(pid: int) -> bool:
    """True if the process runs; a zombie does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pids_in(path: Path, count: int) -> list[int]:
    """The process ids that commands wrote into a file, one a line, once there are so many.

    A command in a sandbox knows itself by another number than we do; one that has ended since is left out then.
    """
    wait_until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [pid for word in path.read_text().split() for pid in _to_outer_pid(int(word), path.parent.resolve())]


def _to_outer_pid(number: int, folder: Path) -> list[int]:
    """Return our pid of a sandboxed process, by its inner pid and working directory; else the pid itself."""
    inside = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _list_pids(pid)[1:] == [number]]
    found = [pid for pid in inside if folder_of(pid) == folder]
    stranger = alive(number) and folder_of(number) != folder
    return found or ([] if stranger else [number])


def _list_pids(pid: int) -> list[int]:
    """Return the pids of a process, from our namespace to its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    for line in lines:
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []


def folder_of(pid: int) -> Path | None:
    """Return the working directory of a process."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def gone(pids: list[int]) -> None:
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid))


def running(words: str) -> bool:
    """True if a process with these words in its command line runs, in any pid namespace."""
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = found.read_bytes().replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words.encode() in line and alive(int(found.parent.name)):
            return True
    return False
