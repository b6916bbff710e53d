"""However a plain conversation ends, the terminal is what it was, nothing keeps running, and one can come back."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.terminal.emulator import Emulator, terminal
from tests.terminal.test_ways_out import HARMLESS, running

FAREWELL = "Resume this session with: odin --resume "


def given_back(odin: Emulator) -> None:
    assert odin.as_it_was
    assert not odin.modes - HARMLESS
    assert "Traceback" not in "\n".join(odin.scrollback)


def waiting(number: int) -> tuple[str, list[Turn]]:
    marker = f"sleep {3600 + os.getpid() % 1000}.{number}"
    return marker, [call("Bash", {"command": f"trap '' HUP TERM INT; {marker}", "description": "wait"})]


def begun(odin: Emulator, marker: str) -> None:
    odin.see("edit>")
    odin.type("wait\r")
    until(lambda: running(marker), odin)


def until(holds: Callable[[], bool], odin: Emulator) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, odin.text
        time.sleep(0.05)


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
def test_by_key_and_the_command_to_come_back(workspace: Path, keys: str) -> None:
    with (
        ScriptedServer([say("Hello.")]) as server,
        terminal("--plain", cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit>")
        odin.type("hi\r")
        odin.see("Hello.\nedit>")
        for key in re.findall("\x03|[^\x03]+", keys):
            odin.type(key)
            time.sleep(0.3)
        assert odin.end() == 0
        given_back(odin)
        last = [line for line in odin.scrollback if line][-1]
        assert re.fullmatch(rf"{FAREWELL}\d+", last)


@pytest.mark.slow
def test_nothing_was_asked_so_there_is_nothing_to_come_back_to(workspace: Path) -> None:
    with terminal("--plain", cwd=workspace) as odin:
        odin.see("edit>")
        odin.type("\x04")
        assert odin.end() == 0
        given_back(odin)
        assert FAREWELL not in odin.text


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_by_signal_while_a_command_runs(workspace: Path, number: signal.Signals, code: int) -> None:
    marker, script = waiting(number)
    server = ScriptedServer(script)
    with server, terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        begun(odin, marker)
        odin.signal(number)
        assert odin.end() == code
        given_back(odin)
        assert FAREWELL in odin.text
    assert not running(marker)


@pytest.mark.slow
def test_a_storm_of_interrupts(workspace: Path) -> None:
    marker, script = waiting(88)
    server = ScriptedServer([*script, say("ok")])
    with server, terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        begun(odin, marker)
        for _ in range(40):
            odin.signal(signal.SIGINT)
            time.sleep(0.02)
        if odin.process.poll() is None:
            odin.type("\x04")
        assert odin.end() in (0, 130)
        given_back(odin)
    assert not running(marker)


@pytest.mark.slow
def test_the_window_is_closed(workspace: Path) -> None:
    marker, script = waiting(89)
    server = ScriptedServer(script)
    with server, terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        begun(odin, marker)
        odin.hang_up()
        odin.process.wait(60)
    assert not running(marker)


@pytest.mark.slow
def test_suspended_and_brought_back(workspace: Path) -> None:
    gate = Event()
    answer = "".join(f"line {number} of many\n" for number in range(60)) + "THE END"
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    with ScriptedServer([say(answer, chunk=20).hold(gate, after=20)]) as server:
        env = {**server.env("anthropic"), "PS1": "READY> "}
        with terminal(cwd=workspace, env=env, command=shell) as odin:
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
            odin.end()
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
def test_a_fault_of_our_own(workspace: Path) -> None:
    with ScriptedServer([say("Hello.")]) as server:
        env = server.env("anthropic")
        with terminal(cwd=workspace, env=env, command=[sys.executable, "-c", FAILS]) as odin:
            odin.see("edit>")
            odin.type("hi\r")
            odin.see("the ground opened")
            assert odin.end() == 1
            given_back(odin)
