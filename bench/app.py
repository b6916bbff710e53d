"""Time the terminal app: from its start to the first echoed key, and key echo while a model streams very fast.

`run.py` calls `rows()`; run directly, this file prints the results.
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

from row import Row, table

ROUNDS = 7
PATIENCE_S = 30.0
KEYS = 60
LINES = 12_000
LINES_A_S = 1000
FRAME_MS = 1000 / 30
FLOOR = "import textual.app, textual.widgets"


class App:
    """Odin in a pseudo terminal, with methods to wait for output."""

    def __init__(self, home: Path, env: dict[str, str], *args: str) -> None:
        project = home / "work"
        project.mkdir(exist_ok=True)
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.chdir(project)
            os.execve(sys.executable, [sys.executable, "-I", "-m", "odin", *args], env)
        termios.tcsetwinsize(self.fd, (40, 120))

    def key(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, wanted: bytes, said: bytes = b"") -> tuple[float, bytes]:
        """Wait for the text; return the time at which it was drawn and all output up to then."""
        end = time.monotonic() + PATIENCE_S
        while wanted not in said:
            left = end - time.monotonic()
            assert left > 0, said[-2000:]
            if select.select([self.fd], [], [], left)[0]:
                said += os.read(self.fd, 1 << 20)
        return time.perf_counter(), said

    def drain(self) -> None:
        while select.select([self.fd], [], [], 0)[0]:
            os.read(self.fd, 1 << 20)

    def leave(self) -> None:
        """End it in order, so that it stores the byte code that the next one loads."""
        os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(OSError):
            while os.read(self.fd, 1 << 20):
                pass
        self.close()

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def start_ms(home: Path, env: dict[str, str]) -> float:
    """Time from start until the app shows a key that was typed before its first frame."""
    app = App(home, env)
    try:
        _, said = app.until(b"\x1b[?1049h")
        app.key("Ж")
        when, _ = app.until("Ж".encode(), said.split(b"\x1b[?1049h", 1)[1])
        return (when - app.began) * 1000
    finally:
        app.close()


def _floor_ms() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", FLOOR], check=True)
    return (time.perf_counter() - began) * 1000


def _echo_ms(home: Path, env: dict[str, str]) -> list[float]:
    """Time from pressing a key until it is shown, while a reply streams in."""
    app = App(home, env)
    try:
        app.until(b"edit")
        app.key("go\r")
        app.until(b"answering")
        time.sleep(0.5)
        found: list[float] = []
        for number in range(KEYS):
            app.drain()
            letter = chr(0x0430 + number % 32)
            began = time.perf_counter()
            app.key(letter)
            when, _ = app.until(letter.encode())
            found.append((when - began) * 1000)
            app.key("\x7f")
            time.sleep(0.07)
        return found
    finally:
        app.close()


def rows() -> list[Row]:
    from odin.testing import ScriptedServer, say

    answer = "".join(f"Line {number} of an answer that comes quickly.\n\n" for number in range(LINES))

    def quick(seen: Any) -> Any:
        return say(answer, chunk=len(answer) // LINES).pace(1 / LINES_A_S)

    with tempfile.TemporaryDirectory() as name, ScriptedServer(quick) as server:
        folder = Path(name, ".config", "odin")
        folder.mkdir(parents=True)
        (folder / "odinconfig.json").write_text(json.dumps({"tui": {"bell": False}}))
        env = {**os.environ, **server.env("anthropic"), "HOME": name, "TERM": "xterm-256color"}
        start_ms(Path(name), env)
        starts: list[float] = []
        floors: list[float] = []
        for _ in range(ROUNDS):
            floors.append(_floor_ms())
            starts.append(start_ms(Path(name), env))
        echoes = sorted(_echo_ms(Path(name), env))
    start, floor = statistics.median(starts), statistics.median(floors)
    return [
        Row("app: start to the first key on the screen", start, floor, 2.0, "ms", True),
        Row("the same, by the clock", start, None, 600.0, "ms", False),
        Row("a key while 1,000 lines a second stream", statistics.median(echoes), None, FRAME_MS, "ms", False),
        Row("the same, 95th of 100 keys", echoes[int(len(echoes) * 0.95)], None, 2 * FRAME_MS, "ms", False),
    ]


if __name__ == "__main__":
    print(table(rows()))
