"""The input line of plain mode in a real terminal: pastes, history, long lines, and Ctrl-C in every state."""

import os
import signal
import termios
import threading
from pathlib import Path
from typing import Any

from odin.core.client import SessionSummary
from odin.testing import ScriptedServer, Turn, say
from odin.ui.slash_commands.sessions import format_session
from odin.ui.terminal import measure_width
from tests.ui.pseudo_terminal import open_terminal
from tests.waiting import wait_until

PASTED = "\x1b[200~def f():\r\treturn 1\r\x1b[201~"
LONG = " ".join(f"word{number}" for number in range(40))


def test_a_paste_of_several_lines_is_one_prompt(workspace: Path) -> None:
    with (
        ScriptedServer([say("Seen.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        assert b"\x1b[?2004h" in terminal.raw
        terminal.type(f"explain {PASTED}")
        terminal.match(r"edit> explain def f\(\):\r\n +return 1\r\n")
        assert server.requests == []
        terminal.type("\n")
        terminal.see("Seen.\r\nedit> ")
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 0
        assert "explain def f():\\n\\treturn 1" in server.requests[0].body.decode()
        assert terminal.raw.rindex(b"\x1b[?2004l") > terminal.raw.rindex(b"\x1b[?2004h")


def test_long_line_is_shown_whole_after_enter_and_can_be_recalled(workspace: Path) -> None:
    with (
        ScriptedServer([say("One."), say("Two.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True, columns=80) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type(f"{LONG}\n")
        terminal.see("One.\r\nedit> ")
        assert f"edit> {LONG}One." in terminal.shown.replace("\r\n", "")
        terminal.type("\x1b[A again\n")
        terminal.see("Two.\r\nedit> ")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert f"{LONG} again" in server.requests[1].body.decode()


def test_line_is_edited_and_broken_and_recalled_in_the_next_session(workspace: Path) -> None:
    ctrl_j = b"\n"
    with ScriptedServer([say("One."), say("Two.")]) as server:
        with open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal:
            terminal.see("edit> ")
            os.write(terminal.keyboard, b"helo\x1b[Dl\x05\x1b\rthere\x1b[H" + ctrl_j + b"\r")
            terminal.see("One.\r\nedit> ")
            terminal.type("\x04")
            assert terminal.wait_for_exit()[0] == 0
        with open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal:
            terminal.see("edit> ")
            wait_until(lambda: terminal.press("\x1b[A").endswith("there"))  # until earlier prompts are loaded
            terminal.type("\n")
            terminal.see("Two.\r\nedit> ")
            terminal.type("\x04")
            assert terminal.wait_for_exit()[0] == 0
        assert all("hello\\n\\nthere" in request.body.decode() for request in server.requests)


def test_progress_shares_the_line_with_what_is_typed(workspace: Path) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([say("One.").hold(gate)]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True, columns=80) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("first\n")
        terminal.match(r"first\r\nwaiting for the model [1-9]s$")
        terminal.type("half")
        terminal.match(r"first\r\nedit> half {20,}waiting for the model \ds$")
        gate.set()
        terminal.match(r"first\r\nOne\.\r\nedit> half$")
        terminal.type("\x03")
        terminal.match(r"One\.\r\nedit> $")
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 0


def test_line_typed_before_odin_is_ready_is_sent(workspace: Path) -> None:
    with (
        ScriptedServer([say("One.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.type("early\n")
        terminal.see("One.\r\nedit> ")
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 0


def test_queued_prompt_is_shown_when_its_turn_starts(workspace: Path) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([say("One.").hold(gate), say("Two.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("first\n")
        server.wait_for(1)
        terminal.type("/ask second\n")
        terminal.see("Queued #1: second")
        gate.set()
        shown = terminal.see("Two.\r\n")
        assert "ask> second\r\n" in shown[shown.index("One.") :]
        assert shown.count("edit> first\r\n") == 1, "a prompt that is on the screen is not printed again"
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0


def test_continue_after_sigstop_restores_the_terminal_settings(workspace: Path) -> None:
    """After Ctrl-Z, the shell uses the terminal with its own settings until `fg`."""
    with (
        ScriptedServer([say("One.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("half")
        terminal.see("edit> half")
        os.kill(terminal.process.pid, signal.SIGSTOP)
        settings = termios.tcgetattr(terminal.keyboard)
        settings[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(terminal.keyboard, termios.TCSANOW, settings)
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.see("edit> half", times=2)
        assert not termios.tcgetattr(terminal.keyboard)[3] & (termios.ICANON | termios.ECHO)
        terminal.type(" a line\n")
        terminal.see("One.\r\nedit> ")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert "half a line" in server.requests[0].body.decode()


def test_ctrl_c_closes_the_session_list_and_not_odin(workspace: Path) -> None:
    with (
        ScriptedServer([say("One."), say("Two.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("first\n")
        terminal.see("One.\r\nedit> ")
        terminal.type("/new\n/resume\n")
        terminal.see("or Enter to cancel: ")
        terminal.type("\x03")
        terminal.match(r"\(1 prompt\)\r\nedit> $")
        terminal.type("second\n")
        terminal.see("Two.\r\nedit> ")
        assert "Press Ctrl-C again" not in terminal.shown
        terminal.type("\x03")
        terminal.see("Press Ctrl-C again")
        terminal.type("/queue\n")
        terminal.see("The queue is empty.")
        terminal.type("\x03")
        terminal.see("Press Ctrl-C again", times=2)
        terminal.type("\x03")
        assert terminal.wait_for_exit()[0] == 0


def _stall_summaries(seen: Any) -> Turn:
    if "tools" in seen.json:
        return say(f"{'Words to be summarised. ' * 200}That was it.")
    return say("Never.").stall()


def test_prompts_run_during_a_compaction_and_ctrl_c_cancels_it(workspace: Path) -> None:
    with (
        ScriptedServer(_stall_summaries) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        for number in range(1, 4):
            terminal.type("tell me\n")
            terminal.see("That was it.\r\nedit> ", times=number)
        asked = len(server.requests)
        terminal.type("/compact\n")
        terminal.see("Compacting…\r\nedit> ")
        wait_until(lambda: len(server.requests) > asked)
        terminal.type("and this meanwhile\n")
        terminal.see("That was it.\r\nedit> ", times=4)
        terminal.type("\x03")
        terminal.see("Compaction canceled.\r\nedit> ")
        terminal.type("/compact\n")
        terminal.see("Compacting…\r\nedit> ", times=2)
        terminal.type("/compact cancel\n")
        terminal.see("Compaction canceled.\r\nedit> ", times=2)
        terminal.type("/compact cancel\n")
        terminal.see("No compaction is running.")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert terminal.shown.count("Compaction canceled.") == 2, "each cancellation is reported once"


def test_session_fits_into_one_row_whatever_its_title() -> None:
    owner = "PID 4711 on a-machine-with-a-long-name since 2026-11-15 10:15:00"
    about = SessionSummary(id="20261115101500123", modified=0.0, created=0.0, title="漢字 and words " * 9)
    held = SessionSummary(
        id="20261115101500124",
        modified=0.0,
        created=0.0,
        title="漢字 and words " * 9,
        turns=1234,
        forked_from="20261115101500123",
        locked=owner,
    )
    for columns in (60, 80, 120):
        assert measure_width(format_session(about, columns)) < columns
        assert measure_width(format_session(held, columns)) < columns
    assert format_session(held, 120).endswith("(1,234 prompts, copy, open: PID 4711)")
    assert format_session(held, 120, here=held.id).endswith("(1,234 prompts, copy, current)")
