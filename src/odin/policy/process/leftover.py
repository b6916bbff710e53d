"""Finding and ending what a command left behind.

Every command carries a mark in its environment that its children inherit. On Linux the mark finds them wherever they
moved, also to a session of their own; elsewhere only the process group is known.
"""

import os
import signal
from pathlib import Path

_HAS_PROC = Path("/proc/self/environ").exists()


def is_group_alive(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(pgid: int, number: int) -> None:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        return


def find_marked(mark: str) -> list[int]:
    """Every process whose environment carries this mark. Other users' processes cannot be read and are never ours."""
    needle = mark.encode()
    own = os.getpid()
    return [pid for pid in _list_pids() if pid != own and needle in _read_proc(pid, "environ")]


def signal_marked(mark: str, number: int) -> int:
    """Signal them, through a pidfd that is opened before the mark is read again, so that no stranger is ever hit."""
    needle = mark.encode()
    hit = 0
    for pid in find_marked(mark):
        try:
            fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            continue
        try:
            if needle in _read_proc(pid, "environ"):
                signal.pidfd_send_signal(fd, number)
                hit += 1
        except OSError:
            continue
        finally:
            os.close(fd)
    return hit


def kill_marked(mark: str) -> None:
    """Again while something forks faster than it is found; three rounds are enough for what is not hostile."""
    for _ in range(3):
        if not signal_marked(mark, signal.SIGKILL):
            return


def list_group_members(pgid: int) -> dict[int, int]:
    """The living members of a group and when each began. Without /proc the group stands for itself."""
    if not _HAS_PROC:
        return {pgid: 0} if is_group_alive(pgid) else {}
    found: dict[int, int] = {}
    for pid in _list_pids():
        fields = _read_stat(pid)
        if len(fields) > 19 and int(fields[2]) == pgid and fields[0] != b"Z":
            found[pid] = int(fields[19])
    return found


def is_any_alive(found: dict[int, int]) -> bool:
    """Whether one of these members still lives: the same number with the same start, not a stranger who got it."""
    return any(_start_time_of(pid) == began for pid, began in found.items())


def _start_time_of(pid: int) -> int:
    if not _HAS_PROC:
        return 0 if is_group_alive(pid) else -1
    fields = _read_stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] != b"Z" else -1


def _list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if _HAS_PROC else []  # noqa: PTH208


def _read_stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    return _read_proc(pid, "stat").rpartition(b")")[2].split()


def _read_proc(pid: int, name: str) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 18)
    except OSError:
        return b""
    finally:
        os.close(fd)
