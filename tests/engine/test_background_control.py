"""Background processes as the user's: listing, reading and stopping them, and opening their ports to the host."""

import asyncio
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import (
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    SpawnFinished,
    SpawnListening,
    ToolEnded,
    ToolProgressed,
)
from odin.core.errors import UsageError
from odin.core.event import ContextAdded, FilesChanged, Rewound, TurnStarted, Warned
from odin.core.op import (
    AnswerPermission,
    AnswerQuestions,
    ControlProcess,
    MoveToBackground,
    Prompt,
    Redo,
    Rewind,
    RunUserShell,
)
from odin.engine.client import LocalClient
from odin.sandbox.ports import HOST
from odin.testing import call, say
from tests.waiting import LIMIT_S, TimeLimit, until

from .conftest import WITHOUT_VIEWS, Start, Talk
from .test_job_notifications import request_text, spawn
from .test_sandboxed_commands import require_bubblewrap

__all__ = ["require_bubblewrap"]


def serve(port: int, host: str = "127.0.0.1") -> Any:
    return spawn(f"exec python3 -m http.server {port} --bind {host}", description="dev server")


def find_free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return server.getsockname()[1]


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as response:
        return response.read().decode()


async def wait_for_port(talk: Talk) -> SpawnListening:
    """Wait for the newest event about a port."""
    await talk.until(SpawnListening)
    return (await talk.recorded_events(SpawnListening))[-1]


async def wait_until_settled(talk: Talk) -> None:
    """Wait until what ended commands wrote is decided and reported. No event tells it."""
    assert isinstance(talk.client, LocalClient)
    notifier = talk.client.session.deps.job_notifier
    await until(lambda: not notifier._settling)


