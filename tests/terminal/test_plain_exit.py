"""Exits from plain mode: the terminal is restored, nothing keeps running, and the session can be resumed."""

import os
import re
import signal
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.terminal.emulator import Emulator, open_terminal
from tests.terminal.test_exit import DEFAULT_MODES, is_running
from tests.waiting import LIMIT_S, wait_until

FAREWELL = "Resume this session with: odin --resume "


def assert_restored(odin: Emulator) -> None:
    assert odin.is_restored
    assert not odin.modes - DEFAULT_MODES
    assert "Traceback" not in "\n".join(odin.scrollback)


def make_waiting_script(number: int) -> tuple[str, list[Turn]]:
    """Return the command to look for in the process list, and a script that runs it."""
    marker = f"sleep {3600 + os.getpid() % 1000}.{number}"
    return marker, [call("Bash", {"command": f"trap '' HUP TERM INT; {marker}", "description": "wait"})]


def start_waiting(odin: Emulator, marker: str) -> None:
    odin.see("edit>")
    odin.type("wait\r")
    wait_until(lambda: is_running(marker), lambda: f"{marker}; the screen shows:\n{odin.text}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param("\x04", id="ctrl-d"),
        pytest.param("/exit\r", id="exit"),
        pytest.param("quit\r", id="quit"),
        pytest.param("\x03\x03", id="ctrl-c"),
    ],
)
def test_exit_keys_print_the_resume_command(workspace: Path, keys: str) -> None:
    with (
        ScriptedServer([say("Hello.")]) as server,
        open_terminal("--plain", cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit>")
        odin.type("hi\r")
        odin.see("Hello.\nedit>")
        for key in re.findall("\x03|[^\x03]+", keys):
            odin.type(key)
            time.sleep(0.3)
        assert odin.wait_for_exit() == 0
        assert_restored(odin)
        last = [line for line in odin.scrollback if line][-1]
        assert re.fullmatch(rf"{FAREWELL}\d+", last)


@pytest.mark.slow
def test_exit_without_a_prompt_prints_no_resume_command(workspace: Path) -> None:
    with open_terminal("--plain", cwd=workspace) as odin:
        odin.see("edit>")
        odin.type("\x04")
        assert odin.wait_for_exit() == 0
        assert_restored(odin)
        assert FAREWELL not in odin.text


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_ends_odin_and_its_command(workspace: Path, number: signal.Signals, code: int) -> None:
    marker, script = make_waiting_script(number)
    server = ScriptedServer(script)
    with server, open_terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        start_waiting(odin, marker)
        odin.signal(number)
        assert odin.wait_for_exit() == code
        assert_restored(odin)
        assert FAREWELL in odin.text
    assert not is_running(marker)


@pytest.mark.slow
def test_many_interrupts_end_odin_cleanly(workspace: Path) -> None:
    marker, script = make_waiting_script(88)
    server = ScriptedServer([*script, say("ok")])
    with server, open_terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        start_waiting(odin, marker)
        for _ in range(40):
            odin.signal(signal.SIGINT)
            time.sleep(0.02)
        if odin.process.poll() is None:
            odin.type("\x04")
        assert odin.wait_for_exit() in (0, 130)
        assert_restored(odin)
    assert not is_running(marker)


@pytest.mark.slow
def test_closed_window_ends_odin_and_its_command(workspace: Path) -> None:
    marker, script = make_waiting_script(89)
    server = ScriptedServer(script)
    with server, open_terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        start_waiting(odin, marker)
        odin.hang_up()
        odin.process.wait(LIMIT_S)
    assert not is_running(marker)


@pytest.mark.slow
def test_suspend_and_resume_keep_every_line(workspace: Path) -> None:
    gate = Event()
    answer = "".join(f"line {number} of many\n" for number in range(60)) + "THE END"
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    with ScriptedServer([say(answer, chunk=20).hold(gate, after=20)]) as server:
        env = {**server.env("anthropic"), "PS1": "READY> "}
        with open_terminal(cwd=workspace, env=env, command=shell) as odin:
            odin.see("READY>")
            odin.type(f"{sys.executable} -I -m odin --plain\r")
            odin.see("edit>")
            odin.type("count\r")
            odin.see("line 10 of many")
            odin.type("\x1a")
            odin.see("Stopped", "READY>")
            odin.type("echo $((40 + 2)) are echoed\r")
            odin.see("42 are echoed")
            odin.type("fg\r")
            odin.see("--plain")
            gate.set()
            odin.see("THE END", "edit>")
            odin.type("\x04")
            odin.see(FAREWELL, "READY>")
            odin.type("exit\r")
            odin.wait_for_exit()
            lines = [line for line in odin.scrollback if line.startswith("line ")]
            assert lines == [f"line {number} of many" for number in range(60)]


FAILS = """
import asyncio, sys
from odin.commands import main
from odin.ui.plain import repl

def broken(self, envelope):
    raise RuntimeError("the ground opened")

repl._PlainRepl._observe = broken
sys.exit(main.run(["--plain"]))
"""


@pytest.mark.slow
def test_internal_error_restores_the_terminal(workspace: Path) -> None:
    with ScriptedServer([say("Hello.")]) as server:
        env = server.env("anthropic")
        with open_terminal(cwd=workspace, env=env, command=[sys.executable, "-c", FAILS]) as odin:
            odin.see("edit>")
            odin.type("hi\r")
            odin.see("the ground opened")
            assert odin.wait_for_exit() == 1
            assert_restored(odin)
