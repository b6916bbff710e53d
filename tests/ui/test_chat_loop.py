"""Loop mode and custom commands in plain mode, in a real terminal."""

import sys
import threading
from pathlib import Path

from odin.testing import ScriptedServer, say
from tests.ui.pseudo_terminal import open_terminal
from tests.ui.test_chat_queue import exit_chat

DONE = say("All is well.\n<done>looked at everything</done>")


def test_loop_shows_its_iterations_and_ends_when_the_goal_is_reached(workspace: Path) -> None:
    with (
        ScriptedServer([say("First."), DONE, DONE]) as server,
        open_terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/loop\n")
        terminal.see("Loop mode is off.")
        terminal.type("/loop on tidy up\n")
        terminal.see("Loop mode is on (executing, 1 of 10 iterations): tidy up")
        terminal.see("First.")
        terminal.see("edit> Loop mode, iteration 2 of 10: The last reply did not say that everything is done.")
        terminal.see("All is well.")
        terminal.see("Loop mode ended: goal reached. looked at everything")
        terminal.type("/loop\n")
        terminal.see("looked at everything (2 of 10 iterations")
        terminal.type("/loop sideways\n")
        terminal.see("Unknown argument 'sideways'.")
        terminal.type("/loop on --limit many\n")
        terminal.see("Unknown argument '--limit many'.")
        terminal.type("/loop on --limit 3 once more\n")
        terminal.see("Loop mode is on (executing, 1 of 3 iterations): once more")
        terminal.see("Loop mode ended: goal reached. looked at everything", times=2)
        exit_chat(terminal)
        assert len(server.requests) == 3, "no command reaches the model"


def test_loop_mode_starts_during_a_turn_and_ends_with_ctrl_c(workspace: Path) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([say("First.").hold(gate), say("Second.").stall(after=1), say("Third.")]) as server,
        open_terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("begin\n")
        server.wait_for(1)
        terminal.type("/loop on all of it\n")
        terminal.see("Loop mode is on (executing, 0 of 10 iterations): all of it")
        gate.set()
        server.wait_for(2)
        terminal.see("iteration 1 of 10")
        terminal.type("\x03")
        terminal.see("Loop mode is off: You interrupted it.")
        terminal.type("by hand\n")
        terminal.see("Third.")
        exit_chat(terminal)
        assert server.rejected == []


CTRL_C_AT_A_PROMPT = """
import signal, sys
from odin.commands import run
from odin.ui.plain.turn_view import TurnView

show = TurnView.show_prompt

def show_and_interrupt(self, before, prompt):
    show(self, before, prompt)
    if "iteration 2" in prompt:
        signal.raise_signal(signal.SIGINT)

TurnView.show_prompt = show_and_interrupt
sys.exit(run(sys.argv[1:]))
"""
"""Presses Ctrl-C when the second prompt of the loop has been printed, before its turn handles signals."""


def test_ctrl_c_stops_an_iteration_that_has_just_started(workspace: Path) -> None:
    driver = workspace.parent / "driver.py"
    driver.write_text(CTRL_C_AT_A_PROMPT)
    shell = f"exec {sys.executable} -I {driver} --plain --yes"
    gate = threading.Event()
    with (
        ScriptedServer([say("First."), say("Second.").hold(gate), say("Third.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True, shell=shell) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/loop on all of it\n")
        terminal.see("Loop mode is off: You interrupted it.")
        assert "Press Ctrl-C again" not in terminal.shown
        terminal.type("by hand\n")
        gate.set()
        terminal.match(r"Second\.|Third\.")  # the iteration may have been stopped before its request was sent
        exit_chat(terminal)


def test_custom_commands_are_listed_and_expanded(workspace: Path) -> None:
    folder = workspace / ".odin/commands"
    folder.mkdir(parents=True)
    (folder / "fix.md").write_text("---\ndescription: Fix\x1b[2J it\nargument-hint: N\n---\nFix issue $ARGUMENTS.")
    gate = threading.Event()
    with (
        ScriptedServer([say("One.").hold(gate), say("Fixed.")]) as server,
        open_terminal("--plain", "--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/commands\n")
        terminal.match(r"/fix N +Fix.\[2J it \(project\)")
        terminal.type("hello\n")
        server.wait_for(1)
        terminal.type("/fix 12\n")
        terminal.see("Queued #1: /fix 12")
        terminal.type("/queue\n")
        terminal.match(r"1  edit +/fix 12")
        gate.set()
        terminal.see("edit> /fix 12")
        terminal.see("Fixed.")
        assert "\x1b[2J it" not in terminal.shown
        assert "Fix issue 12." not in terminal.shown
        terminal.type("/rewind\n")
        terminal.match(r"1 .*0 files +/fix 12")
        exit_chat(terminal)
        assert "Fix issue 12." in server.requests[1].body.decode()
