"""Whether `odin` starts the app or plain mode."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, say
from tests.terminal.emulator import ODIN, open_terminal
from tests.waiting import LIMIT_S

APP = b"\x1b[?1049h"


@pytest.mark.slow
def test_ordinary_terminal_gets_the_app(workspace: Path) -> None:
    with open_terminal(cwd=workspace) as odin:
        odin.wait_for_bytes(APP)
        odin.see("edit")
        odin.type("\x04")
        assert odin.wait_for_exit() == 0


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_dumb_terminal_gets_plain_mode(workspace: Path, term: str) -> None:
    with open_terminal(cwd=workspace, env={"TERM": term}) as odin:
        odin.see("edit>")
        odin.type("/exit\n")
        assert odin.wait_for_exit() == 0
        assert APP not in odin.bytes


def test_plain_flag_selects_plain_mode(workspace: Path) -> None:
    with open_terminal("--plain", cwd=workspace) as odin:
        odin.see("edit>")
        odin.type("\x04")
        assert odin.wait_for_exit() == 0
        assert APP not in odin.bytes


@pytest.mark.slow
def test_plain_setting_selects_plain_mode(workspace: Path, home: Path) -> None:
    (home / ".config" / "odin" / "odinconfig.json").write_text(json.dumps({"tui": {"plain": True}}))
    with open_terminal(cwd=workspace) as odin:
        odin.see("edit>")
        odin.type("\x04")
        assert odin.wait_for_exit() == 0
        assert APP not in odin.bytes


def make_shell_command(line: str) -> list[str]:
    return ["/bin/sh", "-c", line]


@pytest.mark.slow
def test_redirected_stderr_selects_plain_mode(workspace: Path) -> None:
    """Answers are shown in the terminal, messages are in the file."""
    with ScriptedServer([say("Hello.")]) as server:
        command = make_shell_command(f"{sys.executable} -I -m odin 2>said.txt")
        with open_terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin:
            odin.type("hi\n")
            odin.see("Hello.")
            odin.type("/exit\n")
            assert odin.wait_for_exit() == 0
            assert APP not in odin.bytes
        assert "odin --resume" in (workspace / "said.txt").read_text()


@pytest.mark.slow
def test_piped_stdout_selects_plain_mode(workspace: Path) -> None:
    """The user types prompts in the terminal, and the answers go into the pipe."""
    with ScriptedServer([say("One.\nTwo."), say("Three.")]) as server:
        command = make_shell_command(f"{sys.executable} -I -m odin | cat >answers.txt")
        with open_terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin:
            odin.see("edit>")
            odin.type("hi\r")
            server.wait_for(1)
            odin.see("edit> hi\nedit>")
            odin.type("more\r")
            odin.see("edit> more\nedit>")
            odin.type("\x04")
            odin.wait_for_exit()
            assert APP not in odin.bytes
        assert (workspace / "answers.txt").read_text() == "One.\nTwo.\nThree.\n"


LISTS_MODULES = """
import sys
from odin.commands import main
code = main.run(["--plain"])
print("loaded:", "prompt_toolkit" in sys.modules, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("term", "pipe", "loaded"), [("xterm", "", True), ("dumb", "", False), ("xterm", "|cat", False)]
)
def test_line_editor_is_loaded_only_where_it_can_be_used(workspace: Path, term: str, pipe: str, loaded: bool) -> None:
    (workspace.parent / "driver.py").write_text(LISTS_MODULES)
    with ScriptedServer([say("One.")]) as server:
        command = make_shell_command(f"{sys.executable} -I {workspace.parent / 'driver.py'} {pipe}")
        env = {**server.env("anthropic"), "TERM": term}
        with open_terminal(cwd=workspace, env=env, command=command) as odin:
            odin.see("edit>")
            odin.type("hi\r")
            odin.see("One.", "edit> hi")
            odin.type("/exit\r")
            odin.see(f"loaded: {loaded}")


@pytest.mark.slow
def test_prompt_argument_with_piped_stdout_runs_only_that_prompt(workspace: Path) -> None:
    with ScriptedServer([say("One.")]) as server:
        command = make_shell_command(f"{sys.executable} -I -m odin hi | cat >answers.txt")
        with open_terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin:
            odin.wait_for_exit()
        assert (workspace / "answers.txt").read_text() == "One.\n"


@pytest.mark.slow
def test_piped_stdin_is_one_prompt(workspace: Path) -> None:
    with ScriptedServer([say("One.")]) as server:
        env = {**os.environ, **server.env("anthropic")}
        done = subprocess.run(
            ODIN, input=b"hi", cwd=workspace, env=env, capture_output=True, timeout=LIMIT_S, check=False
        )
    assert done.stdout == b"One.\n"
