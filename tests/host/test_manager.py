"""The manager of sessions: several clients per session, and the operations of programs that do not name one."""

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from odin.config import Options
from odin.core.client import Client
from odin.core.errors import AgentShutdown, SessionNotFound, UsageError
from odin.core.event import Envelope, TurnEnded
from odin.core.op import AnswerPermission, Interrupt, Prompt
from odin.engine.client import LocalClient
from odin.host.manager import NEW_TITLE, SessionManager, get_manager
from odin.session.log import read_log
from odin.testing import ScriptedServer, call, say
from tests.waiting import LIMIT_S, TimeLimit


def make_options(server: ScriptedServer, workspace: Path, **more: object) -> Options:
    return Options(env={**os.environ, **server.env("anthropic")}, cwd=str(workspace), **more)  # pyright: ignore[reportArgumentType]


async def ask(client: Client, text: str) -> TurnEnded:
    events = client.stream_events()
    await client.submit(Prompt(os.urandom(4).hex(), text))
    async with TimeLimit():
        async for envelope in events:
            if isinstance(envelope.event, TurnEnded):
                return envelope.event
    raise AssertionError("the session ended")


async def hear(client: Client) -> TurnEnded:
    async for envelope in client.stream_events():
        if isinstance(envelope.event, TurnEnded):
            return envelope.event
    raise AssertionError("the session ended")


async def test_a_session_is_opened_once_and_closed_with_its_last_client(workspace: Path) -> None:
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        manager = SessionManager()
        first = await manager.open(make_options(server, workspace))
        await ask(first, "a")
        name = first.session.id
        second, third = await asyncio.gather(
            *(manager.open(make_options(server, workspace, resume=name)) for _ in range(2))
        )
        assert first.session is second.session is third.session
        assert manager.list_open() == (first.session,)
        listening = asyncio.ensure_future(hear(second))
        await asyncio.sleep(0)
        assert (await ask(first, "b")).text == (await listening).text == "two"
        await first.close()
        with pytest.raises(AgentShutdown):
            await first.submit(Prompt("late", "x"))
        await third.close()
        assert (await ask(second, "c")).text == "three"
        await second.close()
        assert manager.list_open() == ()
        with pytest.raises(SessionNotFound, match="is not open"):
            manager.attach(name)


async def test_each_client_has_its_own_observer_and_its_streams_end_with_it(workspace: Path) -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        manager = SessionManager()
        one = await manager.open(make_options(server, workspace))
        two = manager.attach(one.session.id, answers=True)
        heard: dict[str, list[str]] = {"one": [], "two": []}
        one.observe_activity(lambda event: heard["one"].append(event.activity))
        two.observe_activity(lambda event: heard["two"].append(event.activity))
        stream = two.stream_events()
        await ask(one, "a")
        assert heard["one"] == heard["two"] != []
        await two.detach()
        assert [envelope async for envelope in stream][-1:] != []
        before = list(heard["two"])
        await ask(one, "b")
        assert heard["two"] == before
        await one.close()


async def test_file_searches_of_two_clients_do_not_end_each_other(workspace: Path) -> None:
    (workspace / "apple.py").write_text("")
    (workspace / "berry.py").write_text("")
    with ScriptedServer([]) as server:
        manager = SessionManager()
        one = await manager.open(make_options(server, workspace))
        two = manager.attach(one.session.id)
        async with TimeLimit():
            found: list[tuple[str, ...]] = []
            while found != [("apple.py",), ("berry.py",)]:
                found = list(await asyncio.gather(one.find_files("apple"), two.find_files("berry")))
        await one.close()
        await two.close()


async def test_only_clients_with_the_right_answer(workspace: Path) -> None:
    with ScriptedServer([call("ExecuteCommand", {"command": "touch x"}), say("done")]) as server:
        manager = SessionManager()
        user = await manager.open(make_options(server, workspace, can_ask=True))
        guest = manager.attach(user.session.id)
        with pytest.raises(UsageError, match="not answer"):
            await guest.submit(AnswerPermission("ask-1", True))
        await guest.close()
        assert manager.list_open() == (user.session,)
        await user.close()


async def test_unused_sessions_are_closed_oldest_first(workspace: Path) -> None:
    with ScriptedServer([say("x")] * 3) as server:
        manager = SessionManager()
        clients: list[LocalClient] = []
        for _ in range(3):
            clients.append(client := await manager.open(make_options(server, workspace)))
            client.session.is_kept = True
            await ask(client, "a")
        for client in clients[:2]:
            await client.close()
        assert len(manager.list_open()) == 3
        await manager.close_unused(2)
        assert manager.list_open() == tuple(client.session for client in clients[1:])
        assert await manager.close(10)
        assert manager.list_open() == ()


