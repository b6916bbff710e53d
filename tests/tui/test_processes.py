"""Background processes in the app: /ps, the side panel, their cards, and Ctrl+B."""

import asyncio
import urllib.request
from pathlib import Path

from odin.core.op import MoveToBackground
from odin.sandbox.ports import HOST
from odin.testing import call, say
from odin.ui.tui.dialogs.processes import ProcessesDialog, ProcessOutputDialog
from tests.engine.test_background_control import find_free_port, require_bubblewrap, serve
from tests.tui.conftest import OpenApp
from tests.tui.test_side_panel import find_position

__all__ = ["require_bubblewrap"]


async def test_a_process_is_listed_followed_and_stopped(open_app: OpenApp, workspace: Path) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.02; done; echo two; sleep 1000"
    spawn = call("Spawn", {"command": command, "description": "watcher"})
    async with open_app([spawn, say("Running."), say("I see.")], size=(160, 40), yes=True) as stage:
        await stage.send("go")
        await stage.shows("▶ spawn-1 watcher  running in the background", "Background", "• spawn-1 watcher")
        await stage.pilot.click(offset=find_position(stage, "• spawn-1 watcher"))
        await stage.until(lambda: isinstance(stage.app.screen, ProcessOutputDialog))
        await stage.shows("running since", "one")
        (workspace / "go").touch()
        await stage.shows("two")
        await stage.press("escape")
        await stage.send("/ps")
        await stage.until(lambda: isinstance(stage.app.screen, ProcessesDialog))
        await stage.shows("▶ spawn-1 watcher", "s stop")
        await stage.press("s")
        await stage.shows("■ spawn-1 watcher", "stopped after")
        await stage.press("escape")
        await stage.shows("■ spawn-1 watcher  stopped")
        await stage.send("and now?")
        await stage.shows("I see.")
        assert "The user stopped the background process spawn-1 (watcher)." in stage.server.requests[-1].body.decode()


async def test_the_list_has_the_state_of_each_process_in_100_columns(open_app: OpenApp) -> None:
    runs = {"sleep 1000": "watcher of everything that happens here", "exit 3": "a build of the whole project"}
    spawns = [call("Spawn", {"command": command, "description": name}) for command, name in runs.items()]
    async with open_app([*spawns, say("Running.")], size=(100, 30), yes=True) as stage:
        await stage.send("go")
        await stage.shows("Running.", "failed with exit code 3")
        await stage.send("/ps")
        await stage.until(lambda: isinstance(stage.app.screen, ProcessesDialog))
        await stage.shows("…  running · ", "…  exit code 3 · ", "It has printed nothing yet.")
        await stage.press("down")
        await stage.shows("failed with exit code 3 after", "It printed nothing.")


async def test_the_unfolded_card_of_a_running_process_shows_its_output(open_app: OpenApp) -> None:
    spawn = call("Spawn", {"command": "echo hello from the server; sleep 1000", "description": "server"})
    async with open_app([spawn, say("Running.")], yes=True) as stage:
        await stage.send("go")
        await stage.shows("Running.", "▶ spawn-1 server")
        await stage.until(lambda: not stage.app.executing)
        assert "hello from the server" not in stage.screen().partition("▶ spawn-1")[2]
        block = next(block for block in stage.app.transcript.blocks if block.key == "spawn-1")
        stage.app.transcript.toggle(block)
        await stage.until(lambda: "hello from the server" in stage.screen().partition("▶ spawn-1")[2])


async def test_the_user_is_asked_about_a_port_and_reaches_it_then(open_app: OpenApp, workspace: Path) -> None:
    (workspace / "page.txt").write_text("hello")
    port = find_free_port()
    async with open_app([serve(port), say("Serving.")], size=(160, 40), yes=True) as stage:
        await stage.send("go")
        await stage.shows(f"listens on port {port} in its sandbox", f"port {port} (closed: /ps spawn-1 open)")
        await stage.press("2", "enter")
        await stage.shows(f"▶ spawn-1 dev server  http://{HOST}:{port}", f"  http://{HOST}:{port}")
        url = f"http://{HOST}:{port}/page.txt"
        assert await asyncio.to_thread(lambda: urllib.request.urlopen(url).read()) == b"hello"
        await stage.send("/ps")
        await stage.until(lambda: isinstance(stage.app.screen, ProcessesDialog))
        await stage.press("o")
        await stage.shows("Its ports are open.")


async def test_ctrl_b_sends_the_running_command_to_the_background(open_app: OpenApp) -> None:
    command = call("ExecuteCommand", {"command": "echo be''gun; sleep 1000"})
    async with open_app([command, say("Meanwhile.")], size=(160, 40), yes=True) as stage:
        await stage.press("ctrl+b")
        await stage.shows("No command is running that could go to the background.")
        await stage.send("go")
        await stage.shows("begun")
        await stage.press("ctrl+b")
        await stage.shows("Meanwhile.", "▶ spawn-1", "• spawn-1 echo be''gun; sleep 1000")
        assert not await stage.app.client.submit(MoveToBackground())


async def test_leaving_asks_first_while_changes_of_a_command_are_undecided(open_app: OpenApp) -> None:
    command = call("ExecuteCommand", {"command": "echo half >made.txt; echo be''gun; sleep 1000"})
    async with open_app([command, say("Meanwhile.")], size=(160, 40)) as stage:
        await stage.send("go")
        await stage.shows("begun")
        await stage.press("ctrl+b")
        await stage.shows("Meanwhile.", "▶ spawn-1")
        for leave, question in (("/exit", "Exit anyway?"), ("/new", "Switch to another session anyway?")):
            await stage.send(leave)
            await stage.shows(f"A command is still at work. {question}", "stops it and discards what it has changed.")
            await stage.press("n")
        await stage.send("/exit")
        await stage.shows("A command is still at work.")
        await stage.press("y")
        await stage.until(lambda: stage.app._exit)
