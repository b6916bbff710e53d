"""Odin in a terminal of its own: what a person would see, and a keyboard to answer with."""

import contextlib
import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Mapping
from pathlib import Path

PATIENCE = 20.0


class Screen:
    """Standard error and input are the terminal; standard output is a pipe unless `all_of_it`."""

    def __init__(self, command: list[str], cwd: Path, env: Mapping[str, str], all_of_it: bool) -> None:
        self._keyboard, terminal = pty.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", **env},
            stdin=terminal,
            stdout=terminal if all_of_it else subprocess.PIPE,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)
        self.shown = ""

    def see(self, text: str, times: int = 1) -> str:
        """Wait until this was shown, so many times; everything shown until then."""
        deadline = time.monotonic() + PATIENCE
        while self.shown.count(text) < times:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.shown!r}"
            if not self._read(0.1):
                assert self.shown.count(text) >= times, f"{text!r} is not in {self.shown!r}"
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def end(self) -> tuple[int, str]:
        """The exit code and what was printed on standard output."""
        printed, _ = self.process.communicate(timeout=PATIENCE)
        while self._read(0.05):
            continue
        return self.process.returncode, (printed or b"").decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._keyboard)

    def _read(self, timeout: float) -> bool:
        """False when the other side is closed, or when nothing came and it has ended."""
        ready, _, _ = select.select([self._keyboard], [], [], timeout)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._keyboard, 65536)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


ODIN = [sys.executable, "-I", "-m", "odin"]


@contextlib.contextmanager
def screen(
    *args: str, cwd: Path, env: Mapping[str, str], all_of_it: bool = False, shell: str = ""
) -> Generator[Screen]:
    """Odin with these arguments, or a shell with a line of its own, in a new terminal."""
    shown = Screen(["/bin/sh", "-c", shell] if shell else [*ODIN, *args], cwd, env, all_of_it)
    try:
        yield shown
    finally:
        shown.close()
