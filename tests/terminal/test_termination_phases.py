"""Signals and closed windows in every phase: at startup, during a permission request, an answer or a command."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.terminal.emulator import Emulator, open_terminal
from tests.terminal.test_interaction import make_touch_call, wait_for_question
from tests.waiting import LIMIT_S, wait_until

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
def test_sigterm_during_startup_restores_the_terminal(workspace: Path, when: str) -> None:
    command = [sys.executable, "-c", SLOW.replace("{when!r}", repr(when))]
    with open_terminal(cwd=workspace, env={"ANTHROPIC_API_KEY": "k"}, command=command) as odin:
        odin.wait_for_bytes(b"\x1b[?1049h")
        if when != "before the first frame":
            odin.see("edit")
        odin.signal(signal.SIGTERM)
        odin.assert_exit_code(143)
        odin.assert_restored()


def start_asking(odin: Emulator) -> None:
    odin.type("ask me\r")
    wait_for_question(odin, "touch made")


def start_answering(odin: Emulator) -> None:
    odin.type("count\r")
    odin.see("Counting")


def start_working(odin: Emulator) -> None:
    odin.type("work\r")
    odin.see("it runs")


STUBBORN = "trap '' TERM INT HUP; echo it runs; (trap '' TERM HUP; setsid sleep 3600) & sleep 3600"
PHASES: dict[str, tuple[Callable[[Emulator], None], Turn | str, tuple[str, ...]]] = {
    "a question is open": (start_asking, make_touch_call("made"), ()),
    "it answers": (start_answering, "Counting " + "slowly " * 400, ()),
    "a command runs": (start_working, call("Bash", {"command": STUBBORN, "description": "work"}), ("--yes",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_closed_window_ends_every_phase(workspace: Path, phase: str) -> None:
    act, turn, args = PHASES[phase]
    gate = Event()
    script = [say(turn).hold(gate, after=12) if isinstance(turn, str) else turn]
    with ScriptedServer(script) as server, open_terminal(*args, cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        act(odin)
        odin.hang_up()
        odin.process.wait(LIMIT_S)
        gate.set()
        odin.assert_no_processes_left()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_repeated_signals_do_not_cut_the_shutdown_short(workspace: Path, number: signal.Signals) -> None:
    """A shell repeats a signal that the terminal has already sent."""
    act, turn, args = PHASES["a command runs"]
    assert isinstance(turn, Turn)
    with ScriptedServer([turn]) as server, open_terminal(*args, cwd=workspace, env=server.env("anthropic")) as odin:
        odin.see("edit")
        act(odin)

        def repeat_signal(_: float) -> None:
            odin.signal(number)
            time.sleep(0.01)

        wait_until(lambda: odin.process.poll() is not None, "its exit", pause=repeat_signal)
        odin.assert_exit_code(128 + number)
        odin.assert_restored()
