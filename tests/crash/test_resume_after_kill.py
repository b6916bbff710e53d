"""What a resume restores after a session was killed, and how it closes the calls and turns that were running."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAnswered, Replied, SpawnFinished, ToolEnded
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CheckpointSaved,
    FilesChanged,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from odin.core.op import AddRule, AnswerPermission, Prompt, SetPermissionMode, SetTitle
from odin.engine.crash_recovery import CRASH_ERROR
from odin.session.log import read_log
from odin.session.store import SessionStore
from odin.session.thread import INTERRUPTED, NOT_STARTED
from odin.testing import ScriptedServer, Turn, call, reply, say
from tests.waiting import LIMIT_S, wait_until

from ..conftest import Run
from ..engine.conftest import WITHOUT_VIEWS, Start
from ..session.logs import write_session

ROOT = Path(__file__).parent.parent.parent


def find_log(home: Path) -> Path:
    return next((home / ".local/state/odin/sessions").glob("*/*/main.jsonl"))


def list_events(home: Path) -> list[AnyEvent]:
    return [envelope.event for envelope in read_log(find_log(home))]


def run_and_kill_when(
    condition: Callable[[], bool], script: list[Turn], workspace: Path, home: Path, *flags: str, text: str = "go"
) -> ScriptedServer:
    """Run Odin with this script, kill it as soon as the condition is true, and return the running server.

    Its commands change the project while they run, unless the user's settings exist already.
    """
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    if not settings.exists():
        settings.write_text(json.dumps(WITHOUT_VIEWS))
    server = ScriptedServer(script).start()
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "odin", "-p", text, *(flags or ("--yes",))],
        cwd=workspace,
        env={**os.environ, **server.env("anthropic")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: condition() or process.poll() is not None)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    return server


async def resume_and_prompt(start: Start, server: ScriptedServer) -> tuple[Any, Any]:
    """Resume the last session with a prompt. Return it and the messages of its first request."""
    before = len(server.requests)
    talk = await start(None, server=server, continue_last=True)
    assert (await talk.say("and now?")).reason == "end_turn"
    assert server.rejected == []
    return talk, server.requests[before].json["messages"]


async def test_running_and_waiting_calls_get_results_on_resume(start: Start, workspace: Path, home: Path) -> None:
    """Both get a result in the log and in the next request, which also lists the changed files."""
    command = "echo half >made.txt; touch begun; sleep 1000"
    calls = [call("ExecuteCommand", {"command": command}), call("WriteFile", {"file_path": "x", "content": "y"})]
    script = [reply("Both.", calls), say("I see.")]
    server = run_and_kill_when((workspace / "begun").exists, script, workspace, home)
    _, messages = await resume_and_prompt(start, server)
    ran, waited = (block["content"] for block in messages[2]["content"] if block["type"] == "tool_result")
    assert (ran, waited) == (INTERRUPTED, NOT_STARTED)
    last_message = json.dumps(messages[-1])
    assert str(workspace / "made.txt") in last_message
    assert "cut off" in last_message
    events = list_events(home)
    ends = [(event.status, event.text) for event in events if isinstance(event, ToolEnded)]
    assert ends == [("cancelled", INTERRUPTED), ("cancelled", NOT_STARTED)]
    crashed, after = (event for event in events if isinstance(event, TurnEnded))
    assert (crashed.reason, crashed.error, after.reason) == ("aborted", CRASH_ERROR, "end_turn")
    left = next(event for event in events if isinstance(event, FilesChanged))
    assert {change.before.path for change in left.changes} == {str(workspace / name) for name in ("made.txt", "begun")}
    server.stop()


async def test_a_command_that_is_killed_in_a_view_has_changed_nothing(
    start: Start, workspace: Path, home: Path
) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{}")
    (workspace / "a.txt").write_text("mine\n")
    command = "echo half >a.txt; touch begun; sleep 1000"

    def is_begun() -> bool:
        return any("begun" in names for _, _, names in os.walk(home))  # folders may vanish while it looks

    first, second = (call("ExecuteCommand", {"command": text}) for text in (command, "cp a.txt b.txt"))
    server = run_and_kill_when(is_begun, [first, second, say("I see.")], workspace, home)
    _, messages = await resume_and_prompt(start, server)
    assert [block["content"] for block in messages[2]["content"] if block["type"] == "tool_result"] == [INTERRUPTED]
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"a.txt": "mine\n", "b.txt": "mine\n"}
    (changed,) = (event for event in list_events(home) if isinstance(event, FilesChanged))
    assert [change.before.path for change in changed.changes] == [str(workspace / "b.txt")]
    wait_until(lambda: not is_begun())  # the next sandbox removes what it wrote
    server.stop()


async def test_stream_of_a_resumed_session_has_only_the_new_turn(run_odin: Run, workspace: Path, home: Path) -> None:
    """A client must not mistake the end of the killed turn for the result of its own."""
    script = [call("ExecuteCommand", {"command": "touch begun; sleep 1000"}), say("I see.")]
    server = run_and_kill_when((workspace / "begun").exists, script, workspace, home)
    done = run_odin("-p", "and now?", "--continue", "--output-format", "stream-json", env=server.env("anthropic"))
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [message["type"] for message in messages] == ["system", "assistant", "result"]
    assert messages[-1]["result"] == "I see."
    server.stop()


async def test_stream_from_the_start_has_every_event_of_the_log(start: Start, workspace: Path, home: Path) -> None:
    """A client that streams from the start also gets the events that close the killed turn."""
    script = [call("ExecuteCommand", {"command": "touch begun; sleep 1000"}), say("I see.")]
    server = run_and_kill_when((workspace / "begun").exists, script, workspace, home)
    talk = await start((), server=server, continue_last=True)
    whole = talk.client.stream_events(after=-1)
    await talk.say("and now?")
    await talk.client.close()
    heard = [envelope.seq async for envelope in whole if envelope.event.durable]
    assert heard == [envelope.seq for envelope in read_log(find_log(home))]
    assert not [event for event in talk.all(TurnEnded) if event.error == CRASH_ERROR]
    server.stop()


async def test_turn_undone_before_the_resume_does_not_change_the_turn_before(
    run_odin: Run, start: Start, workspace: Path, home: Path
) -> None:
    """`odin undo` removes the killed turn. The resume must not record its end for the turn before it."""
    write = call("WriteFile", {"file_path": str(workspace / "made.txt"), "content": "x"})
    script = [say("First."), write, call("ExecuteCommand", {"command": "touch begun; sleep 1000"}), say("I see.")]
    with ScriptedServer(script[:1]) as server:
        assert run_odin("-p", "first", env=server.env("anthropic")).returncode == 0
    started_file = workspace / "begun"
    server = run_and_kill_when(started_file.exists, script[1:], workspace, home, "--yes", "--continue")
    assert (workspace / "made.txt").exists()
    undone = run_odin("undo")
    assert undone.returncode == 0, undone.stderr
    assert not (workspace / "made.txt").exists()
    talk, _ = await resume_and_prompt(start, server)
    turns = (await talk.client.snapshot()).messages
    assert (turns[0].answer_summary, turns[0].reason) == ("First.", "end_turn")
    server.stop()


async def test_partial_reply_is_not_restored(start: Start, workspace: Path, home: Path) -> None:
    """A crash loses a partial reply, because it was never stored. (An interrupt stores it, marked as interrupted.)"""
    gate = threading.Event()
    script = [say("Half a sentence that", chunk=5).hold(gate, 4), say("I see.")]
    server = ScriptedServer(script)
    arrived = lambda: bool(server.requests)  # noqa: E731
    server.start()
    process = subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-m",
            "odin",
            "-p",
            "go",
            "--output-format",
            "stream-json",
            "--include-partial-messages",
        ],
        cwd=workspace,
        env={**os.environ, **server.env("anthropic")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "text_delta" in line:
            break
    assert arrived()
    process.kill()
    process.communicate(timeout=LIMIT_S)
    gate.set()
    _, messages = await resume_and_prompt(start, server)
    assert "Half" not in json.dumps(messages)
    assert [event.message.text for event in list_events(home) if isinstance(event, Replied)] == ["I see."]
    server.stop()


async def test_killed_sub_agent_and_spawned_command_are_ended_on_resume(
    start: Start, workspace: Path, home: Path
) -> None:
    """Both are recorded as ended, and a new sub-agent gets an unused id."""
    script = [
        reply("", [call("Spawn", {"command": "sleep 1000"})]),
        reply("", [call("AgentTool", {"description": "help", "prompt": "help"})]),
        call("ExecuteCommand", {"command": "touch begun; sleep 1000"}),
        reply("", [call("AgentTool", {"description": "help", "prompt": "again"})]),
        say("Helped."),
        say("I see."),
    ]
    server = run_and_kill_when((workspace / "begun").exists, script, workspace, home)
    talk, messages = await resume_and_prompt(start, server)
    assert "spawn-1" in json.dumps(messages[-1])
    events = list_events(home)
    assert [(event.id, event.reason) for event in events if isinstance(event, AgentEnded)] == [
        ("agent-1", "aborted"),
        ("agent-2", "end_turn"),
    ]
    assert [(event.id, event.status) for event in events if isinstance(event, SpawnFinished)] == [
        ("spawn-1", "stopped")
    ]
    assert (await talk.client.snapshot()).sub_agents == ()
    server.stop()


async def test_resumed_session_shows_nothing_running_before_the_first_prompt(
    start: Start, workspace: Path, home: Path
) -> None:
    """The log ends in the middle of a turn with a sub-agent, and the resume has not added anything yet."""
    store = SessionStore(home / ".local/state/odin", str(workspace))
    begun = [TurnStarted("t", "go", "edit_mode"), AgentStarted("agent-1", "dig", "ask_mode")]
    write_session(store, "20260101000000000", [SessionOpened("/w", "m", "1"), *begun])
    talk = await start([say("fine")], resume="20260101000000000")
    shot = await talk.client.snapshot()
    assert (shot.executing, shot.sub_agents) == (False, ())
    assert (shot.cwd, shot.seq) == (str(workspace), 2)
    assert (await talk.say("go on")).text == "fine"
    assert (await talk.client.snapshot()).sub_agents == ()


async def test_open_permission_request_is_denied_on_resume(start: Start, workspace: Path, home: Path) -> None:
    talk = await start(
        [call("WriteFile", {"file_path": str(workspace / "a"), "content": "x"})], yes=False, can_ask=True
    )
    await talk.client.submit(Prompt("first", "write"))
    asked = await _wait_for_permission_request(talk)
    copy = find_log(home).read_bytes()
    await talk.client.submit(AnswerPermission(asked, False))
    await talk.client.close()
    find_log(home).write_bytes(copy)
    with ScriptedServer([say("I see.")]) as server:
        await resume_and_prompt(start, server)
    (answer,) = (event for event in list_events(home) if isinstance(event, PermissionAnswered))
    assert (answer.ask_id, answer.allowed, answer.by) == (asked, False, "shutdown")


async def _wait_for_permission_request(talk: Any) -> str:
    async for envelope in talk.client.stream_events(after=-1):
        if type(envelope.event).__name__ == "PermissionAsked":
            return envelope.event.ask_id
    raise AssertionError("there was no permission request")


async def test_queue_todos_title_rules_mode_and_usage_are_restored(start: Start, workspace: Path, home: Path) -> None:
    gate = threading.Event()
    todos = {"todos": [{"id": "1", "content": "look", "status": "in_progress"}]}
    talk = await start([call("TodoWrite", todos), say("one").hold(gate)], yes=False, can_ask=True)
    await talk.client.submit(SetPermissionMode("acceptEdits"))
    await talk.client.submit(SetTitle("My title"))
    await talk.client.submit(AddRule("Bash(echo:*)"))
    await talk.client.submit(Prompt("p", "go"))
    await talk.client.submit(Prompt("later", "what about this?", "ask_mode"))
    await asyncio.to_thread(talk.server.wait_for, 2, 60)
    await talk.until(ToolEnded)
    shot = await talk.client.snapshot()
    copy = find_log(home).read_bytes()
    gate.set()
    await talk.client.close()
    find_log(home).write_bytes(copy)
    with ScriptedServer([say("I see.")]) as server:
        again = await start(None, server=server, continue_last=True, yes=False, can_ask=True)
        found = await again.client.snapshot()
        assert [(item.id, item.body, item.mode) for item in found.queue] == [("later", "what about this?", "ask_mode")]
        assert found.todos == shot.todos != ()
        assert (found.title, found.permission_mode) == ("My title", "acceptEdits")
        assert (await again.client.get_info()).permission_mode == "acceptEdits"
        assert (found.usage, found.cost_usd) == (shot.usage, shot.cost_usd)
        assert any("echo" in line.text for line in await again.client.list_rules())


async def test_bypass_permissions_mode_is_not_restored(start: Start, home: Path) -> None:
    talk = await start([say("one")], yes=False, can_ask=True)
    await talk.client.submit(SetPermissionMode("bypassPermissions"))
    await talk.say("go")
    assert (await talk.client.snapshot()).permission_mode == "bypassPermissions"
    await talk.client.close()
    again = await start(None, server=talk.server, continue_last=True, yes=False, can_ask=True)
    assert (await again.client.get_info()).permission_mode == "default"


@pytest.mark.parametrize("count", [0, 1, 60])
async def test_log_with_an_incomplete_header_does_not_block_new_sessions(start: Start, home: Path, count: int) -> None:
    """A kill right after the log was created leaves an empty file or half a header, which is not a session."""
    talk = await start([say("one"), say("two")], session_id="mine")
    await talk.say("go")
    await talk.client.close()
    find_log(home).write_bytes(find_log(home).read_bytes()[:count])
    if count == 0:
        again = await start(None, server=talk.server, session_id="mine")
        assert (await again.say("go")).text == "two"
    else:
        again = await start(None, server=talk.server)
        assert (await again.say("go")).text == "two"


@pytest.mark.parametrize("later", [True, False])
def test_undo_keeps_user_edits_made_long_after_a_killed_edit(
    later: bool, run_odin: Run, workspace: Path, home: Path
) -> None:
    """The log ends with a checkpoint. A change right after it counts as the edit, a later one as the user's."""
    file = workspace / "a.txt"
    file.write_text("before\n")
    edit = call("WriteFile", {"file_path": str(file), "content": "by the edit\n"})
    config = home / ".config/odin/odinconfig.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"speculate": false}')
    with ScriptedServer([call("Read", {"file_path": str(file)}), edit, say("done"), say("go on")]) as server:
        env = server.env("anthropic")
        assert run_odin("-p", "go", "--yes", env=env).returncode == 0
        log = find_log(home)
        lines = log.read_text().splitlines(keepends=True)
        end = next(number for number, line in enumerate(lines) if '"type":"CheckpointSaved"' in line)
        envelopes = [json.loads(line) for line in lines[1 : end + 1]]
        for envelope in envelopes:
            envelope["ts"] -= 3600 if later else 0
        log.write_text("".join([lines[0], *(f"{json.dumps(each, separators=(',', ':'))}\n" for each in envelopes)]))
        file.write_text("mine\n")
        assert run_odin("-p", "and now?", "--yes", "--continue", env=env).returncode == 0
        left = [event for event in list_events(home) if isinstance(event, FilesChanged)]
        assert [len(event.changes) for event in left] == [0 if later else 1]
        assert run_odin("undo", "--to", "2").returncode == 0
        assert file.read_text() == ("mine\n" if later else "before\n")
        assert server.rejected == []


