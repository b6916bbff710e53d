"""Answers to what Odin asks, prompts that wait, and work that is stopped, as somebody types them."""

import signal
import time
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from odin.ui.tui.dialogs.permission import BURST_S
from tests.terminal.emulator import Emulator, marked, terminal

READY = "Esc denies and stops the work."
"""It is shown when the question takes keys."""


def touch(name: str) -> Turn:
    return call("Bash", {"command": f"touch {name}", "description": f"make {name}"})


def asked(odin: Emulator, *words: str) -> None:
    odin.see(READY, *words)


def confirm(odin: Emulator, text: str) -> None:
    """Type this and press Enter. An Enter right behind a burst of letters would not count."""
    odin.type(text)
    odin.see(text)
    time.sleep(BURST_S)
    odin.type("\r")


@pytest.mark.slow
def test_every_answer(workspace: Path) -> None:
    names = ("once", "never", "wordy", "edited", "noted", "ruled", "ruled again", "stopped")
    script = [*map(touch, names), say("Another day.")]
    with ScriptedServer(script) as server, terminal(cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("Make them all\r")
        asked(odin, "│ touch once")
        odin.type("y")
        asked(odin, "│ touch never")
        odin.type("n")
        asked(odin, "│ touch wordy")
        odin.type("r")
        odin.see("Reason for the model:")
        odin.type("not on a Sunday\r")
        asked(odin, "│ touch edited")
        odin.type("e")
        odin.see("Use this")
        odin.type("-by-me\r")
        asked(odin, "│ touch edited-by-me", "+ touch edited-by-me")
        odin.type("y")
        asked(odin, "│ touch noted")
        odin.type("w")
        odin.see("Note for the model", "Esc Back")
        confirm(odin, "mind the gap")
        asked(odin, "│ touch ruled")
        odin.type("s")
        odin.see("Bash(touch")
        odin.gone(READY)
        odin.type("\x15")
        confirm(odin, "Bash(touch ruled:*)")
        asked(odin, "│ touch stopped")
        odin.type("\x1b")
        odin.see("stopped", "Ask, or type")
        odin.type("And now?\r")
        odin.see("Another day.")
        odin.type("/exit\r")
        odin.ends(0)
        odin.given_back()
        results = [str(result) for result in server.requests[7].results.values()]
        assert "said no" in results[1]
        assert "not on a Sunday" in results[2]
        assert "edited-by-me" in results[3]
        assert any("mind the gap" in str(message) for message in server.requests[5].messages)
        assert not server.rejected
    made = {path.name for path in workspace.iterdir()}
    assert {"once", "edited-by-me", "noted", "ruled", "again"} <= made
    assert not made & {"never", "wordy", "edited", "stopped"}


@pytest.mark.slow
def test_prompts_that_wait(workspace: Path) -> None:
    gate = Event()
    script = [
        say("Counting " + "slowly " * 200).hold(gate, after=12),
        say("About the second."),
        say("About the last."),
        say("Nobody asks for this."),
    ]
    with ScriptedServer(script) as server, terminal(cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        odin.type("Count\r")
        odin.see("Counting")
        for number, text in enumerate(("a first", "a second", "a third"), start=1):
            odin.type(f"{text}\r")
            odin.see(f"queued {number} · edit  {text}", f"{number} queued")
        odin.type("\x11")
        odin.see("› queued 3 · edit  a third")
        odin.type("d")
        odin.gone("a third")
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
        odin.ends(0)
        odin.given_back()


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
def test_esc_stops_what_does_not_want_to_be_stopped(workspace: Path) -> None:
    """A command that ignores every signal, with a child and a grandchild in sessions of their own.

    A second is the bound; on a machine that is busy with other things one of three times must keep it.
    """
    (workspace / "stubborn.py").write_text(STUBBORN)
    stubborn = call("Bash", {"command": "python3 stubborn.py 1 2", "description": "wait"})
    with (
        ScriptedServer(lambda seen: say("Here again.") if "there?" in str(seen.messages) else stubborn) as server,
        terminal("--yes", cwd=workspace, env=server.env("anthropic")) as odin,
    ):
        odin.see("edit")
        took: list[float] = []
        while not took or (min(took) >= 1 and len(took) < 3):
            took.append(stopped_after(odin, workspace))
            assert not [command for command in marked(odin.mark) if "stubborn.py" in command]
        assert min(took) < 1, f"it took {took} s"
        odin.type("Are you there?\r")
        odin.see("Here again.")
        odin.signal(signal.SIGTERM)
        odin.ends(143)
        odin.given_back()


def stopped_after(odin: Emulator, workspace: Path) -> float:
    """How long it takes from the key to the word that it is over."""
    before = len(list(workspace.glob("ran-*")))
    odin.type("Wait\r")
    patience = time.monotonic() + 30
    while len(list(workspace.glob("ran-*"))) < before + 3:
        assert time.monotonic() < patience, odin.text
        time.sleep(0.02)
    odin.see("Esc stops")
    pressed = time.monotonic()
    odin.type("\x1b")
    odin.gone("Esc stops")
    odin.see("stopped")
    return time.monotonic() - pressed
