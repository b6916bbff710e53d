"""Ends what Odin was running when Odin itself is killed and can end nothing any more.

A tiny shell in a session of its own reads which process groups there are from a pipe that only Odin holds. When the
pipe ends without a goodbye, Odin is gone: the shell kills those groups, and where there is a /proc everything that
carries the mark of this Odin, with the group it leads, and goes too. (The groups matter twice: a program may have lost
its mark, and Odin may be killed between starting a command and telling its group.)
"""

import os
import subprocess
import threading
import weakref

from odin.policy.process.environment import SYSTEM_PATH

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
