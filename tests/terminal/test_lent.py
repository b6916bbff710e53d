"""The terminal is lent to others, to the shell or an editor, and comes back; each finds it as it should be."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, call, say
from tests.terminal.emulator import HARMLESS, Emulator, terminal
from tests.terminal.test_answers import asked, touch

SHELL = ["/bin/bash", "--norc", "--noprofile", "-i"]
ODIN = f"{sys.executable} -I -m odin"
PROMPT = "READY> "


def in_a_shell(odin: Emulator, command: str = ODIN) -> None:
    odin.see(PROMPT.strip())
    odin.type(f"{command}\r")


def shell_has_it(odin: Emulator, answer: int) -> None:
    """A line that is typed is echoed and run, once."""
    odin.see(PROMPT.strip())
    odin.leaves_only(HARMLESS | {2004})
    odin.type(f"echo $(({answer} - 1 + 1)) it is\r")
    odin.see(f"{answer} it is")


@pytest.mark.slow
def test_suspended_with_a_question_open_and_stopped_by_surprise(workspace: Path) -> None:
    with (
        ScriptedServer([touch("made"), say("All done.")]) as server,
        terminal(cwd=workspace, env={**server.env("anthropic"), "PS1": PROMPT}, command=SHELL) as odin,
    ):
        in_a_shell(odin)
        odin.see("edit")
        odin.type("Make it\r")
        asked(odin, "│ touch made")
        odin.type("\x1a")
        odin.see("Stopped")
        shell_has_it(odin, 41)
        odin.type("fg\r")
        asked(odin, "│ touch made")

        pid = odin_in(odin)
        os.kill(pid, signal.SIGSTOP)
        odin.drawn(b"Stopped", times=2)
        odin.type("fg\r")
        odin.drawn(b"\x1b[?1049h", times=3)
        asked(odin, "│ touch made")
        odin.type("y")
        odin.see("All done.")
        odin.type("each letter once")
        odin.see("each letter once")
        odin.type("\x03")
        odin.gone("each letter once")
        odin.type("\x04")
        odin.see("odin --resume")
        shell_has_it(odin, 43)
        odin.type("exit\r")
        odin.end()
        odin.nothing_runs()


@pytest.mark.slow
def test_ended_while_it_is_suspended(workspace: Path) -> None:
    """`kill %1` ends a job that is stopped, and leaves the terminal to the shell."""
    marker = f"sleep {3600 + os.getpid() % 1000}.5"
    script = [call("Bash", {"command": f"trap '' HUP TERM; {marker}", "description": "wait"})]
    with (
        ScriptedServer(script) as server,
        terminal(cwd=workspace, env={**server.env("anthropic"), "PS1": PROMPT}, command=SHELL) as odin,
    ):
        in_a_shell(odin, f"{ODIN} --yes")
        odin.see("edit")
        odin.type("wait\r")
        odin.see("Esc stops")
        odin.type("\x1a")
        odin.see("Stopped")
        odin.type("kill %1; wait; echo so ended $?\r")
        odin.see("so ended")
        shell_has_it(odin, 51)
        odin.type("exit\r")
        odin.end()
        odin.nothing_runs()


@pytest.mark.slow
def test_begun_in_the_background(workspace: Path) -> None:
    with terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k", "PS1": PROMPT}, command=SHELL) as odin:
        in_a_shell(odin, f"{ODIN} &")
        shell_has_it(odin, 61)
        odin.type("jobs\r")
        while "Stopped" not in odin.text:
            time.sleep(0.2)
            odin.type("jobs\r")
        assert b"\x1b[?1049" not in odin.bytes
        odin.type("fg\r")
        odin.see("edit", "Ask, or type")
        odin.type("\x04")
        odin.gone("Ask, or type")
        shell_has_it(odin, 62)
        odin.type(f"({ODIN} </dev/tty &) ; sleep 0.1\r")
        odin.see("started in the background")
        odin.type("exit\r")
        odin.end()
        odin.nothing_runs()


EDITOR = """#!{python}
import os, signal, sys, termios, time
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
    signal.signal(signal.SIGINT, lambda *_: print("the editor was interrupted", flush=True))
    print("the editor waits", flush=True)
    while True:
        time.sleep(60)
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
def test_an_editor_that_works_dies_and_leaves_a_mess(workspace: Path, editor: str) -> None:
    with (
        ScriptedServer([say("It was read.")]) as server,
        terminal(cwd=workspace, env={**server.env("anthropic"), "VISUAL": editor}) as odin,
    ):
        odin.see("edit")
        odin.type("some words\x18")
        odin.see("some words and more", "of it")
        odin.type("\x15" * 4 + "\x03")
        odin.gone("some words")
        odin.type("die at once\x18")
        odin.see("die at once", "exited with")
        odin.type("\x03")
        odin.gone("die at once")
        odin.type("mess\x18")
        odin.see("mess and more", "of it")
        odin.type("\r")
        odin.see("It was read.")
        assert r"mess and more\nof it" in str(server.requests[0].messages)
        odin.type("\x04")
        odin.ends(0)
        odin.given_back()


@pytest.mark.slow
def test_an_editor_is_not_left_behind(workspace: Path, editor: str) -> None:
    """An interrupt on the terminal is the editor's; when Odin is ended the editor ends, too, whatever it thinks."""
    with terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k", "VISUAL": editor}) as odin:
        odin.see("edit")
        odin.type("wait\x18")
        odin.see("the editor waits")
        odin.type("\x03")
        odin.see("the editor was interrupted")
        odin.type("\x03")
        odin.drawn(b"the editor was interrupted", times=2)
        assert odin.process.poll() is None
        odin.signal(signal.SIGTERM)
        odin.ends(143)
        odin.given_back()


def odin_in(odin: Emulator) -> int:
    """The process of the Odin that a shell runs."""
    pgrp = os.tcgetpgrp(odin.master)
    assert pgrp != odin.process.pid
    return pgrp
