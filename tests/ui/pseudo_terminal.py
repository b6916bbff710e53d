"""A pseudo-terminal around Odin: its output, and a keyboard."""

import contextlib
import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pyte

from tests.fork_server import ForkedProcess, can_fork
from tests.terminal.emulator import CUT, UNKNOWN_TO_PYTE
from tests.waiting import LIMIT_S, wait_until

ODIN = [sys.executable, "-I", "-m", "odin"]


class _Page(pyte.Screen):
    """A screen without end: what would scroll off a terminal stays on it."""

    def __init__(self, columns: int) -> None:
        self._rows: list[str] = []
        super().__init__(columns, 1_000_000)

    def reset(self) -> None:
        self.lines, rows = 1, self.lines  # it would mark every line as changed
        super().reset()
        self.lines = rows
        self._rows.clear()

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        self.dirty.add(self.cursor.y)
        row = self.buffer[self.cursor.y]
        for x in [x for x in row if x >= self.cursor.x]:
            del row[x]

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        self.erase_in_line()
        for y in [y for y in self.buffer if y > self.cursor.y]:
            del self.buffer[y]
            self.dirty.add(y)

    def read(self) -> str:
        """Return the text, on the cursor's row at least up to the cursor. Only changed rows are read again."""
        count, y = max((*self.buffer, self.cursor.y)) + 1, self.cursor.y
        del self._rows[count:]
        self._rows += (self._read_row(new) for new in range(len(self._rows), count))
        for changed in self.dirty:
            if changed < count:
                self._rows[changed] = self._read_row(changed)
        self.dirty.clear()
        return "\r\n".join([*self._rows[:y], self._read_row(y, self.cursor.x), *self._rows[y + 1 :]])

    def _read_row(self, y: int, width: int = 0) -> str:
        if y not in self.buffer:
            return " " * width
        row = self.buffer[y]
        return "".join(row[x].data for x in range(max((*row, width - 1)) + 1))


class PseudoTerminal:
    """Standard error and input are the terminal; standard output is a pipe unless `with_stdout`.

    It is so wide that no line wraps, unless a test sets the columns. `shown` is every line that is on the screen or was
    scrolled off it, `raw` all that was written.
    """

    def __init__(self, command: list[str], cwd: Path, env: Mapping[str, str], with_stdout: bool, columns: int) -> None:
        self.keyboard, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (50, columns))
        everything = {**os.environ, "TERM": "xterm-256color", **env}
        self.process: ForkedProcess | subprocess.Popen[bytes]
        if command[: len(ODIN)] == ODIN and can_fork(env):
            self.process = ForkedProcess(command[len(ODIN) :], cwd, everything, terminal, piped=not with_stdout)
        else:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=everything,
                stdin=terminal,
                stdout=terminal if with_stdout else subprocess.PIPE,
                stderr=terminal,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),
            )
        os.close(terminal)
        self.raw = b""
        self.shown = ""
        self._page = _Page(columns)
        self._stream = pyte.ByteStream(self._page)
        self._cut = b""
        self._printed = b""

    def see(self, text: str, times: int = 1) -> str:
        """Wait until the text was shown so many times, and return everything shown so far."""
        return self._wait(lambda: self.shown.count(text) >= times, text)

    def match(self, pattern: str) -> str:
        """Wait until the pattern was shown, and return everything shown so far."""
        return self._wait(lambda: re.search(pattern, self.shown) is not None, pattern)

    def wait_for_bytes(self, data: bytes) -> None:
        """Wait until these bytes were written."""
        self._wait(lambda: data in self.raw, repr(data))

    def _wait(self, seen: Callable[[], bool], what: str) -> str:
        def read(seconds: float) -> None:
            assert self._read(0.1) or seen(), f"it ended, and {what!r} is not in {self.shown!r}"

        wait_until(seen, lambda: f"{what!r}, which is not in {self.shown!r}", pause=read)
        return self.shown

    def type(self, text: str) -> None:
        """Press the keys; "\n" is Enter, which sends a carriage return."""
        os.write(self.keyboard, text.replace("\n", "\r").encode())

    def press(self, key: str) -> str:
        """Press a key, and return what is shown a moment later."""
        self.type(key)
        self._read(0.1)
        return self.shown

    def wait_for_exit(self) -> tuple[int, str]:
        """Wait for the exit, and return the exit code and the standard output."""
        reading = threading.Thread(target=self._read_stdout)
        reading.start()
        wait_until(lambda: not self._read(0.05), lambda: f"its exit, while it shows {self.shown!r}")
        reading.join(LIMIT_S)
        return self.process.wait(LIMIT_S), self._printed.decode()

    def _read_stdout(self) -> None:
        if self.process.stdout is not None:
            self._printed = self.process.stdout.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self.keyboard)

    def _read(self, timeout: float) -> bool:
        """Return False when the other side is closed, or when nothing came and the process has ended."""
        ready, _, _ = select.select([self.keyboard], [], [], timeout)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self.keyboard, 65536)
        except OSError:
            return False
        self.raw += data
        data = self._cut + data
        cut = CUT.search(data)
        self._cut = cut[0] if cut else b""
        self._stream.feed(UNKNOWN_TO_PYTE.sub(b"", data[: len(data) - len(self._cut)]))
        self.shown = self._page.read()
        return bool(data)


@contextlib.contextmanager
def open_terminal(
    *args: str, cwd: Path, env: Mapping[str, str], with_stdout: bool = False, shell: str = "", columns: int = 1000
) -> Generator[PseudoTerminal]:
    """Run Odin with these arguments, or a shell with this line, in a new terminal.

    If standard output is the terminal, too, a conversation runs in plain mode.
    """
    plain = ["--plain"] if with_stdout and not (args and args[0].isalpha()) else []
    shown = PseudoTerminal(
        ["/bin/sh", "-c", shell] if shell else [*ODIN, *plain, *args], cwd, env, with_stdout, columns
    )
    try:
        yield shown
    finally:
        shown.close()
