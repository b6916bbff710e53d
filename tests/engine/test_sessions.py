"""Switching sessions within one process: new, resume, fork, and the failures on the way."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odin.config import Options
from odin.core.errors import DeleteCurrentSession, OdinError, SessionBusy, SessionLocked, SessionNotFound, UsageError
from odin.core.event import Envelope, SessionSwitched, TurnEnded
from odin.core.op import Prompt, SetPermissionMode, SetTitle
from odin.host.workspace_sessions import WorkspaceSessions, open_workspace_sessions
from odin.session.log import read_log
from odin.session.store import SessionStore
from odin.testing import ScriptedServer, call, fault, reply, say
from tests.sandbox.processes import is_running
from tests.waiting import LIMIT_S, TimeLimit, until, wait_until

from .conftest import FAST, WITHOUT_VIEWS
from .hook_programs import HookKit, claude_hook, new_kit

Open = Callable[..., Awaitable[tuple[WorkspaceSessions, ScriptedServer]]]


@pytest.fixture
def kit(tmp_path: Path) -> HookKit:
    return new_kit(tmp_path)


@pytest.fixture
async def open_(workspace: Path, home: Path) -> AsyncIterator[Open]:
    """open_(script) opens a session switcher that the script answers; several can be open at once."""
    things: list[tuple[WorkspaceSessions, ScriptedServer]] = []

    async def begin(
        script: Any, *, config: dict[str, Any] | None = None, api: Any = "anthropic", **options: Any
    ) -> tuple[WorkspaceSessions, ScriptedServer]:
        folder = home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "odinconfig.json").write_text(json.dumps({**FAST, **(config or {})}))
        server = ScriptedServer(script)
        server.start()
        env = {**os.environ, **server.env(api)}
        host = await open_workspace_sessions(Options(env=env, cwd=str(workspace), yes=True, **options))
        things.append((host, server))
        return host, server

    yield begin
    for host, server in things:
        await host.close()
        server.stop()


async def ask(host: WorkspaceSessions, text: str) -> TurnEnded:
    name = os.urandom(4).hex()
    events = host.client.stream_events()
    await host.client.submit(Prompt(name, text))
    async with TimeLimit():
        async for envelope in events:
            if isinstance(envelope.event, TurnEnded) and envelope.event.id == name:
                return envelope.event
    raise AssertionError("the events ended before the turn did")


async def get_session(host: WorkspaceSessions) -> str:
    return (await host.client.get_info()).session


def open_store(home: Path, workspace: Path) -> SessionStore:
    return SessionStore(home / ".local/state/odin", str(workspace))


async def wait_for_switch(events: AsyncIterator[Envelope]) -> SessionSwitched:
    async with TimeLimit():
        async for envelope in events:
            if isinstance(envelope.event, SessionSwitched):
                return envelope.event
    raise AssertionError("the events ended before the session was switched")


async def test_new_session_is_empty_and_background_processes_stop(open_: Open, workspace: Path) -> None:
    service = f"sleep {2000 + os.getpid() / 1e7:.7f}"
    todos = call("TodoWrite", {"todos": [{"id": "1", "content": "do it", "status": "pending"}]})
    host, server = await open_([todos, call("Spawn", {"command": service}), say("one"), say("two")])
    assert (await ask(host, "xylem")).reason == "end_turn"
    wait_until(lambda: is_running(service))
    left, before = host.client, await get_session(host)
    events = left.stream_events()
    (workspace / "ODIN.md").write_text("Always speak of xylophones.")
    await host.client.submit(SetPermissionMode("acceptEdits"))
    entered = await host.open_new()
    assert entered is host.client is not left
    assert not is_running(service)
    shot = await host.client.snapshot()
    assert (shot.messages, shot.todos, shot.usage.total, shot.title) == ((), (), 0, "")
    assert (await host.client.get_info()).permission_mode == "default"
    assert await wait_for_switch(events) == SessionSwitched("new", await get_session(host))
    assert await get_session(host) != before
    await ask(host, "again")
    sent = server.requests[-1].body.decode()
    assert "xylem" not in sent
    assert "xylophones" in sent, "instructions are read again for a new session"
    assert server.rejected == []


async def test_both_sessions_report_the_switch(open_: Open) -> None:
    host, _ = await open_([say("one"), say("two")])
    await ask(host, "first")
    first = await get_session(host)
    await host.open_new()
    await ask(host, "second")
    left = host.client.stream_events()
    entered = (await host.resume(first)).stream_events()
    assert await wait_for_switch(left) == await wait_for_switch(entered) == SessionSwitched("resume", first)


async def test_resume_continues_the_conversation(open_: Open) -> None:
    host, server = await open_([say("one"), say("two"), say("three")])
    await ask(host, "mend the login page")
    first = await get_session(host)
    await host.open_new()
    await ask(host, "something else")
    await host.resume("login page")
    assert await get_session(host) == first
    assert [turn.body for turn in (await host.client.snapshot()).messages] == ["mend the login page"]
    await ask(host, "go on")
    assert [turn.body for turn in (await host.client.snapshot()).messages] == ["mend the login page", "go on"]
    assert "something else" not in server.requests[-1].body.decode()
    assert server.rejected == []


async def test_failed_resume_leaves_the_current_session_usable(open_: Open, home: Path, workspace: Path) -> None:
    host, server = await open_([say("one"), say("two"), say("three")])
    await ask(host, "first")
    taken = await get_session(host)
    await host.open_new()
    await ask(host, "second")
    here, client = await get_session(host), host.client
    other = open_store(home, workspace).open(taken)
    other.hold()
    for said, error in ((taken, SessionLocked), ("nope", SessionNotFound), ("", SessionNotFound), (here, UsageError)):
        with pytest.raises(error):
            await host.resume(said)
        assert host.client is client
    other.path.write_bytes(b"damaged\n")
    with pytest.raises(OdinError):
        await host.resume(taken)
    other.close()
    assert (await ask(host, "third")).reason == "end_turn"
    assert [turn.body for turn in (await client.snapshot()).messages] == ["second", "third"]
    assert server.rejected == []


async def test_failed_resume_releases_the_lock(open_: Open, home: Path, workspace: Path) -> None:
    host, _ = await open_([say("one"), say("two")])
    await ask(host, "first")
    first = await get_session(host)
    await host.open_new()
    await ask(host, "second")
    (home / ".config/odin/odinconfig.json").write_text("{")
    client = host.client
    with pytest.raises(OdinError):
        await host.resume(first)
    assert host.client is client
    log = open_store(home, workspace).open(first)
    log.hold()
    log.close()


async def test_busy_session_cannot_be_left(open_: Open, workspace: Path) -> None:
    wait = call("ExecuteCommand", {"command": "touch begun; until [ -e go ]; do sleep 0.02; done"})
    host, _ = await open_([wait, say("done")], config=WITHOUT_VIEWS)
    running_turn = asyncio.create_task(ask(host, "wait"))
    await until((workspace / "begun").exists)
    for act in (host.open_new(), host.resume("x"), host.fork()):
        with pytest.raises(SessionBusy):
            await act
    (workspace / "go").touch()
    assert (await running_turn).reason == "end_turn"


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_fork_at_every_prompt_can_be_continued(open_: Open, home: Path, workspace: Path, api: Any) -> None:
    """Forks after tools, parallel calls and a failure; the strict server accepts each continuation."""
    (workspace / "a.txt").write_text("hello\n")
    read = call("Read", {"file_path": str(workspace / "a.txt")})
    both = reply("Reading.", [read, call("LS", {"path": str(workspace)})])
    script = [read, say("one"), both, say("two"), fault(400), say("three"), *[say("after")] * 20]
    host, server = await open_(script, api=api)
    await host.client.submit(SetTitle("Letters"))  # else Odin records one at some time after the first turn
    for text in ("xaleph", "xbeth", "xfails", "xlast"):
        await ask(host, text)
    original = await get_session(host)
    path = open_store(home, workspace).get_path(original)
    turns = (await host.client.snapshot()).messages
    assert [turn.body for turn in turns] == ["xaleph", "xbeth", "xfails", "xlast"]
    before = path.read_bytes()
    for index, turn in enumerate(turns):
        _, draft = await host.fork(turn.id)
        assert draft == turn.body
        assert [item.body for item in (await host.client.snapshot()).messages] == [item.body for item in turns[:index]]
        asked = len(server.requests)
        assert (await ask(host, f"{draft} differently")).reason == "end_turn"
        assert len(server.requests) > asked
        sent = server.requests[-1].body.decode()
        assert all((item.body in sent) is (place < index) for place, item in enumerate(turns) if item.body != draft)
        assert path.read_bytes() == before, "the original is untouched"
        await host.resume(original)
    assert server.rejected == []
    listed = {item.id: item for item in await host.list_sessions()}
    assert sorted(item.forked_from for item in listed.values() if item.forked_from) == [original] * len(turns)


async def test_fork_of_an_empty_session_is_refused(open_: Open) -> None:
    host, _ = await open_([say("one")])
    with pytest.raises(UsageError, match="nothing to fork"):
        await host.fork()
    await ask(host, "first")
    with pytest.raises(UsageError, match="no prompt"):
        await host.fork("unknown")
    client, draft = await host.fork()
    assert draft == ""
    assert [turn.body for turn in (await client.snapshot()).messages] == ["first"]


async def test_export_of_an_empty_session_is_refused(open_: Open, tmp_path: Path) -> None:
    host, _ = await open_([say("one")])
    with pytest.raises(UsageError, match="nothing to export"):
        await host.export(await get_session(host), "markdown", str(tmp_path / "out.md"))
    await ask(host, "first")
    written = await host.export(await get_session(host), "markdown", str(tmp_path / "out.md"))
    assert "first" in Path(written).read_text()


async def test_rename_search_and_delete(open_: Open, home: Path, workspace: Path) -> None:
    host, _ = await open_([say("The answer is marmalade."), say("two")])
    await ask(host, "first")
    first = await get_session(host)
    await host.rename(first, "  A\ngood  title ")
    assert (await host.client.snapshot()).title == "A good title"
    with pytest.raises(DeleteCurrentSession):
        await host.delete(first)
    await host.open_new()
    await ask(host, "second")
    (match,) = await host.search("marmalade")
    assert (match.session.id, match.session.title, match.where) == (first, "A good title", "answer")
    await host.rename(first, "Another")
    assert {item.title for item in await host.list_sessions() if item.id == first} == {"Another"}
    events = list(read_log(open_store(home, workspace).get_path(first)))
    assert [item.seq for item in events] == list(range(len(events)))
    locked = {item.id: bool(item.locked) for item in await host.list_sessions()}
    assert locked == {first: False, await get_session(host): True}
    await host.delete(first)
    assert [item.id for item in await host.list_sessions()] == [await get_session(host)]
    with pytest.raises(SessionNotFound):
        await host.delete(first)


async def test_session_is_restored_before_its_first_hook_runs(
    open_: Open, kit: HookKit, workspace: Path, home: Path
) -> None:
    todos = call("TodoWrite", {"todos": [{"id": "1", "content": "do it", "status": "pending"}]})
    hooks = {"hooks": {"SessionStart": [claude_hook(kit.script_printing("The hook has spoken."))]}}
    host, server = await open_([todos, say("one"), say("two"), say("three")], config=hooks)
    await ask(host, "first")
    first = await get_session(host)
    await host.open_new()
    await host.resume(first)
    assert [item["source"] for item in kit.inputs()] == ["startup"]
    shot = await host.client.snapshot()
    assert ([turn.body for turn in shot.messages], [todo.content for todo in shot.todos]) == (["first"], ["do it"])
    await ask(host, "go on")
    assert [item["source"] for item in kit.inputs()] == ["startup", "resume"]
    assert kit.inputs()[1]["session_id"] == first
    last = server.requests[-1].body.decode()
    assert last.index("first") < last.rindex("The hook has spoken.")
    await host.open_new()
    await ask(host, "begin anew")
    assert [item["source"] for item in kit.inputs()] == ["startup", "resume", "clear"]


async def test_session_of_a_killed_process_can_be_opened_at_once(home: Path, workspace: Path) -> None:
    """Its command, background process and sandbox live on for a moment; none of them holds the lock."""
    slow = "echo $$ > pids; touch begun; sleep 600"
    (home / ".config/odin").mkdir(parents=True, exist_ok=True)
    (home / ".config/odin/odinconfig.json").write_text(json.dumps(WITHOUT_VIEWS))
    script = [call("Spawn", {"command": "sleep 601"}), call("ExecuteCommand", {"command": slow}), say("done")]
    with ScriptedServer(script) as server:
        odin = subprocess.Popen(
            [sys.executable, "-I", "-m", "odin", "-p", "wait", "-y"],
            cwd=workspace,
            env={**os.environ, **server.env("anthropic")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: (workspace / "begun").exists())
            store = open_store(home, workspace)
            (entry,) = store.list()
            with pytest.raises(SessionLocked, match=f"PID {odin.pid} "):
                store.open(entry.id).hold()
            odin.send_signal(signal.SIGKILL)
            odin.wait(LIMIT_S)
            log = store.open(entry.id)
            log.hold()
            log.close()
        finally:
            odin.kill()
            odin.wait(LIMIT_S)
