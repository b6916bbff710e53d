"""Looking at real processes."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 20.0


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not collected yet does not."""
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
    """The process ids that commands wrote into a file, one a line, once there are so many."""
    wait_until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


def gone(pids: list[int]) -> None:
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid))