async def test_programs_use_the_current_session_without_naming_it(workspace: Path) -> None:
    with ScriptedServer([say("hello"), say("again")]) as server:
        manager, options = SessionManager(), make_options(server, workspace)
        first = await manager.get_current(options)
        assert (await first.snapshot()).title == NEW_TITLE
        await ask(first, "hi")
        name = first.session.id
        other = await manager.create(options, "Other")
        assert (await manager.get_current(options)).session is other.session
        assert not manager.set_current(options, "unknown")
        assert manager.set_current(options, name)
        again = await manager.get_current(options)
        assert again.session is first.session

        assert [message.content for message in manager.get_messages(options, name)] == ["hi", "hello"]
        await manager.add_message(options, name, "user", "I like tea.")
        await manager.add_message(options, name, "assistant", "Noted.")
        assert (await ask(first, "What do I like?")).text == "again"
        said = [str(message["content"]) for message in server.requests[-1].json["messages"]]
        assert "I like tea." in said[2] and "Noted." in said[3] and "What do I like?" in said[4]
        await manager.clear_messages(options, name)
        assert manager.get_messages(options, name) == []
        assert await manager.close(10)
        manager.delete(options, name)
        fresh = await manager.get_current(options)
        assert fresh.session.id != name
        await fresh.close()


async def test_a_session_that_is_being_closed_can_be_opened_again(workspace: Path) -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        manager = SessionManager()
        first = await manager.open(make_options(server, workspace))
        await ask(first, "a")
        closing = asyncio.ensure_future(first.close())
        await asyncio.sleep(0)
        again = await manager.open(make_options(server, workspace, resume=first.session.id))
        assert await closing and again.session is not first.session
        assert (await ask(again, "b")).text == "two"
        await again.close()


async def test_reading_a_long_log_does_not_stop_other_sessions(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def read_slowly(path: Path) -> Iterator[Envelope]:
        assert go_on.wait(LIMIT_S), "the other session waits for the log of this one"
        return read_log(path)

    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        manager = SessionManager()
        first = await manager.open(make_options(server, workspace))
        await ask(first, "a")
        await first.close()
        other = await manager.open(make_options(server, workspace))
        monkeypatch.setattr("odin.app.workspace.read_log", read_slowly)
        given_up, opening = (
            asyncio.ensure_future(manager.open(make_options(server, workspace, resume=first.session.id)))
            for _ in range(2)
        )
        assert (await ask(other, "b")).text == "two"
        given_up.cancel()  # what it has read is closed, and the next one can open the session
        await asyncio.sleep(0)
        go_on.set()
        again = await opening
        assert (await ask(again, "c")).text == "three"
        assert await manager.close(10)


async def test_a_slow_disk_stops_only_the_session_that_writes(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, reached = threading.Event(), threading.Event()

    def sync_slowly(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(workspace)):
            reached.set()
            assert go_on.wait(LIMIT_S), "the other session waits for the file of this one"

    script = [call("WriteFile", {"path": str(workspace / "a.txt"), "content": "new"}), say("two"), say("one")]
    with ScriptedServer(script) as server:
        manager = SessionManager()
        writer, other = [await manager.open(make_options(server, workspace, yes=True)) for _ in range(2)]
        monkeypatch.setattr(os, "fsync", sync_slowly)
        writing = asyncio.ensure_future(ask(writer, "Write it."))
        assert await asyncio.to_thread(reached.wait, 20)
        assert (await ask(other, "Hello.")).text == "two"
        assert not (workspace / "a.txt").exists()
        await writer.submit(Interrupt())  # it takes effect when the write is over: a file is never written later
        await asyncio.sleep(0)
        assert not writing.done()
        go_on.set()
        assert (await writing).reason == "interrupted"
        assert (workspace / "a.txt").read_text() == "new"
        assert await manager.close(10)


def test_an_ended_event_loop_is_forgotten_with_its_open_sessions(workspace: Path) -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def leave_open(server: ScriptedServer) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert get_manager() is get_manager()
        await get_manager().open(make_options(server, workspace))

    with ScriptedServer([]) as server:
        for _ in range(2):
            asyncio.run(leave_open(server))
    gc.collect()
    assert loops[0]() is None
