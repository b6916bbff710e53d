"""Input during a turn in plain mode: queue, steering, shell commands, interrupts and signals."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.ui.pseudo_terminal import PseudoTerminal, open_terminal
from tests.waiting import wait_until

SLOW = "touch begun; until [ -e go ]; do sleep 0.02; done; echo slow"


def exit_chat(terminal: PseudoTerminal) -> None:
    terminal.type("/exit\n")
    assert terminal.wait_for_exit()[0] == 0
    assert "Traceback" not in terminal.shown


def test_prompts_typed_during_a_turn_are_queued_and_can_be_changed(workspace: Path) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([say("One.").hold(gate), say("Two."), say("Three.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("first\n")
        server.wait_for(1)
        terminal.type("second\nthird\n/plan fourth\n")
        terminal.see("Queued #1: second")
        terminal.see("Queued #2: third")
        terminal.see("Queued #3: fourth")
        terminal.type("/queue\n")
        terminal.match(r"1  edit +second\r\n +2  edit +third\r\n +3  plan +fourth")
        terminal.type("/queue edit 1 second, better\n")
        terminal.see("Changed: second, better")
        terminal.type("/queue drop 2\n")
        terminal.see("Dropped: third")
        terminal.type("/queue drop 9\n")
        terminal.see("No queued prompt number '9'.")
        terminal.type("/queue send 2\n")
        terminal.see("Runs after this turn: fourth")
        terminal.type("/edit\n")
        assert len(server.requests) == 1, "no command reaches the model"
        gate.set()
        terminal.see("Three.")
        exit_chat(terminal)
        assert "second, better" in server.requests[1].body.decode()
        assert "fourth" in server.requests[2].body.decode()
        assert server.rejected == []


@pytest.mark.usefixtures("without_views")
def test_steering_and_a_shell_command_during_a_turn(workspace: Path) -> None:
    with (
        ScriptedServer([call("ExecuteCommand", {"command": SLOW}), say("Turned.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        wait_until((workspace / "begun").exists)
        terminal.type("!echo mine; echo more\n")
        terminal.see("mine\r\nmore")
        terminal.type("/steer turn left\n")
        terminal.see("Sent. The model sees it before its next step.")
        (workspace / "go").touch()
        terminal.see("Turned.")
        exit_chat(terminal)
        told = server.requests[1].body.decode()
        assert "turn left" in told
        assert "Context from `echo mine; echo more`" in told
        assert server.rejected == []


def test_shell_command_output_joins_the_next_prompt_and_ctrl_c_stops_it(workspace: Path) -> None:
    with (
        ScriptedServer([say("Seen.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("!echo at the prompt; exit 3\n")
        terminal.see("(exit code 3)")
        terminal.type("!echo begins; sleep 1000\n")
        terminal.see("begins\r\n")
        terminal.type("\x03")
        terminal.see("(interrupted by the user and stopped with everything it had started)")
        terminal.type("what did I do\n")
        terminal.see("Seen.")
        exit_chat(terminal)
        told = server.requests[0].body.decode()
        assert "at the prompt" in told
        assert "interrupted by the user" in told


def test_ctrl_c_stops_the_turn_and_pauses_the_queue(workspace: Path) -> None:
    with (
        ScriptedServer([say("Never.").stall(), say("Fine."), say("That too.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("first\n")
        server.wait_for(1)
        terminal.type("by the way\n")
        terminal.see("Queued #1: by the way")
        terminal.type("\x03")
        terminal.see("1 queued prompt is paused. /queue shows")
        assert len(server.requests) == 1
        terminal.type("next\n")
        terminal.see("Fine.")
        assert "by the way" not in server.requests[1].body.decode()
        terminal.type("/queue send 1\n")
        terminal.see("That too.")
        exit_chat(terminal)
        assert "by the way" in server.requests[2].body.decode()
        assert server.rejected == []


def test_prompt_typed_right_after_ctrl_c_is_answered(workspace: Path) -> None:
    with (
        ScriptedServer([say("Never.").stall(), say("Fine.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("first\n")
        server.wait_for(1)
        terminal.type("\x03at once\n")
        terminal.see("Fine.")
        exit_chat(terminal)
        assert "at once" in server.requests[1].body.decode()
        assert server.rejected == []


def test_export_and_session_list_work_during_a_turn(workspace: Path) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([say("One.").hold(gate), say("Two.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("first\n")
        server.wait_for(1)
        terminal.type("/export so-far.json\n")
        terminal.see("Exported to")
        terminal.type("/sessions\n")
        terminal.see("current")
        terminal.type("/new\n")
        terminal.see("already answering a prompt")
        assert "first" in (workspace / "so-far.json").read_text()
        gate.set()
        terminal.see("One.")
        terminal.type("second\n")
        terminal.see("Two.")
        exit_chat(terminal)
        assert not any("/export" in request.body.decode() for request in server.requests)


TOUCH = call("ExecuteCommand", {"command": "touch made"}, id="asked")
COLOR = {"header": "Color", "text": "Which?", "options": [{"label": "Red"}]}
QUESTION = call("Question", {"questions": [COLOR]}, id="asked")


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
@pytest.mark.parametrize(
    ("asked", "begun", "rest", "prompt", "wait", "told"),
    [
        (TOUCH, "please say ", "yes\n", "please say yes", "say why not: ", "discarded: created made"),
        (TOUCH, "y", "\n", "y", "say why not: ", "discarded: created made"),
        (QUESTION, "who is that", "\n", "who is that", "Ctrl-D cancels): ", "Color: n"),
    ],
    ids=["words", "letter", "question"],
)
def test_a_line_begun_before_a_request_is_a_prompt(
    workspace: Path, term: str, asked: Turn, begun: str, rest: str, prompt: str, wait: str, told: str
) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([asked.hold(gate), say("Done."), say("Two.")]) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), "TERM": term}, with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        server.wait_for(1)
        terminal.type(begun)
        terminal.see(f"\r\n{begun}" if term == "dumb" else f"edit> {begun}")
        gate.set()
        terminal.see("Enter sends your line first; ")
        terminal.type(rest)
        terminal.see(wait)
        assert len(server.requests) == 1, "nothing is answered yet"
        terminal.type("n\n")
        terminal.see(f"Queued #1: {prompt}")
        terminal.see("Two.")
        exit_chat(terminal)
        assert told in server.requests[1].results["asked"]
        assert prompt in str(server.requests[2].messages[-1])
    assert not (workspace / "made").exists()


@pytest.mark.parametrize(("term", "key"), [("xterm-256color", "\x03"), ("dumb", "\x03"), ("dumb", "\x04")])
def test_ctrl_c_clears_the_line_for_a_request(workspace: Path, term: str, key: str) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([TOUCH.hold(gate), say("Done.")]) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), "TERM": term}, with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        server.wait_for(1)
        terminal.type("never mi")
        terminal.see("never mi")
        gate.set()
        terminal.see("Enter sends your line first; ")
        terminal.type(key)
        terminal.see("say why not: ")
        terminal.type("y\n")
        terminal.see("Done.")
        exit_chat(terminal)
        assert len(server.requests) == 2
    assert (workspace / "made").exists()


def test_tab_sets_the_line_aside_for_a_request(workspace: Path) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([TOUCH.hold(gate), say("Done."), say("Two.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        server.wait_for(1)
        terminal.type("half a li")
        terminal.see("edit> half a li")
        terminal.type("\x12zz")  # a search in the history ends, too
        terminal.see("I-search backward: zz")
        gate.set()
        terminal.see("Tab answers now.")
        terminal.type("\t")
        terminal.see("say why not: ")
        terminal.type("y\n")
        terminal.see("Done.")
        terminal.type("ne\n")
        terminal.see("edit> half a line\r\n")
        terminal.see("Two.")
        exit_chat(terminal)
        assert "half a line" in server.requests[2].body.decode()
    assert (workspace / "made").exists()


def test_request_waits_until_the_editor_is_closed(workspace: Path) -> None:
    gate = threading.Event()
    editor = "sh -c 'echo opened; until [ -e close ]; do sleep 0.02; done; echo written >\"$0\"; echo closed'"
    with (
        ScriptedServer([TOUCH.hold(gate), say("Done."), say("Two.")]) as server,
        open_terminal(cwd=workspace, env={**server.env("anthropic"), "VISUAL": editor}, with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        server.wait_for(1)
        terminal.type("/editor\n")
        terminal.see("opened")
        gate.set()
        terminal.wait_for_bytes(b"? needs you")
        (workspace / "close").touch()
        terminal.see("say why not: ")
        assert terminal.shown.index("closed") < terminal.shown.index("Odin asks: ")
        terminal.type("n\n")
        terminal.see("Two.")
        exit_chat(terminal)


def test_sigterm_during_a_turn_keeps_the_queue_for_the_next_start(workspace: Path) -> None:
    with ScriptedServer([say("Never.").stall(), say("One."), say("Two.")]) as server:
        with open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal:
            terminal.see("edit> ")
            terminal.type("first\n")
            server.wait_for(1)
            terminal.type("for later\n")
            terminal.see("Queued #1: for later")
            os.kill(terminal.process.pid, signal.SIGTERM)
            assert terminal.wait_for_exit()[0] == 143
        with open_terminal(
            "--yes", "--continue", cwd=workspace, env=server.env("anthropic"), with_stdout=True
        ) as terminal:
            terminal.see("1 queued prompt from the last session will run after your next prompt.")
            terminal.see("edit> ")
            time.sleep(0.2)
            assert len(server.requests) == 1, "nothing starts by itself"
            terminal.type("here I am\n")
            terminal.see("One.")
            terminal.see("Two.")
            exit_chat(terminal)
        assert "here I am" in server.requests[1].body.decode()
        assert "for later" in server.requests[2].body.decode()
        assert server.rejected == []


def test_ctrl_c_clears_the_line_and_sigterm_exits_at_the_prompt(workspace: Path) -> None:
    with (
        ScriptedServer([]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("not this")
        terminal.see("edit> not this")
        terminal.type("\x03")
        terminal.match(r"\r\nedit> $")
        terminal.type("/queue\n")
        terminal.see("The queue is empty.")
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.wait_for_exit()[0] == 143


def test_ctrl_c_clears_the_line_before_it_stops_the_turn(workspace: Path) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([say("Counted.").hold(gate), say("Again.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("count\n")
        server.wait_for(1)
        terminal.type("a draft")
        terminal.see("a draft")
        terminal.type("\x03")
        gate.set()
        terminal.see("Counted.\r\nedit> ")
        terminal.type("\x1b[A\n")
        terminal.see("Again.")
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 0
        assert "interrupted" not in terminal.shown
        assert "a draft" in server.requests[1].body.decode()


def test_two_quick_ctrl_c_clear_the_line_and_stop_the_turn(workspace: Path) -> None:
    with (
        ScriptedServer([say("Never.").stall()]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("count\n")
        server.wait_for(1)
        terminal.type("a draft")
        terminal.see("a draft")
        terminal.type("\x03\x03")
        terminal.see("Interrupted.\r\nedit> ")
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 130


def test_continue_resumes_an_interrupted_turn(workspace: Path) -> None:
    with (
        ScriptedServer([say("Never.").stall(), say("On.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/continue\n")
        terminal.see("Nothing to continue")
        terminal.type("first\n")
        server.wait_for(1)
        terminal.type("\x03")
        terminal.see("Interrupted.\r\nedit> ")
        terminal.type("/continue\n")
        terminal.see("On.")
        exit_chat(terminal)
        assert server.requests[0].messages == server.requests[1].messages
