"""Ended from outside in every phase: while it begins, connects, asks, answers and works; and more than once."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.terminal.emulator import Emulator, terminal
from tests.terminal.test_answers import asked, touch

SLOW = """
import sys, time
sys.argv = ["odin"]
from odin.ui.tui.app import OdinApp
from odin.commands.tui import OdinDriver
if {when!r} == "before the first frame":
    was = OdinDriver.start_application_mode
    def start(self):
        was(self)
        time.sleep(1)
    OdinDriver.start_application_mode = start
else:
    import asyncio
    async def settle(self):
        await asyncio.sleep(3600)
    from odin.ui.tui.lifecycle import Startup
    Startup.run_dialogs = settle
from odin.entry import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before the first frame", "while it connects"])
def test_while_it_begins(workspace: Path, when: str) -> None:
    command = [sys.executable, "-c", SLOW.replace("{when!r}", repr(when))]
    with terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}, command=command) as odin:
        odin.drawn(b"\x1b[?1049h")
        if when != "before the first frame":
            odin.see("edit")
        odin.signal(signal.SIGTERM)
        odin.ends(143)
        odin.given_back()


def asking(odin: Emulator) -> None:
    odin.type("ask me\r")
    asked(odin, "touch made")


def answering(odin: Emulator) -> None:
    odin.type("count\r")
    odin.see("Counting")


def working(odin: Emulator) -> None:
    odin.type("work\r")
    odin.see("it runs")


STUBBORN = "trap '' TERM INT HUP; echo it runs; (trap '' TERM HUP; setsid sleep 3600) & sleep 3600"
PHASES: dict[str, tuple[Callable[[Emulator], None], Turn | str, tuple[str, ...]]] = {
    "a question is open": (asking, touch("made"), ()),
    "it answers": (answering, "Counting " + "slowly " * 400, ()),
    "a command runs": (working, call("Bash", {"command": STUBBORN, "description": "work"}), ("--yes",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_the_window_is_closed_while(workspace: Path, phase: str) -> None:
    act, turn, args = PHASES[phase]
    gate = Event()
    script = [say(turn).hold(gate, after=12) if isinstance(turn, str) else turn]
    with ScriptedServer(script) as server, terminal(*args, cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        act(odin)
        odin.hang_up()
        odin.process.wait(30)
        gate.set()
        odin.nothing_runs()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_more_than_once(workspace: Path, number: signal.Signals) -> None:
    """A shell passes on what the terminal has already said; nothing may be torn off by that."""
    act, turn, args = PHASES["a command runs"]
    assert isinstance(turn, Turn)
    with ScriptedServer([turn]) as server, terminal(*args, cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        act(odin)
        end = time.monotonic() + 30
        while odin.process.poll() is None:
            assert time.monotonic() < end
            odin.signal(number)
            time.sleep(0.01)
        odin.ends(128 + number)
        odin.given_back()
