"""A session in two terminals: `odin -r` and `odin attach` on one that another process has open."""

import os
import signal
import threading
from pathlib import Path

from odin.testing import ScriptedServer, call, say
from tests.sandbox.processes import wait_until
from tests.ui.pseudo_terminal import PseudoTerminal, open_terminal


def find_session(home: Path) -> str:
    found = [path.parent.name for path in home.glob(".local/state/odin/**/main.jsonl")]
    assert len(found) == 1, found
    return found[0]


def leave(terminal: PseudoTerminal) -> None:
    terminal.type("/exit\n")
    assert terminal.wait_for_exit()[0] == 0
    assert "Traceback" not in terminal.shown


def test_plain_mode_that_joins_in_the_middle_of_a_turn_shows_it(workspace: Path, home: Path) -> None:
    gate = threading.Event()
    script = [
        say("An old answer."),
        call("Bash", {"command": "echo first", "description": "begin"}, text="I look first."),
        say("The answer is long.\n\nAnd it ends here.", chunk=4).hold(gate, after=11),
    ]
    with (
        ScriptedServer(script) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as holder,
    ):
        holder.type("the first prompt\n")
        holder.see("An old answer.")
        holder.type("the second prompt\n")
        holder.see("The answer is")
        with open_terminal(
            "-r", find_session(home), cwd=workspace, env=server.env("anthropic"), with_stdout=True
        ) as joined:
            seen = joined.see("The answer is")
            assert "I look first." in seen and "the second prompt" in seen
            assert "ends here" not in seen
            joined.type("what next?\n")
            joined.see("Queued #1: what next?")
            gate.set()
            for terminal in (joined, holder):
                terminal.see("And it ends here.")
            leave(joined)
            assert "the first prompt" not in joined.shown.partition("second prompt")[2]
        leave(holder)


def test_plain_mode_that_joins_asks_what_was_asked_before(workspace: Path, home: Path) -> None:
    script = [call("WriteFile", {"file_path": str(workspace / "new.txt"), "content": "x"}), say("Written.")]
    with (
        ScriptedServer(script) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as holder,
    ):
        holder.type("write\n")
        holder.see("new.txt")
        wait_until(lambda: list(home.glob(".local/state/odin/**/main.jsonl")))
        session = find_session(home)
        with open_terminal("attach", session, "--plain", cwd=workspace, env={}, with_stdout=True) as joined:
            joined.see("new.txt")
            joined.match(r"[Yy]es|Allow")
            joined.type("y\n")
            for terminal in (joined, holder):
                terminal.see("Written.")
            assert (workspace / "new.txt").read_text() == "x"
            leave(joined)
        leave(holder)
