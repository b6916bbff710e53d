"""The plain conversation in a real terminal."""

import os
from pathlib import Path

from odin.testing import ScriptedServer, call, say
from tests.sandbox.processes import running, wait_until
from tests.ui.pseudo import screen

WAIT = "echo $$ >>pids; until [ -e go ]; do sleep 0.02; done; echo broken; exit 3"


def test_a_process_that_ends_begins_a_turn_at_the_prompt(workspace: Path) -> None:
    script = [
        call("Spawn", {"command": WAIT, "description": "tests"}),
        say("Waiting."),
        say("They failed."),
        say("Bye."),
    ]
    with (
        ScriptedServer(script) as server,
        screen("--yes", cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("run the tests\n")
        terminal.see("Waiting.")
        (workspace / "go").touch()
        terminal.see("They failed.")
        assert "spawn-1 (tests) finished with exit code 3" in server.requests[2].body.decode()
        terminal.type("thanks\n")
        terminal.see("Bye.")
        terminal.type("/exit\n")
        assert terminal.end()[0] == 0


def test_a_service_prints_while_nobody_types_and_ends_with_the_chat(workspace: Path) -> None:
    service = f"sleep {1000 + os.getpid() / 1e7:.7f}"
    command = f"for i in $(seq 20000); do echo line $i; done; touch printed; exec {service}"
    with (
        ScriptedServer([call("Spawn", {"command": command}), say("It runs.")]) as server,
        screen("--yes", cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("start it\n")
        terminal.see("It runs.")
        wait_until(lambda: (workspace / "printed").exists() and running(service))
        terminal.type("\x04")
        assert terminal.end()[0] == 0
        wait_until(lambda: not running(service))


def test_the_second_interrupt_at_the_prompt_ends_the_chat_quietly(workspace: Path) -> None:
    with (
        ScriptedServer([say("Hello.")]) as server,
        screen(cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("hi\n")
        terminal.see("Hello.")
        terminal.see("Hello.\r\nedit> ")
        terminal.type("\x03")
        terminal.see("Press Ctrl-C again or Ctrl-D to exit.\r\nedit> ")
        terminal.type("\x03")
        assert terminal.end()[0] == 0
        assert "Traceback" not in terminal.shown
