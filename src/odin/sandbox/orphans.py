"""Finds and kills processes that a command left behind."""

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
    """Return the processes whose environment contains the mark. Processes of other users cannot be read."""
    needle = mark.encode()
    own = os.getpid()
    return [pid for pid in _list_pids() if pid != own and needle in _read_proc(pid, "environ")]


def signal_marked(mark: str, number: int) -> int:
    """Signal all marked processes and return how many.

    A pidfd is opened before the mark is checked again, so a reused pid is never signaled.
    """
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
    """Kill all marked processes. Repeats up to three times, because a process may fork while it is being looked for."""
    for _ in range(3):
        if not signal_marked(mark, signal.SIGKILL):
            return


def list_group_members(pgid: int) -> dict[int, int]:
    """Return the living members of a process group with their start times. Without /proc: the group id itself."""
    if not _HAS_PROC:
        return {pgid: 0} if is_group_alive(pgid) else {}
    members: dict[int, int] = {}
    for pid in _list_pids():
        fields = _read_stat(pid)
        if len(fields) > 19 and int(fields[2]) == pgid and fields[0] != b"Z":
            members[pid] = int(fields[19])
    return members


def is_any_alive(members: dict[int, int]) -> bool:
    """True if one of these processes still runs: same pid and same start time, so a reused pid does not count."""
    return any(_start_time_of(pid) == start_time for pid, start_time in members.items())


def _start_time_of(pid: int) -> int:
    if not _HAS_PROC:
        return 0 if is_group_alive(pid) else -1
    fields = _read_stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] != b"Z" else -1


def _list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if _HAS_PROC else []  # noqa: PTH208


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the command name, which may itself contain spaces and parentheses."""
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
    """Kills Odin's commands when Odin itself is killed.

    A small shell in its own session reads the process groups from a pipe that only Odin holds. If the pipe closes
    without `q`, Odin is gone: the shell kills those groups and, where /proc exists, every process with this Odin's mark
    together with the group it leads. Groups matter because a program can lose its mark, and marks matter because Odin
    can be killed between starting a command and reporting its group. If the watchdog cannot start, commands still run.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._groups: set[int] = set()
        self._pipe = -1
        self._finalizer: weakref.finalize[..., Watchdog] | None = None

    def start(self) -> None:
        if self._pipe >= 0:
            return
        read_end, write_end = os.pipe()
        try:
            popen = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG_SCRIPT, "odin-watchdog", self._mark],
                cwd="/",
                env={"PATH": SYSTEM_PATH},
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(write_end)
            return
        finally:
            os.close(read_end)
        os.set_blocking(write_end, False)
        self._pipe = write_end
        self._finalizer = weakref.finalize(self, _close_pipe, write_end, popen)
        self._finalizer.atexit = False

    def add(self, group: int) -> None:
        self._groups.add(group)
        self._send(f"+ {group}\n")

    def remove(self, group: int) -> None:
        if group in self._groups:
            self._groups.discard(group)
            self._send(f"- {group}\n")

    def close(self) -> None:
        """Tell the watchdog to exit, without waiting for it."""
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
        """The watchdog was killed: start another one and send it all groups."""
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
    """Close the pipe and reap the shell in the background, so that it does not stay a zombie."""
    os.close(pipe)
    try:
        threading.Thread(target=popen.wait, daemon=True).start()
    except RuntimeError:
        return  # the interpreter is shutting down
