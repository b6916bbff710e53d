"""Job control and editors: a shell or an editor gets a working terminal, and Odin continues afterwards."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import DEFAULT_MODES, Emulator, open_terminal
from tests.terminal.test_interaction import make_touch_call, wait_for_question

SHELL = ["/bin/bash", "--norc", "--noprofile", "-i"]
ODIN = f"{sys.executable} -I -m odin"
PROMPT = "READY> "


def start_in_shell(odin: Emulator, command: str = ODIN) -> None:
    odin.see(PROMPT.strip())
    odin.type(f"{command}\r")


def assert_shell_works(odin: Emulator, answer: int) -> None:
    """Check that the shell echoes and runs a typed line."""
    odin.see(PROMPT.strip())
    odin.wait_for_modes(DEFAULT_MODES | {2004})
    odin.type(f"echo $(({answer} - 1 + 1)) it is\r")
    odin.see(f"{answer} it is")


@pytest.mark.slow
def test_suspend_and_sigstop_with_an_open_permission_request(workspace: Path) -> None:
    with (
        ScriptedServer([make_touch_call("made"), say("All done.")]) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), "PS1": PROMPT}, command=SHELL) as odin,
    ):
        start_in_shell(odin)
        odin.see("edit")
        odin.type("Make it\r")
        wait_for_question(odin, "│ touch made")
        odin.type("\x1a")
        odin.see("Stopped")
        assert_shell_works(odin, 41)
        odin.type("fg\r")
        wait_for_question(odin, "│ touch made")

        pid = find_foreground_process(odin)
        os.kill(pid, signal.SIGSTOP)
        odin.wait_for_bytes(b"Stopped", times=2)
        odin.type("fg\r")
        odin.wait_for_bytes(b"\x1b[?1049h", times=3)
        wait_for_question(odin, "│ touch made")
        odin.type("y")
        odin.see("All done.")
        odin.type("each letter once")
        odin.see("each letter once")
        odin.type("\x03")
        odin.wait_until_gone("each letter once")
        odin.type("\x04")
        odin.see("odin --resume")
        assert_shell_works(odin, 43)
        odin.type("exit\r")
        odin.wait_for_exit()
        odin.assert_no_processes_left()


@pytest.mark.slow
def test_kill_of_a_suspended_job_leaves_the_terminal_to_the_shell(workspace: Path) -> None:
    marker = f"sleep {3600 + os.getpid() % 1000}.5"
    script = [call("Bash", {"command": f"trap '' HUP TERM; {marker}", "description": "wait"})]
    with (
        ScriptedServer(script) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), "PS1": PROMPT}, command=SHELL) as odin,
    ):
        start_in_shell(odin, f"{ODIN} --yes")
        odin.see("edit")
        odin.type("wait\r")
        odin.see("Esc stops")
        odin.type("\x1a")
        odin.see("Stopped")
        odin.type("kill %1; wait; echo so ended $?\r")
        odin.see("so ended")
        assert_shell_works(odin, 51)
        odin.type("exit\r")
        odin.wait_for_exit()
        odin.assert_no_processes_left()


@pytest.mark.slow
def test_background_start_waits_for_fg(workspace: Path) -> None:
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k", "PS1": PROMPT}, command=SHELL) as odin:
        start_in_shell(odin, f"{ODIN} &")
        assert_shell_works(odin, 61)
        odin.type("jobs\r")
        while "Stopped" not in odin.text:
            time.sleep(0.2)
            odin.type("jobs\r")
        assert b"\x1b[?1049" not in odin.bytes
        odin.type("fg\r")
        odin.see("edit", "Ask, or type")
        odin.type("\x04")
        odin.wait_until_gone("Ask, or type")
        assert_shell_works(odin, 62)
        odin.type(f"({ODIN} </dev/tty &) ; sleep 0.1\r")
        odin.see("started in the background")
        odin.type("exit\r")
        odin.wait_for_exit()
        odin.assert_no_processes_left()


EDITOR = """#!{python}
import os, signal, sys, termios
path = sys.argv[-1]
words = open(path).read().strip()
attributes = termios.tcgetattr(0)
if not (attributes[3] & termios.ICANON and attributes[3] & termios.ECHO):
    words = "the terminal was not given to me"
if words.startswith("die"):
    os.kill(os.getpid(), signal.SIGKILL)
if words.startswith("wait"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a handler may run late: a sleep can begin before it
    print("the editor waits", flush=True)
    while signal.sigwait([signal.SIGINT]):
        print("the editor was interrupted", flush=True)
if words.startswith("mess"):
    attributes[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    termios.tcsetattr(0, termios.TCSANOW, attributes)
    sys.stdout.write("\\x1b[?1000h\\x1b[?25l\\x1b[?1049h\\x1b[31m")
open(path, "w").write(words + " and more\\nof it\\n")
"""


@pytest.fixture
def editor(tmp_path: Path) -> str:
    path = tmp_path / "editor"
    path.write_text(EDITOR.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_editor_that_succeeds_dies_or_changes_the_terminal(workspace: Path, editor: str) -> None:
    with (
        ScriptedServer([say("It was read.")]) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), "VISUAL": editor}) as odin,
    ):
        odin.see("edit", "context")  # the session is open
        odin.type("some words\x18")
        odin.see("some words and more", "of it")
        odin.type("\x15" * 4 + "\x03")
        odin.wait_until_gone("some words")
        odin.type("die at once\x18")
        odin.see("die at once", "exited with")
        odin.type("\x03")
        odin.wait_until_gone("die at once")
        odin.type("mess\x18")
        odin.see("mess and more", "of it")
        odin.type("\r")
        odin.see("It was read.")
        assert r"mess and more\nof it" in str(server.requests[0].messages)
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()


@pytest.mark.slow
def test_editor_gets_interrupts_and_ends_with_odin(workspace: Path, editor: str) -> None:
    """Ctrl-C in the terminal goes to the editor; when Odin ends, the editor ends even if it ignores signals."""
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k", "VISUAL": editor}) as odin:
        odin.see("edit", "context")
        odin.type("wait\x18")
        odin.see("the editor waits")
        odin.type("\x03")
        odin.see("the editor was interrupted")
        odin.type("\x03")
        odin.wait_for_bytes(b"the editor was interrupted", times=2)
        assert odin.process.poll() is None
        odin.signal(signal.SIGTERM)
        odin.assert_exit_code(143)
        odin.assert_restored()


def find_foreground_process(odin: Emulator) -> int:
    """Return the process id of the Odin that runs in the shell."""
    pgrp = os.tcgetpgrp(odin.master)
    assert pgrp != odin.process.pid
    return pgrp
