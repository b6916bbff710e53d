"""Odin in a terminal of its own: what a person would see, and a keyboard to answer with."""

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

from tests.forked import ForkedProcess, can_fork

PATIENCE = 60.0
_TITLE = re.compile(r"\x1b\]0;[^\a]*\a|\x1b\[2[23];0t")
"""The terminal's title is not on the screen."""

ODIN = [sys.executable, "-I", "-m", "odin"]


class Screen:
    """Standard error and input are the terminal; standard output is a pipe unless `all_of_it`.

    It is so wide that nothing is folded, unless a test is about that.
    """

    def __init__(self, command: list[str], cwd: Path, env: Mapping[str, str], all_of_it: bool, columns: int) -> None:
        self.keyboard, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (50, columns))
        everything = {**os.environ, "TERM": "xterm-256color", **env}
        self.process: ForkedProcess | subprocess.Popen[bytes]
        if command[: len(ODIN)] == ODIN and can_fork(env):
            self.process = ForkedProcess(command[len(ODIN) :], cwd, everything, terminal, piped=not all_of_it)
        else:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=everything,
                stdin=terminal,
                stdout=terminal if all_of_it else subprocess.PIPE,
                stderr=terminal,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),
            )
        os.close(terminal)
        self.raw = b""
        self.shown = ""
        self._printed = b""

    def see(self, text: str, times: int = 1) -> str:
        """Wait until this was shown, so many times; everything shown until then."""
        return self._wait(lambda: self.shown.count(text) >= times, text)

    def match(self, pattern: str) -> str:
        """Wait until something of this form was shown."""
        return self._wait(lambda: re.search(pattern, self.shown) is not None, pattern)

    def _wait(self, seen: Callable[[], bool], what: str) -> str:
        deadline = time.monotonic() + PATIENCE
        alive = True
        while not seen():
            assert alive and time.monotonic() < deadline, f"{what!r} is not in {self.shown!r}"
            alive = self._read(0.1)
        return self.shown

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def end(self) -> tuple[int, str]:
        """The exit code and what was printed on standard output."""
        deadline = time.monotonic() + PATIENCE
        reading = threading.Thread(target=self._take_printed)
        reading.start()
        while self._read(0.05):
            assert time.monotonic() < deadline, f"it does not end: {self.shown!r}"
        reading.join(PATIENCE)
        return self.process.wait(PATIENCE), self._printed.decode()

    def _take_printed(self) -> None:
        if self.process.stdout is not None:
            self._printed = self.process.stdout.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self.keyboard)

    def _read(self, timeout: float) -> bool:
        """False when the other side is closed, or when nothing came and it has ended."""
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
def screen(
    *args: str, cwd: Path, env: Mapping[str, str], all_of_it: bool = False, shell: str = "", columns: int = 1000
) -> Generator[Screen]:
    """Odin with these arguments, or a shell with a line of its own, in a new terminal.

    A conversation, which has all of the terminal, is one of ordinary lines.
    """
    plain = ["--plain"] if all_of_it and not (args and args[0].isalpha()) else []
    shown = Screen(["/bin/sh", "-c", shell] if shell else [*ODIN, *plain, *args], cwd, env, all_of_it, columns)
    try:
        yield shown
    finally:
        shown.close()
