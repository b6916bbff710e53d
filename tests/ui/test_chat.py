"""Background processes and Ctrl-C in plain mode, in a real terminal."""

import os
from pathlib import Path

from odin.testing import ScriptedServer, call, say
from tests.sandbox.processes import is_running
from tests.ui.pseudo_terminal import open_terminal
from tests.waiting import wait_until

WAIT = "echo $$ >>pids; until [ -e go ]; do sleep 0.02; done; echo broken; exit 3"


def test_finished_background_job_starts_a_turn(workspace: Path) -> None:
    script = [
        call("Spawn", {"command": WAIT, "description": "tests"}),
        say("Waiting."),
        say("They failed."),
        say("Bye."),
    ]
    with (
        ScriptedServer(script) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
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
        assert terminal.wait_for_exit()[0] == 0


def test_service_runs_until_the_chat_ends(workspace: Path) -> None:
    service = f"sleep {1000 + os.getpid() / 1e7:.7f}"
    command = f"for i in $(seq 20000); do echo line $i; done; touch printed; exec {service}"
    with (
        ScriptedServer([call("Spawn", {"command": command}), say("It runs.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("start it\n")
        terminal.see("It runs.")
        wait_until(lambda: (workspace / "printed").exists() and is_running(service))
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 0
        wait_until(lambda: not is_running(service))


def test_second_ctrl_c_at_the_prompt_exits_quietly(workspace: Path) -> None:
    with (
        ScriptedServer([say("Hello.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("hi\n")
        terminal.see("Hello.")
        terminal.see("Hello.\r\nedit> ")
        terminal.type("\x03")
        terminal.see("Press Ctrl-C again or Ctrl-D to exit.\r\nedit> ")
        terminal.type("\x03")
        assert terminal.wait_for_exit()[0] == 0
        assert "Traceback" not in terminal.shown


def test_the_user_lists_reads_follows_and_stops_background_processes(workspace: Path) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.02; done; echo two; sleep 1000"
    with (
        ScriptedServer([call("Spawn", {"command": command, "description": "watcher"}), say("Running.")]) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/ps\n")
        terminal.see("No background processes.")
        terminal.type("go\n")
        terminal.see("Running.")
        for typed, answer in [
            ("/ps", r"spawn-1  running since [\d:]+ \([\d.]+ s\)  watcher"),
            ("/ps 1", r"one\r\nspawn-1: running since "),
            ("/ps spawn-1 follow", r"Following spawn-1\."),
        ]:
            terminal.type(f"{typed}\n")
            terminal.match(answer)
        (workspace / "go").touch()
        terminal.see("two")
        terminal.type("\n/ps spawn-1 open\n")
        terminal.see("spawn-1 does not listen on a port.")
        terminal.type("/ps spawn-1 stop\n")
        terminal.see("Stopped spawn-1.")
        terminal.type("/ps spawn-7\n")
        terminal.see("There is no background process 'spawn-7'.")
        terminal.type("/ps background\n")
        terminal.see("No command is running that could go to the background.")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert len(server.requests) == 2
