"""Processes of commands: their output is reported while they run, and none survives its turn, session or Odin."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ToolEnded, ToolProgressed
from odin.core.op import Interrupt
from odin.testing import ScriptedServer, call, say
from tests.conftest import Run
from tests.sandbox.processes import is_alive, wait_for_pids, wait_until_gone
from tests.waiting import LIMIT_S

from .conftest import WITHOUT_VIEWS, Start, Talk


@pytest.fixture
def start(start: Start) -> Start:
    """Commands change the project directly, so that a test sees what a running one does."""

    async def open_talk(script: Any, *args: Any, config: dict[str, Any] | None = None, **more: Any) -> Talk:
        return await start(script, *args, config={**WITHOUT_VIEWS, **(config or {})}, **more)

    return open_talk


STUBBORN = """
bash -c 'trap "" INT TERM HUP; echo $$ >>pids; sleep 1000 & echo $! >>pids; wait; sleep 1000' &
set -m
bash -c 'trap "" INT TERM HUP; echo $$ >>pids; while :; do sleep 1000; done' &
set +m
setsid bash -c 'trap "" INT TERM HUP; echo $$ >>pids; while :; do sleep 1000; done' &
trap "" INT TERM
echo $$ >>pids
while :; do sleep 1000; done
"""
"""A command with children that ignore signals: in its process group, in another group, and in another session."""


async def test_interrupt_leaves_no_process_and_the_next_turn_works(start: Start, workspace: Path) -> None:
    talk = await start(
        [call("ExecuteCommand", {"command": STUBBORN}), call("ExecuteCommand", {"command": "echo on"}), say("Fine.")]
    )
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 5)
    assert all(is_alive(pid) for pid in found)
    await talk.client.submit(Interrupt())
    assert (await talk.until_end(prompt)).reason == "interrupted"
    assert not any(is_alive(pid) for pid in found), "the processes are gone before the turn ends"
    assert (await talk.say("again")).text == "Fine."
    assert [event.text for event in talk.all(ToolEnded)][-1] == "on"


async def test_closing_the_session_leaves_no_process(start: Start, workspace: Path) -> None:
    talk = await start([call("ExecuteCommand", {"command": STUBBORN})])
    await talk.submit("go")
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 5)
    await talk.client.close()
    wait_until_gone(found)


async def test_output_is_reported_while_the_command_runs(start: Start, workspace: Path) -> None:
    """The command goes on only after its output was reported."""
    command = "echo one; until [ -e go ]; do sleep 0.05; done"
    talk = await start([call("ExecuteCommand", {"command": command}, id="c"), say("ok")])
    prompt = await talk.submit("go")
    await talk.until_live(ToolProgressed)
    (seen,) = talk.all(ToolProgressed)
    assert (seen.call_id, seen.name, seen.text) == ("c", "ExecuteCommand", "one")
    (workspace / "go").touch()
    assert (await talk.until_end(prompt)).text == "ok"


async def test_large_output_causes_few_progress_events(start: Start) -> None:
    talk = await start([call("ExecuteCommand", {"command": "head -c 50000000 /dev/zero | tr '\\0' x"}), say("ok")])
    assert (await talk.say("go")).text == "ok"
    (ended,) = talk.all(ToolEnded)
    assert len(ended.text) < 31_000
    assert "50000000 bytes in all" in ended.text
    assert len(talk.all(ToolProgressed)) < 60
    assert all(len(event.text) <= 200 for event in talk.all(ToolProgressed))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_odin_leaves_no_process(workspace: Path, home: Path, number: signal.Signals) -> None:
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text(json.dumps(WITHOUT_VIEWS))
    spawned = {"command": "echo $$ >>pids; setsid sleep 1000 & echo $! >>pids; wait; sleep 1000"}
    script = [call("Spawn", spawned), call("ExecuteCommand", {"command": STUBBORN})]
    with ScriptedServer(script) as server, start_odin(workspace, server) as process:
        found = wait_for_pids(workspace / "pids", 7)
        process.send_signal(number)
        wait_until_gone(found)
        process.wait(LIMIT_S)


def start_odin(workspace: Path, server: ScriptedServer) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "odin", "-p", "--yes", "go"],
        cwd=workspace,
        env={**os.environ, **server.env("anthropic")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("tool", ["Spawn", "ExecuteCommand"])
def test_headless_run_leaves_no_background_process(run_odin: Run, workspace: Path, tool: str) -> None:
    command = "echo $$ >>pids; sleep 1000 & echo $! >>pids; wait"
    args = {"command": command if tool == "Spawn" else f"({command}) & sleep 0.1"}
    ready = {"command": "until [ $(wc -l <pids) = 2 ]; do sleep 0.02; done"}
    with ScriptedServer([call(tool, args), call("ExecuteCommand", ready), say("Done.")]) as server:
        ran = run_odin("-p", "--yes", "go", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout) == (0, "Done.\n")
    wait_until_gone(wait_for_pids(workspace / "pids", 2))
