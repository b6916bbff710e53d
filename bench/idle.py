"""CPU time of the idle app and plain mode: at the prompt, and while waiting for a model.

`run.py` calls `rows()`; run directly, this file prints the results.
"""

import os
import pty
import select
import signal
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from row import Row, table

WATCHED_S = 12.0
PATIENCE_S = 30.0


def get_processor_s(pid: int) -> float:
    """Return the CPU time that the process has used so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _heard(fd: int, seconds: float, until: Callable[[bytes], bool] = lambda said: False) -> bytes:
    """Return the terminal output up to the expected text or the time limit."""
    said, end = b"", time.monotonic() + seconds
    while not until(said) and (left := end - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            said += os.read(fd, 65536)
    return said


def _percent(pid: int, fd: int) -> float:
    _heard(fd, 2.0)
    before = get_processor_s(pid)
    _heard(fd, WATCHED_S)
    return (get_processor_s(pid) - before) / WATCHED_S * 100


def _measured(home: Path, env: dict[str, str], options: list[str], ready: bytes) -> tuple[float, float]:
    project = home / "work"
    project.mkdir(exist_ok=True)
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(project)
        os.execve(sys.executable, [sys.executable, "-I", "-m", "odin", *options], env)
    try:
        termios.tcsetwinsize(fd, (30, 100))
        assert ready in _heard(fd, PATIENCE_S, lambda said: ready in said)
        at_prompt = _percent(pid, fd)
        os.write(fd, b"hello\r")
        assert b"waiting" in _heard(fd, PATIENCE_S, lambda said: b"waiting" in said)
        return at_prompt, _percent(pid, fd)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def rows() -> list[Row]:
    from odin.testing import ScriptedServer, say

    gate = Event()

    def silent(seen: Any) -> Any:
        return say("one two three").hold(gate, after=2)

    with tempfile.TemporaryDirectory() as name, ScriptedServer(silent) as server:
        env = {**os.environ, **server.env("anthropic"), "HOME": name, "TERM": "xterm-256color", "COLORFGBG": "15;0"}
        try:
            at_prompt, held = _measured(Path(name), env, ["--plain"], b"edit>")
            app_at_prompt, app_held = _measured(Path(name), env, [], b"for commands")
        finally:
            gate.set()
    return [
        Row("processor of the app at its prompt", app_at_prompt, None, 0.5, "%", False),
        Row("processor of the app while the model is silent", app_held, None, 0.5, "%", False),
        Row("processor of a chat at its prompt", at_prompt, None, 0.5, "%", False),
        Row("processor while the model is silent", held, None, 0.5, "%", False),
    ]


if __name__ == "__main__":
    print(table(rows()))
