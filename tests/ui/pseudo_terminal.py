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
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from tests.fork_server import ForkedProcess, can_fork

TIMEOUT_S = 60.0
_TITLE = re.compile(r"\x1b\]0;[^\a]*\a|\x1b\[2[23];0t")
"""Sequences of the window title, which are not on the screen."""

ODIN = [sys.executable, "-I", "-m", "odin"]


class PseudoTerminal:
    """Standard error and input are the terminal; standard output is a pipe unless `with_stdout`.

    It is so wide that no line wraps, unless a test sets the columns.
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
        self._printed = b""

    def see(self, text: str, times: int = 1) -> str:
        """Wait until the text was shown so many times, and return everything shown so far."""
        return self._wait(lambda: self.shown.count(text) >= times, text)

    def match(self, pattern: str) -> str:
        """Wait until the pattern was shown, and return everything shown so far."""
        return self._wait(lambda: re.search(pattern, self.shown) is not None, pattern)

    def _wait(self, seen: Callable[[], bool], what: str) -> str:
        deadline = time.monotonic() + TIMEOUT_S
        alive = True
        while not seen():
            assert alive and time.monotonic() < deadline, f"{what!r} is not in {self.shown!r}"
            alive = self._read(0.1)
        return self.shown

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def wait_for_exit(self) -> tuple[int, str]:
        """Wait for the exit, and return the exit code and the standard output."""
        deadline = time.monotonic() + TIMEOUT_S
        reading = threading.Thread(target=self._read_stdout)
        reading.start()
        while self._read(0.05):
            assert time.monotonic() < deadline, f"still running: {self.shown!r}"
        reading.join(TIMEOUT_S)
        return self.process.wait(TIMEOUT_S), self._printed.decode()

    def _read_stdout(self) -> None:
        if self.process.stdout is not None:
            self._printed = self.process.stdout.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(TIMEOUT_S)
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
        self.shown = _TITLE.sub("", self.raw.decode(errors="replace"))
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
