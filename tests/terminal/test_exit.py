"""Exits from the app: the terminal is restored and nothing keeps running."""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import DEFAULT_MODES, open_terminal
from tests.waiting import LIMIT_S, wait_until


@pytest.mark.parametrize(
    ("keys", "code"),
    [pytest.param("\x04", 0, id="ctrl-d", marks=pytest.mark.slow), pytest.param("\x03\x03", 0, id="ctrl-c twice")],
)
def test_exit_keys_restore_the_terminal(workspace: Path, keys: str, code: int) -> None:
    with open_terminal(cwd=workspace) as odin:
        odin.see("edit")
        for key in keys:
            odin.type(key)
            time.sleep(0.2)
        odin.assert_exit_code(code)
        odin.assert_restored()
        assert "Traceback" not in odin.text


@pytest.mark.slow
def test_late_second_ctrl_c_does_not_exit(workspace: Path) -> None:
    with open_terminal(cwd=workspace) as odin:
        odin.see("edit")
        odin.type("\x03")
        odin.see("again to exit")
        time.sleep(2.2)
        odin.type("\x03")
        time.sleep(0.5)
        assert odin.process.poll() is None
        odin.type("\x03")
        odin.assert_exit_code(0)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow)]
)
def test_signal_ends_odin_and_its_command(workspace: Path, number: signal.Signals, code: int) -> None:
    marker = f"sleep {3600 + os.getpid() % 1000}.{number}"
    script = [call("Bash", {"command": f"trap '' TERM INT; {marker}", "description": "wait"})]
    with ScriptedServer(script) as server, open_terminal("--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("wait\r")
        wait_until(lambda: is_running(marker), lambda: f"{marker}; the screen shows:\n{odin.text}")
        odin.signal(number)
        odin.assert_exit_code(code)
        odin.assert_restored()
    assert not is_running(marker)


@pytest.mark.slow
def test_many_interrupts_end_odin_cleanly(workspace: Path) -> None:
    with open_terminal(cwd=workspace) as odin:
        odin.see("edit")
        for _ in range(30):
            odin.signal(signal.SIGINT)
            time.sleep(0.01)
        odin.assert_exit_code(0, 130)
        odin.assert_restored()
        assert "Traceback" not in "\n".join(odin.scrollback)


@pytest.mark.slow
def test_closed_window_ends_odin_and_its_command(workspace: Path) -> None:
    marker = f"sleep {3600 + os.getpid() % 1000}.77"
    script = [call("Bash", {"command": f"trap '' HUP TERM; {marker}", "description": "wait"})]
    with ScriptedServer(script) as server, open_terminal("--yes", cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("wait\r")
        wait_until(lambda: is_running(marker), lambda: f"{marker}; the screen shows:\n{odin.text}")
        odin.hang_up()
        odin.process.wait(LIMIT_S)
    assert not is_running(marker)


@pytest.mark.slow
def test_paused_terminal_does_not_block_the_session(workspace: Path) -> None:
    """As with Ctrl-S: the session continues, and a signal still ends it."""
    answer = "".join(f"line {number} is long enough to fill the terminal's buffer soon\n\n" for number in range(4000))
    server = ScriptedServer([say(answer).pace(0.001), say("Done.")])
    with server, open_terminal(cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.paused.set()
        odin.type("tell me\r")
        server.wait_for(1)
        server.wait_idle()
        odin.type("and then?\r")
        server.wait_for(2)
        odin.paused.clear()
        odin.see("Done.")
        odin.paused.set()
        odin.signal(signal.SIGTERM)
        assert odin.process.wait(LIMIT_S) == 143


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
def test_internal_error_restores_the_terminal(workspace: Path) -> None:
    with open_terminal(cwd=workspace, command=[sys.executable, "-c", FAILS]) as odin:
        odin.see("FAILED WITH 1 the ground opened")
        odin.wait_for_exit()
        odin.assert_restored()
        assert "do-not-show-me" not in "\n".join(odin.scrollback)


@pytest.mark.slow
def test_suspend_and_resume_continue_the_turn(workspace: Path) -> None:
    gate = Event()
    script = [say("one two three " * 50).hold(gate, after=12)]
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    with ScriptedServer(script) as server:
        env = {**server.env("anthropic"), "PS1": "READY> "}
        with open_terminal(cwd=workspace, env=env, command=shell) as odin:
            odin.see("READY>")
            odin.type(f"{sys.executable} -I -m odin\r")
            odin.see("edit")
            odin.type("count\r")
            odin.see("one two")
            odin.type("\x1a")
            odin.see("Stopped", "READY>")
            assert not odin.modes - DEFAULT_MODES - {2004}
            odin.type("echo $((40 + 2)) are echoed\r")
            odin.see("42 are echoed")
            odin.type("fg\r")
            odin.wait_until_gone("READY>")
            odin.see("one two")
            gate.set()
            odin.type("still here")
            odin.see("still here")
            odin.wait_until_gone("Esc stops")
            odin.type("\x03\x03\x03")
            odin.see("READY>", "odin --resume")
            odin.type("exit\r")
            odin.wait_for_exit()


@pytest.mark.slow
def test_start_after_sigkill_restores_the_terminal(workspace: Path) -> None:
    once = f"{sys.executable} -I -m odin"
    with open_terminal(cwd=workspace, command=["/bin/sh", "-c", f"{once}; sleep 0.2; {once}"]) as odin:
        odin.see("edit")
        first = find_child(odin.process.pid)
        os.kill(first, signal.SIGKILL)
        odin.wait_for_bytes(b"\x1b[?1049h", times=2)
        odin.see("edit")
        odin.type("\x04")
        odin.assert_exit_code(0)
        assert odin.is_restored
        assert not odin.modes - DEFAULT_MODES


def is_running(marker: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if marker.encode() in command and b"odin" not in command:
                return True
    return False


def find_child(parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return int(wait_until(lambda: children.read_text().split(), "a child process")[-1])
