"""Odin in a real tmux: typing, resizing, and closing the pane."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, call, reply, say
from tests.terminal.emulator import find_processes
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

MARK = f"TERMINAL_OF_THE_TEST=tmux-{os.getpid()}"


class Tmux:
    def __init__(self, socket: Path) -> None:
        self._base = ["tmux", "-f", "/dev/null", "-S", str(socket)]

    def __call__(self, *args: str) -> str:
        return subprocess.run([*self._base, *args], capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout

    @property
    def text(self) -> str:
        return self("capture-pane", "-p", "-t", "odin")

    def see(self, *words: str) -> None:
        self.wait_until(lambda: all(word in self.text for word in words), f"{words}")

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, lambda: f"{what}; the pane shows:\n{self.text}")


@pytest.fixture
def tmux(tmp_path: Path) -> Generator[Tmux]:
    made = Tmux(tmp_path / "tmux")
    try:
        yield made
    finally:
        made("kill-server")


@pytest.mark.slow
def test_typing_resizing_and_closing_a_pane(workspace: Path, tmux: Tmux) -> None:
    with ScriptedServer([say("Hello from tmux."), say("Small now.")]) as server:
        env = {**os.environ, **server.env("anthropic"), **dict([MARK.split("=")])}
        names = [f"{name}={value}" for name, value in env.items() if name not in ("TMUX", "TERM", "TMUX_PANE")]
        tmux("new-session", "-d", "-s", "odin", "-x", "100", "-y", "30", "-c", str(workspace), "env", "-i", *names,
             "TERM=screen-256color", sys.executable, "-I", "-m", "odin")  # fmt: skip
        tmux.see("edit", "Ask, or type")
        tmux("send-keys", "-t", "odin", "hello", "Enter")
        tmux.see("Hello from tmux.")
        tmux("resize-window", "-t", "odin", "-x", "50", "-y", "16")
        tmux.wait_until(lambda: "╭" in tmux.text and max(map(len, tmux.text.splitlines())) <= 50, "fifty columns")
        tmux("send-keys", "-t", "odin", "and now?", "Enter")
        tmux.see("Small now.")
        assert find_processes(MARK)
        tmux("kill-pane", "-t", "odin")
        tmux.wait_until(lambda: not find_processes(MARK), "the end of all processes")
        assert not server.rejected


@pytest.mark.slow
def test_a_session_in_three_folders(workspace: Path, home: Path, tmux: Tmux) -> None:
    """One is writable and gets trusted, one is read-only, and one is added in the session and stays untrusted."""
    lib, docs, extra = (workspace.parent / name for name in ("lib", "docs", "extra"))
    for folder in (lib, docs, extra):
        folder.mkdir()
        (folder / "AGENTS.md").write_text(f"Rules of {folder.name}.\n")
    command = f"echo two >> {lib}/a; sh -c 'echo x > {docs}/a'"
    script = [
        reply(
            calls=[
                call("WriteFile", {"file_path": f"{lib}/src/a", "content": "one\n"}),
                call("Bash", {"command": command}),
            ]
        ),
        say("First done."),
        call("WriteFile", {"file_path": f"{extra}/a", "content": "three\n"}),
        say("Second done."),
    ]
    with ScriptedServer(script) as server:
        env = {**os.environ, **server.env("anthropic")}
        names = [f"{name}={value}" for name, value in env.items() if name not in ("TMUX", "TERM", "TMUX_PANE")]
        tmux("new-session", "-d", "-s", "odin", "-x", "86", "-y", "40", "-c", str(workspace), "env", "-i", *names,
             "TERM=screen-256color", sys.executable, "-I", "-m", "odin", "--permission-mode", "acceptEdits",
             "--add-dir", "../lib", "--add-dir", "../docs:ro")  # fmt: skip

        def type_line(text: str) -> None:
            tmux("send-keys", "-t", "odin", text, "Enter")

        tmux.see(str(lib), "instruction file: AGENTS.md", "Trust this folder")
        tmux("send-keys", "-t", "odin", "y")
        tmux.see(str(docs), "instruction file: AGENTS.md", "Trust this folder")
        tmux("send-keys", "-t", "odin", "n")
        tmux.see("Ask, or type", "added")
        type_line("/add-dir")
        tmux.see("lib (writable, trusted)", "docs (read-only, not trusted)")
        type_line("go")
        tmux.see("Read-only", "First done.")
        assert (lib / "a").read_text() == "two\n" and (lib / "src/a").exists() and not (docs / "a").exists()
        type_line("/add-dir ../extra")
        tmux.see("Odin asks: Trust", "Ignore them (default)")

        def has_answered() -> bool:  # a question takes the keys once nothing was typed for a moment
            if "Enter Answer" in tmux.text:
                tmux("send-keys", "-t", "odin", "Enter")
            return "Ignore them" not in tmux.text

        tmux.wait_until(has_answered, "the end of the question")
        type_line("again")
        tmux.see("Second done.")
        assert (extra / "a").exists()
        bodies = [request.body.decode() for request in server.requests]
        assert all("Rules of lib." in body for body in bodies)
        assert not any("Rules of docs." in body or "Rules of extra." in body for body in bodies)
        for path in (extra / "a", lib / "a"):
            type_line("/undo")
            tmux.wait_until(lambda path=path: not path.exists(), f"the undo of {path}")
            tmux("send-keys", "-t", "odin", "C-u")
        assert not (lib / "src").exists()
        tmux("kill-pane", "-t", "odin")
        assert not server.rejected
