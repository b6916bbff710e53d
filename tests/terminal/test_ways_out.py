"""However the app ends, the terminal is what it was and nothing keeps running."""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import HARMLESS, terminal


@pytest.mark.parametrize(
    ("keys", "code"),
    [pytest.param("\x04", 0, id="ctrl-d", marks=pytest.mark.slow), pytest.param("\x03\x03", 0, id="ctrl-c twice")],
)
def test_by_key(workspace: Path, keys: str, code: int) -> None:
    with terminal(cwd=workspace) as odin:
        odin.see("edit")
        for key in keys:
            odin.type(key)
            time.sleep(0.2)
        odin.ends(code)
        odin.given_back()
        assert "Traceback" not in odin.text


@pytest.mark.slow
def test_a_slow_second_ctrl_c_is_a_first_one(workspace: Path) -> None:
    with terminal(cwd=workspace) as odin:
        odin.see("edit")
        odin.type("\x03")
        odin.see("again to exit")
        time.sleep(2.2)
        odin.type("\x03")
        time.sleep(0.5)
        assert odin.process.poll() is None
        odin.type("\x03")
        odin.ends(0)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow)]
)
def test_by_signal_while_a_command_runs(workspace: Path, number: signal.Signals, code: int) -> None:
    marker = f"sleep {3600 + os.getpid() % 1000}.{number}"
    script = [call("Bash", {"command": f"trap '' TERM INT; {marker}", "description": "wait"})]
    with ScriptedServer(script) as server, terminal("--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("wait\r")
        deadline = time.monotonic() + 30
        while not running(marker):
            assert time.monotonic() < deadline, odin.text
            time.sleep(0.05)
        odin.signal(number)
        odin.ends(code)
        odin.given_back()
    assert not running(marker)


@pytest.mark.slow
def test_a_storm_of_interrupts(workspace: Path) -> None:
    with terminal(cwd=workspace) as odin:
        odin.see("edit")
        for _ in range(30):
            odin.signal(signal.SIGINT)
            time.sleep(0.01)
        odin.ends(0, 130)
        odin.given_back()
        assert "Traceback" not in "\n".join(odin.scrollback)


@pytest.mark.slow
def test_the_window_is_closed(workspace: Path) -> None:
    marker = f"sleep {3600 + os.getpid() % 1000}.77"
    script = [call("Bash", {"command": f"trap '' HUP TERM; {marker}", "description": "wait"})]
    with ScriptedServer(script) as server, terminal("--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("wait\r")
        deadline = time.monotonic() + 30
        while not running(marker):
            assert time.monotonic() < deadline, odin.text
            time.sleep(0.05)
        odin.hang_up()
        odin.process.wait(30)
    assert not running(marker)


@pytest.mark.slow
def test_a_terminal_that_stands_still_holds_nothing_up(workspace: Path) -> None:
    """As when a person holds the output: the session goes on, and a signal still ends it."""
    answer = "".join(f"line {number} is long enough to fill the terminal's buffer soon\n\n" for number in range(4000))
    server = ScriptedServer([say(answer).pace(0.001), say("Done.")])
    with server, terminal(cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.stands_still.set()
        odin.type("tell me\r")
        server.wait_for(1, timeout=30)
        server.wait_idle(timeout=60)
        odin.type("and then?\r")
        server.wait_for(2, timeout=60)
        odin.stands_still.clear()
        odin.see("Done.")
        odin.stands_still.set()
        odin.signal(signal.SIGTERM)
        assert odin.process.wait(60) == 143


FAILS = """
import asyncio, sys
from odin.core.tui_settings import TuiSettings
from odin.commands.tui import run_app

async def connect():
    await asyncio.sleep(0.5)
    secret = "sk-ant-do-not-show-me"
    raise RuntimeError("the ground opened")

ended = asyncio.run(run_app(connect, TuiSettings()))
print("FAILED WITH", ended.code, ended.failure)
"""


@pytest.mark.slow
def test_a_fault_of_our_own(workspace: Path) -> None:
    with terminal(cwd=workspace, command=[sys.executable, "-c", FAILS]) as odin:
        odin.see("FAILED WITH 1 the ground opened")
        odin.end()
        odin.given_back()
        assert "do-not-show-me" not in "\n".join(odin.scrollback)


@pytest.mark.slow
def test_suspended_and_brought_back(workspace: Path) -> None:
    gate = Event()
    script = [say("one two three " * 50).hold(gate, after=12)]
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    with ScriptedServer(script) as server:
        env = {**server.env("anthropic"), "PS1": "READY> "}
        with terminal(cwd=workspace, env=env, command=shell) as odin:
            odin.see("READY>")
            odin.type(f"{sys.executable} -I -m odin\r")
            odin.see("edit")
            odin.type("count\r")
            odin.see("one two")
            odin.type("\x1a")
            odin.see("Stopped", "READY>")
            assert not odin.modes - HARMLESS - {2004}
            odin.type("echo $((40 + 2)) are echoed\r")
            odin.see("42 are echoed")
            odin.type("fg\r")
            odin.gone("READY>")
            odin.see("one two")
            gate.set()
            odin.type("still here")
            odin.see("still here")
            odin.gone("Esc stops")
            odin.type("\x03\x03\x03")
            odin.see("READY>", "odin --resume")
            odin.type("exit\r")
            odin.end()


@pytest.mark.slow
def test_the_next_start_mends_what_a_kill_left(workspace: Path) -> None:
    once = f"{sys.executable} -I -m odin"
    with terminal(cwd=workspace, command=["/bin/sh", "-c", f"{once}; sleep 0.2; {once}"]) as odin:
        odin.see("edit")
        first = child_of(odin.process.pid)
        os.kill(first, signal.SIGKILL)
        odin.drawn(b"\x1b[?1049h", times=2)
        odin.see("edit")
        odin.type("\x04")
        odin.ends(0)
        assert odin.as_it_was
        assert not odin.modes - HARMLESS


def running(marker: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if marker.encode() in command and b"odin" not in command:
                return True
    return False


def child_of(parent: int) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if found:
            return int(found[-1])
        time.sleep(0.02)
    raise AssertionError("no child began")
