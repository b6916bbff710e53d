"""Finding and ending what a command left behind.

Every command carries a mark in its environment that its children inherit. On Linux the mark finds them wherever they
moved, also to a session of their own; elsewhere only the process group is known.

Ends what Odin was running when Odin itself is killed and can end nothing any more.

A tiny shell in a session of its own reads which process groups there are from a pipe that only Odin holds. When the
pipe ends without a goodbye, Odin is gone: the shell kills those groups, and where there is a /proc everything that
carries the mark of this Odin, with the group it leads, and goes too. (The groups matter twice: a program may have lost
its mark, and Odin may be killed between starting a command and telling its group.)
"""

import os
import signal
import subprocess
import threading
import weakref
from pathlib import Path

from odin.sandbox.environment import SYSTEM_PATH

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


_WATCHDOG_SCRIPT = """
trap '' HUP INT QUIT TERM TSTP PIPE
left=
while read -r sign group; do
    case $sign in
    +) left="$left $group" ;;
    -) rest=
       for one in $left; do [ "$one" = "$group" ] || rest="$rest $one"; done
       left=$rest ;;
    q) exit 0 ;;
    esac
done
for group in $left; do kill -s KILL -- "-$group"; done
for round in 1 2 3; do
    found=$(grep -lsF "$1" /proc/[0-9]*/environ)
    [ "$found" ] || exit 0
    for file in $found; do
        pid=${file#/proc/}
        pid=${pid%/environ}
        kill -s KILL -- "-$pid"
        kill -s KILL "$pid"
    done
done
"""


class Watchdog:
    """It is started with the first group it has to know. Where it cannot start, everything else works without it."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._groups: set[int] = set()
        self._pipe = -1
        self._finalizer: weakref.finalize[..., Watchdog] | None = None

    def start(self) -> None:
        if self._pipe >= 0:
            return
        reading, writing = os.pipe()
        try:
            popen = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG_SCRIPT, "odin-watchdog", self._mark],
                cwd="/",
                env={"PATH": SYSTEM_PATH},
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(writing)
            return
        finally:
            os.close(reading)
        os.set_blocking(writing, False)
        self._pipe = writing
        self._finalizer = weakref.finalize(self, _close_pipe, writing, popen)
        self._finalizer.atexit = False

    def add(self, group: int) -> None:
        self._groups.add(group)
        self._send(f"+ {group}\n")

    def remove(self, group: int) -> None:
        if group in self._groups:
            self._groups.discard(group)
            self._send(f"- {group}\n")

    def close(self) -> None:
        """Say goodbye. Nobody waits for it."""
        self._groups.clear()
        self._send("q\n")
        self._forget()

    def _send(self, line: str) -> None:
        if self._pipe < 0:
            return
        try:
            os.write(self._pipe, line.encode())
        except BlockingIOError:
            return
        except OSError:
            self._restart()

    def _restart(self) -> None:
        """Somebody ended it: another one is told everything."""
        self._forget()
        if not self._groups:
            return
        self.start()
        if self._pipe >= 0:
            os.write(self._pipe, "".join(f"+ {group}\n" for group in self._groups).encode())

    def _forget(self) -> None:
        self._pipe = -1
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None


def _close_pipe(pipe: int, popen: "subprocess.Popen[bytes]") -> None:
    """Close the pipe, and collect the shell in the background so that a long-lived program keeps no zombie."""
    os.close(pipe)
    try:
        threading.Thread(target=popen.wait, daemon=True).start()
    except RuntimeError:
        return  # the interpreter is going away, and with it the need