async def test_processes_are_listed_read_and_stopped_by_the_user(start: Start) -> None:
    talk = await start([spawn("echo ready; sleep 1000", description="server"), say("Running."), say("I see.")])
    await talk.say("go")
    (record,) = await talk.client.list_processes()
    assert (record.id, record.command, record.status) == ("spawn-1", "echo ready; sleep 1000", "running")
    assert (record.description, record.urls) == ("server", {})
    async with TimeLimit():
        while not (read := await talk.client.read_process("spawn-1")).text:
            await asyncio.sleep(0.01)
    assert (read.text, read.end) == ("ready\n", 6)
    assert (await talk.client.read_process("1", after=read.end)).text == ""
    assert await talk.client.submit(ControlProcess("stop", "spawn-1"))
    assert not await talk.client.submit(ControlProcess("stop", "spawn-1"))
    assert [event.status for event in await talk.recorded_events(SpawnFinished)] == ["stopped"]
    assert [item.status for item in await talk.client.list_processes()] == ["stopped"]
    await talk.until_work_ended()
    await talk.say("and now?")
    assert len(talk.all(TurnStarted)) == 2, "stopping a process starts no turn"
    assert "The user stopped the background process spawn-1 (server)." in request_text(talk, 2)
    with pytest.raises(UsageError, match="no background process 'spawn-7'"):
        await talk.client.submit(ControlProcess("stop", "spawn-7"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_port_is_opened_after_the_user_agreed(start: Start, workspace: Path, host: str) -> None:
    (workspace / "page.txt").write_text("hello from the sandbox")
    port = find_free_port()
    script = [serve(port, host), say("Serving."), serve(port, host), say("Again."), say("ok")]
    talk = await start(script, can_ask=True)
    await talk.say("go")
    assert (await wait_for_port(talk)).url == "", "nothing is open before the answer"
    with pytest.raises(OSError):
        await asyncio.to_thread(fetch, f"http://{HOST}:{port}/page.txt")
    await talk.until(QuestionsAsked)
    (asked,) = await talk.recorded_events(QuestionsAsked)
    assert f"dev server) listens on port {port} in its sandbox" in asked.questions[0].text
    await talk.client.submit(AnswerQuestions(asked.ask_id, (("Open it",),)))
    async with TimeLimit():
        while not (opened := await wait_for_port(talk)).url:
            await asyncio.sleep(0.01)
    assert (opened.id, opened.port, opened.url) == ("spawn-1", port, f"http://{HOST}:{port}")
    url = f"{opened.url}/page.txt"
    pages = await asyncio.gather(*(asyncio.to_thread(fetch, url) for _ in range(20)))
    assert set(pages) == {"hello from the sandbox"}

    # A port is asked about once: the same server opens it again, and it is closed with its process.
    await talk.client.submit(ControlProcess("stop", "spawn-1"))
    with pytest.raises(OSError):
        await asyncio.to_thread(fetch, url)
    await talk.say("again")
    async with TimeLimit():
        while (await wait_for_port(talk)).id == "spawn-1" or not (await wait_for_port(talk)).url:
            await asyncio.sleep(0.01)
    assert await asyncio.to_thread(fetch, url) == "hello from the sandbox"
    assert len(await talk.recorded_events(QuestionsAsked)) == 1
    assert f"The user opened port {port} of spawn-1" in request_text(talk, 2)
    await talk.client.close()
    with pytest.raises(OSError):
        await asyncio.to_thread(fetch, url)


async def test_a_port_that_the_user_opens_is_not_asked_about_any_more(start: Start) -> None:
    talk = await start([serve(find_free_port()), say("Serving.")], can_ask=True)
    await talk.say("go")
    await talk.until(QuestionsAsked)
    assert await talk.client.submit(ControlProcess("open", "spawn-1"))
    await talk.until(QuestionsAnswered)
    assert (await talk.client.snapshot()).interactions == ()


async def test_a_taken_port_is_forwarded_from_another_one(start: Start, workspace: Path) -> None:
    (workspace / "page.txt").write_text("hello")
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        talk = await start([serve(port), say("Serving."), say("ok")], can_ask=False)
        await talk.say("go")
        await wait_for_port(talk)
        with pytest.raises(UsageError, match="does not listen on 1"):
            await talk.client.submit(ControlProcess("open", "spawn-1", 1))
        assert await talk.client.submit(ControlProcess("open", "spawn-1"))
        assert not await talk.client.submit(ControlProcess("open", "spawn-1"))
        (record,) = await talk.client.list_processes()
        assert record.urls[port] not in ("", f"http://{HOST}:{port}")
        assert await asyncio.to_thread(fetch, f"{record.urls[port]}/page.txt") == "hello"


async def test_without_a_user_a_port_stays_closed_and_the_model_is_told(start: Start) -> None:
    port = find_free_port()
    wait = f"until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'; do sleep 0.05; done"
    look = call("SpawnStatus", {"id": "spawn-1"})
    talk = await start([serve(port), call("ExecuteCommand", {"command": wait}), look, say("ok")], can_ask=False)
    await talk.say("go")
    assert f"it listens on port {port}: commands reach it; `/ps spawn-1 open` in the app" in request_text(talk, 3)
    assert [event.url for event in await talk.recorded_events(SpawnListening)] == [""]
    assert not await talk.recorded_events(QuestionsAsked)
    with pytest.raises(OSError):
        await asyncio.to_thread(fetch, f"http://{HOST}:{port}/")


# --- undo ---


async def test_an_undo_stops_the_processes_of_its_prompt_and_no_report_ends_the_redo(start: Start, gate: Path) -> None:
    wait = f"until [ -e {gate} ]; do sleep 0.05; done; exit 3"
    script = [spawn(wait, description="early"), say("One."), spawn("sleep 1000", description="late"), say("Two.")]
    talk = await start([*script, say("I see."), say("ok")])
    await talk.say("first")
    await talk.client.submit(RunUserShell("r", "sh wait.sh"))
    await talk.until_live(ToolProgressed)
    assert await talk.client.submit(MoveToBackground())
    await talk.say("second")
    await talk.client.submit(Rewind("p2"))
    statuses = {item.description: item.status for item in await talk.client.list_processes()}
    assert statuses == {"early": "running", "": "running", "late": "stopped"}
    await talk.until_live(Rewound)
    assert talk.all(Rewound)[0].stopped == ("spawn-3 (late)",)
    gate.touch()
    while not {"spawn-1", "spawn-2"} <= {event.id for event in talk.all(SpawnFinished)}:
        await talk.until_live(SpawnFinished)
    await wait_until_settled(talk)
    await talk.until_work_ended()
    assert await talk.client.submit(Redo())
    await talk.say("and?")
    assert len(talk.all(TurnStarted)) == 3, "the report waits for the next prompt"
    assert "An undo stopped these; they do not run any more: spawn-3 (late)." in request_text(talk, 4)
    assert "spawn-1 (early) finished with exit code 3" in request_text(talk, 4)
    assert talk.server.rejected == []


# --- sending a running command to the background ---

ASKING: dict[str, Any] = {"yes": False, "can_ask": True}


def run(command: str) -> Any:
    return call("ExecuteCommand", {"command": command})


@pytest.fixture
def gate(workspace: Path) -> Path:
    """A file outside the project, which `sh wait.sh` waits for; a view need not show a new file in the project."""
    gate = workspace.parent / "gate"
    (workspace / "wait.sh").write_text(f"echo begun; until [ -e {gate} ]; do sleep 0.05; done; echo done\n")
    return gate


async def move(talk: Talk, prompt: str) -> ToolEnded:
    """Send the command of this turn to the background once it runs, and return the result of its call."""
    await talk.until_live(ToolProgressed)
    assert await talk.client.submit(MoveToBackground())
    await talk.until_end(prompt)
    return talk.all(ToolEnded)[0]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_moved_command_keeps_its_view_until_it_ends(
    start: Start, workspace: Path, gate: Path, kept: bool
) -> None:
    command = "sh wait.sh; echo new >made.txt; rm old.txt"
    (workspace / "old.txt").write_text("old")
    (workspace / ".env").write_text("TOKEN=hunter2hunter2\n")
    talk = await start([run(command), run("cat other.txt"), say("Meanwhile."), say("I see.")], **ASKING)
    talk.answers = [AnswerPermission("", kept)]
    (workspace / "other.txt").write_text("other")
    result = await move(talk, await talk.submit("go"))
    assert (result.status, result.asynchronous) == ("success", True)
    assert "The user sent it to the background" in result.text
    assert "id: spawn-1" in result.text
    assert "output so far:\nbegun" in result.text
    assert talk.all(ToolEnded)[1].text.startswith("other"), "other commands work meanwhile"
    gate.touch()
    assert (await talk.until_end("spawn-1-ended")).text == "I see."
    what = "created made.txt; deleted old.txt"
    told = f"[The user kept: {what}.]" if kept else f"[The user discarded: {what}. The project is unchanged.]"
    report = talk.all(TurnStarted)[-1].text
    assert told in report
    hidden = "[It could not read .env, which may contain secrets"
    assert (hidden in result.text, hidden in report) == (True, False), "once is enough"
    assert (workspace / "made.txt").exists() is kept
    assert (workspace / "old.txt").exists() is not kept
    assert (await talk.client.read_process("spawn-1")).text == "begun\ndone\n"
    assert talk.server.rejected == []
    if kept:  # it belongs to the prompt that started it
        await talk.client.submit(Rewind("p1"))
        assert sorted(path.name for path in workspace.glob("*.txt")) == ["old.txt", "other.txt"]


async def test_a_stopped_command_in_a_view_is_asked_about(start: Start, workspace: Path) -> None:
    talk = await start([run("echo half >made.txt; echo begun; sleep 1000"), say("Moved."), say("ok")], **ASKING)
    await move(talk, await talk.submit("go"))
    await talk.client.submit(ControlProcess("stop", "spawn-1"))
    await talk.until_live(PermissionAsked)
    (asked,) = talk.all(PermissionAsked)
    assert asked.reason == "It was stopped."
    assert not (workspace / "made.txt").exists()
    await talk.client.submit(AnswerPermission(asked.ask_id, True))
    await talk.until_live(FilesChanged)
    assert (workspace / "made.txt").read_text() == "half\n"
    await wait_until_settled(talk)
    await talk.until_work_ended()
    await talk.say("and?")
    assert len(talk.all(TurnStarted)) == 2
    assert "The user stopped the background process spawn-1" in request_text(talk, 2)
    assert "[The user kept: created made.txt.]" in request_text(talk, 2)


@pytest.mark.parametrize("ended", [True, False])
async def test_an_undo_discards_what_a_moved_command_wrote(
    start: Start, workspace: Path, gate: Path, ended: bool
) -> None:
    talk = await start([run("echo half >made.txt; sh wait.sh"), say("Moved."), say("ok")], **ASKING)
    await move(talk, await talk.submit("go"))
    if ended:
        gate.touch()
        await talk.until_live(PermissionAsked)
    await talk.client.submit(Rewind("p1"))
    await talk.until_live(Rewound)
    assert [name.partition(" ")[0] for name in talk.all(Rewound)[0].stopped] == ["spawn-1"]
    assert not (await talk.client.snapshot()).interactions
    assert not (workspace / "made.txt").exists()
    await talk.say("something else")
    assert len(talk.all(PermissionAsked)) == ended
    assert "spawn-1" not in request_text(talk, 2)


async def test_an_undo_asks_nothing_while_it_stops_the_commands_of_its_prompt(start: Start, workspace: Path) -> None:
    slow = spawn("trap 'sleep 1; exit' TERM; echo begun; while :; do sleep 0.05; done")
    moved = run("echo half >made.txt; echo begun; sleep 1000")
    talk = await start([slow, moved, say("Moved.")], config={"allowed_tools": ["Spawn"]}, **ASKING)
    await move(talk, await talk.submit("go"))
    async with TimeLimit():
        while not (await talk.client.read_process("spawn-1")).text:
            await asyncio.sleep(0.01)
    await talk.client.submit(Rewind("p1"))
    await talk.until_live(Rewound)
    assert [event.id for event in talk.all(SpawnFinished)] == ["spawn-2", "spawn-1"]
    assert not talk.all(PermissionAsked)
    assert not (workspace / "made.txt").exists()


async def test_a_moved_command_does_not_overwrite_what_changed_meanwhile(
    start: Start, workspace: Path, gate: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    command = "sh wait.sh; echo two >a.txt"
    talk = await start([run(command), say("Moved."), say("I see.")])
    await move(talk, await talk.submit("go"))
    (workspace / "a.txt").write_text("mine\n")
    gate.touch()
    await talk.until_end("spawn-1-ended")
    assert "Conflict: a.txt" in talk.all(TurnStarted)[-1].text
    assert (workspace / "a.txt").read_text() == "mine\n"
    assert any("What the command wrote is in" in event.text for event in talk.all(Warned))


async def test_the_end_of_the_session_discards_what_a_moved_command_wrote(start: Start, workspace: Path) -> None:
    secret = "sk-ant-" + "k3y" * 12
    command = f": {secret}; echo half >made.txt; echo begun; sleep 1000"
    talk = await start([run(command), say("Moved.")], env={"OTHER_API_KEY": secret})
    await move(talk, await talk.submit("go"))
    await talk.client.close()
    left = [envelope.event async for envelope in talk.remaining()]
    (finished,) = [event for event in left if isinstance(event, SpawnFinished)]
    assert finished.output == "begun\n[What it had changed was discarded, because the session ended.]"
    assert not (workspace / "made.txt").exists()
    again = await start([say("I see.")], resume=(await talk.client.get_info()).session)
    await again.say("What about it?")
    (added,) = await again.recorded_events(ContextAdded)
    assert secret not in added.note
    told = again.server.requests[-1].body.decode()
    assert "Stopped: the background process spawn-1" in told
    assert "[What it had changed was discarded, because the session ended.]" in told.rpartition("tool_result")[2]


async def test_a_command_without_a_view_is_moved_too(start: Start, workspace: Path, gate: Path) -> None:
    command = "sh wait.sh; echo new >made.txt; exit 3"
    talk = await start([run(command), say("Moved."), say("I see.")], config=WITHOUT_VIEWS)
    await move(talk, await talk.submit("go"))
    gate.touch()
    await talk.until_end("spawn-1-ended")
    assert talk.all(TurnStarted)[-1].text.startswith("Background process spawn-1 (sh wait.sh;")
    assert "finished with exit code 3" in talk.all(TurnStarted)[-1].text
    assert (workspace / "made.txt").read_text() == "new\n"


async def test_a_command_of_the_user_is_moved_and_its_end_starts_no_turn(start: Start, gate: Path) -> None:
    talk = await start([say("ok")])
    assert not await talk.client.submit(MoveToBackground()), "nothing runs"
    await talk.client.submit(RunUserShell("r", "sh wait.sh"))
    await talk.until_live(ToolProgressed)
    assert await talk.client.submit(MoveToBackground())
    await talk.until_live(ContextAdded)
    assert talk.all(ContextAdded)[0].content == "begun\n(sent to the background as spawn-1, where it goes on)"
    gate.touch()
    await talk.until_live(SpawnFinished)
    await wait_until_settled(talk)
    assert (await talk.client.read_process("spawn-1")).text == "begun\ndone\n"
    await talk.say("what happened?")
    assert len(talk.all(TurnStarted)) == 1
    assert "Background process spawn-1" in request_text(talk, 0)


async def test_the_request_about_a_moved_command_waits_beside_others(start: Start, workspace: Path, gate: Path) -> None:
    script = [run("sh wait.sh; echo new >made.txt"), say("Moved."), run("echo more >more.txt"), say("Done."), say("ok")]
    talk = await start(script, **ASKING)
    await move(talk, await talk.submit("go"))
    gate.touch()
    await talk.until_live(PermissionAsked)
    first = talk.all(PermissionAsked)[0]
    talk.answers = [AnswerPermission("", True)]
    assert (await talk.say("more")).text == "Done."
    await talk.client.submit(Prompt("steered", "and more", delivery="steer"))
    await talk.until_end("steered")
    assert await talk.client.submit(AnswerPermission(first.ask_id, True)), "it still waits for its answer"
    await talk.until_live(FilesChanged)
    assert (workspace / "made.txt").exists()
    assert (workspace / "more.txt").exists()
