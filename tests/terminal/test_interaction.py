"""Permission answers, queued prompts and interrupts, typed in a real terminal."""

import signal
import time
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from odin.ui.tui.timing import DEFAULT_APP_TIMING
from tests.terminal.emulator import Emulator, find_processes, open_terminal
from tests.waiting import wait_until

READY = "and stops the work."
"""Shown when the permission request accepts keys."""


def make_touch_call(name: str) -> Turn:
    return call("Bash", {"command": f"touch {name}", "description": f"make {name}"})


def wait_for_question(odin: Emulator, *words: str) -> None:
    """Wait for a permission request with these words that accepts keys."""
    odin.see(READY, *words)


def confirm(odin: Emulator, text: str) -> None:
    """Type the text and press Enter after a pause, because Enter right after a burst of letters does not count."""
    odin.type(text)
    odin.see(text)
    time.sleep(DEFAULT_APP_TIMING.typing_s)
    odin.type("\r")


@pytest.mark.slow
def test_every_answer_to_a_permission_request(workspace: Path) -> None:
    names = ("once", "never", "wordy", "edited", "noted", "ruled", "ruled again", "stopped")
    script = [*map(make_touch_call, names), say("Another day.")]
    with (
        ScriptedServer(script) as server,
        open_terminal("--commands-ask", "before", cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit")
        odin.type("Make them all\r")
        wait_for_question(odin, "│ touch once")
        odin.type("y")
        wait_for_question(odin, "│ touch never")
        odin.type("n")
        wait_for_question(odin, "│ touch wordy")
        odin.type("r")
        odin.see("Reason for the model:")
        odin.type("not on a Sunday\r")
        wait_for_question(odin, "│ touch edited")
        odin.type("e")
        odin.see("Use this")
        odin.type("-by-me\r")
        wait_for_question(odin, "│ touch edited-by-me", "+ touch edited-by-me")
        odin.type("y")
        wait_for_question(odin, "│ touch noted")
        odin.type("w")
        odin.see("Note for the model", "Esc Back")
        confirm(odin, "mind the gap")
        wait_for_question(odin, "│ touch ruled")
        odin.type("s")
        odin.see("Bash(touch")
        odin.wait_until_gone(READY)
        odin.type("\x15")
        confirm(odin, "Bash(touch ruled:*)")
        wait_for_question(odin, "│ touch stopped")
        odin.type("\x1b")
        odin.see("stopped", "Ask, or type")
        odin.type("And now?\r")
        odin.see("Another day.")
        odin.type("/exit\r")
        odin.assert_exit_code(0)
        odin.assert_restored()
        results = [str(result) for result in server.requests[7].results.values()]
        assert "denied this tool call" in results[1]
        assert "not on a Sunday" in results[2]
        assert "edited-by-me" in results[3]
        assert any("mind the gap" in str(message) for message in server.requests[5].messages)
        assert not server.rejected
    made = {path.name for path in workspace.iterdir()}
    assert {"once", "edited-by-me", "noted", "ruled", "again"} <= made
    assert not made & {"never", "wordy", "edited", "stopped"}


@pytest.mark.slow
def test_queued_prompts_are_edited_dropped_and_steered(workspace: Path) -> None:
    gate = Event()
    script = [
        say("Counting " + "slowly " * 200).hold(gate, after=12),
        say("About the second."),
        say("About the last."),
        say("Nobody asks for this."),
    ]
    with ScriptedServer(script) as server, open_terminal(cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("Count\r")
        odin.see("Counting")
        for number, text in enumerate(("a first", "a second", "a third"), start=1):
            odin.type(f"{text}\r")
            odin.see(f"queued {number} · edit  {text}", f"{number} queued")
        odin.type("\x11")
        odin.see("› queued 3 · edit  a third")
        odin.type("d")
        odin.wait_until_gone("a third")
        odin.see("2 queued")
        odin.type("k")
        odin.see("› queued 1 · edit  a first")
        odin.type("d")
        odin.see("› queued 1 · edit  a second")
        odin.type("e")
        odin.see("queued prompt: Enter saves")
        odin.type(" thought\r")
        odin.see("queued 1 · edit  a second thought")
        odin.type("go on like this\x13")
        odin.see("steering ", "· edit  go on like this")
        gate.set()
        odin.see("About the last.")
        said = [str(request.messages) for request in server.requests]
        assert not any("a third" in one or "a first" in one for one in said)
        assert any("a second thought" in one for one in said)
        assert any("go on like this" in one for one in said)
        odin.type("\x04")
        odin.assert_exit_code(0)
        odin.assert_restored()


STUBBORN = """
import os, signal, subprocess, sys, time
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, __file__, *sys.argv[2:]], start_new_session=True)
print("it runs", flush=True)
open(f"ran-{os.getpid()}", "w").close()
time.sleep(3600)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")
def test_esc_stops_a_command_that_ignores_signals(workspace: Path, home: Path) -> None:
    """The command ignores every signal and has a child and a grandchild in their own sessions.

    It must stop within a second; on a busy machine, one of three attempts must.
    """
    (workspace / "stubborn.py").write_text(STUBBORN)
    (home / ".config/odin/odinconfig.json").write_text('{"sandbox": {"backend": "landlock"}}')  # its files are counted
    stubborn = call("Bash", {"command": "python3 stubborn.py 1 2", "description": "wait"})
    with (
        ScriptedServer(lambda seen: say("Here again.") if "there?" in str(seen.messages) else stubborn) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit")
        took: list[float] = []
        while not took or (min(took) >= 1 and len(took) < 3):
            took.append(measure_stop(odin, workspace))
            assert not [command for command in find_processes(odin.mark) if "stubborn.py" in command]
        assert min(took) < 1, f"it took {took} s"
        odin.type("Are you there?\r")
        odin.see("Here again.")
        odin.signal(signal.SIGTERM)
        odin.assert_exit_code(143)
        odin.assert_restored()


def measure_stop(odin: Emulator, workspace: Path) -> float:
    """Return the seconds from the Esc key until the app shows that the command was stopped."""
    before = len(list(workspace.glob("ran-*")))
    odin.type("Wait\r")
    wait_until(lambda: len(list(workspace.glob("ran-*"))) >= before + 3, lambda: f"three files:\n{odin.text}")
    odin.see("Esc stops")
    pressed = time.monotonic()
    odin.type("\x1b")
    odin.wait_until_gone("Esc stops")
    odin.see("stopped")
    return time.monotonic() - pressed