KILLED_BEFORE_RECORDING = """
import os, signal, sys
from odin.checkpoints.checkpointer import Checkpointer
from odin.checkpoints.command_tracker import CommandTracker
def die(*told): os.kill(os.getpid(), signal.SIGKILL)
Checkpointer._record_changes = die
CommandTracker._record_changes = lambda self, changes, ended=(): die() if ended else None
from odin.entry import main
sys.exit(main())
"""
"""Runs Odin, which kills itself just before it records the changed files of a call."""


@pytest.mark.parametrize("how", ["edit", "command"])
async def test_changes_of_a_killed_call_are_recorded_reported_and_can_be_undone(
    how: str, start: Start, run_odin: Run, workspace: Path, home: Path
) -> None:
    file = workspace / "a.txt"
    file.write_text("before\n")
    change = {
        "edit": call("WriteFile", {"file_path": str(file), "content": "after\n"}),
        "command": call("ExecuteCommand", {"command": "echo after >a.txt"}),
    }[how]
    config = {"speculate": False, "read_before_edit": False}
    folder = home / ".config/odin"
    folder.mkdir(parents=True)
    (folder / "odinconfig.json").write_text(json.dumps(config))
    server = ScriptedServer([change, say("I see.")]).start()
    died = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_RECORDING, "-p", "go", "--yes"],
        cwd=workspace,
        env={**os.environ, **server.env("anthropic")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert file.read_text() == "after\n"
    kinds = [type(event) for event in list_events(home)]
    assert CheckpointSaved in kinds and FilesChanged not in kinds
    talk, messages = await resume_and_prompt(start, server)
    await talk.client.close()
    (left,) = (event for event in list_events(home) if isinstance(event, FilesChanged))
    assert [item.before.path for item in left.changes] == [str(file)]
    assert str(file) in json.dumps(messages[-1])
    assert run_odin("undo", "--to", "2").returncode == 0
    assert file.read_text() == "before\n"
    server.stop()
