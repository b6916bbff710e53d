"""When `odin` is the app and when it is a plain conversation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, say
from tests.terminal.emulator import ODIN, terminal

APP = b"\x1b[?1049h"


@pytest.mark.slow
def test_the_app_in_an_ordinary_terminal(workspace: Path) -> None:
    with terminal(cwd=workspace) as odin:
        odin.drawn(APP)
        odin.see("edit")
        odin.type("\x04")
        assert odin.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_terminal_that_knows_only_lines(workspace: Path, term: str) -> None:
    with terminal(cwd=workspace, env={"TERM": term}) as odin:
        odin.see("edit>")
        odin.type("/exit\n")
        assert odin.end() == 0
        assert APP not in odin.bytes


def test_the_flag(workspace: Path) -> None:
    with terminal("--plain", cwd=workspace) as odin:
        odin.see("edit>")
        odin.type("\x04")
        assert odin.end() == 0
        assert APP not in odin.bytes


@pytest.mark.slow
def test_the_setting(workspace: Path, home: Path) -> None:
    (home / ".config" / "odin" / "odinconfig.json").write_text(json.dumps({"tui": {"plain": True}}))
    with terminal(cwd=workspace) as odin:
        odin.see("edit>")
        odin.type("\x04")
        assert odin.end() == 0
        assert APP not in odin.bytes


def shell(line: str) -> list[str]:
    return ["/bin/sh", "-c", line]


@pytest.mark.slow
def test_messages_go_into_a_file(workspace: Path) -> None:
    """Standard error is no terminal: answers are seen, nothing is drawn."""
    with ScriptedServer([say("Hello.")]) as server:
        command = shell(f"{sys.executable} -I -m odin 2>said.txt")
        with terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin:
            odin.type("hi\n")
            odin.see("Hello.")
            odin.type("/exit\n")
            assert odin.end() == 0
            assert APP not in odin.bytes
        assert "odin --resume" in (workspace / "said.txt").read_text()


@pytest.mark.slow
def test_answers_go_into_a_pipe(workspace: Path) -> None:
    """Standard output is no terminal, but somebody types and reads what is said: the answers go where they should."""
    with ScriptedServer([say("One.\nTwo."), say("Three.")]) as server:
        command = shell(f"{sys.executable} -I -m odin | cat >answers.txt")
        with terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin:
            odin.see("edit>")
            odin.type("hi\r")
            server.wait_for(1)
            odin.see("edit> hi\nedit>")
            odin.type("more\r")
            odin.see("edit> more\nedit>")
            odin.type("\x04")
            odin.end()
            assert APP not in odin.bytes
        assert (workspace / "answers.txt").read_text() == "One.\nTwo.\nThree.\n"


@pytest.mark.slow
def test_a_prompt_whose_answer_goes_into_a_pipe_is_one_prompt(workspace: Path) -> None:
    with ScriptedServer([say("One.")]) as server:
        command = shell(f"{sys.executable} -I -m odin hi | cat >answers.txt")
        with terminal(cwd=workspace, env=server.env("anthropic"), command=command) as odin:
            odin.end()
        assert (workspace / "answers.txt").read_text() == "One.\n"


@pytest.mark.slow
def test_nobody_types(workspace: Path) -> None:
    with ScriptedServer([say("One.")]) as server:
        env = {**os.environ, **server.env("anthropic")}
        done = subprocess.run(ODIN, input=b"hi", cwd=workspace, env=env, capture_output=True, timeout=60, check=False)
    assert done.stdout == b"One.\n"
