"""The workspace layer: sessions with the same folder, settings and environment share servers; others do not."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.config import Options
from odin.core.call_events import QuestionsAsked, ToolEnded, ToolProgressed
from odin.core.event import AnyEvent, TurnEnded, Warned
from odin.core.op import AnswerQuestions, ControlLanguageServer, ControlServers, Prompt
from odin.engine.client import LocalClient
from odin.host.manager import SessionManager
from odin.testing import ScriptedServer, Turn, call, say
from odin.testing.script import SeenRequest
from tests.lsp.conftest import FAKE_SERVER, LONG_WAITS
from tests.mcp_client.test_session import PROGRAM, configure, make_server_settings
from tests.sandbox.processes import list_helpers
from tests.waiting import TimeLimit, until


def answer(request: SeenRequest) -> Turn:
    """Do what the prompt says: the name of a tool of the server tiny, or the file that is written with an error."""
    last = str(request.json["messages"][-1])
    if "tool_result" in last:
        return say("done")
    word = last.partition("<do>")[2].partition("</do>")[0]
    if word.endswith(".txt"):
        return call("WriteFile", {"file_path": word, "content": "BAD\n"})
    return call(f"mcp__tiny__{word}", {"text": '{"n": {"type": "integer"}}'} if word == "ask" else {"text": "hi"})


class Session:
    """A session that gives `answers` to questions."""

    def __init__(self, client: LocalClient) -> None:
        self.client = client
        self.events: list[AnyEvent] = []
        self.answers: tuple[tuple[str, ...], ...] = (("7",),)
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def do(self, what: str) -> str:
        """Return the result of the call that the model makes."""
        stream = self.client.stream_events()
        await self.client.submit(Prompt(os.urandom(4).hex(), f"<do>{what}</do>"))
        async with TimeLimit():
            async for envelope in stream:
                self.events.append(envelope.event)
                if isinstance(envelope.event, QuestionsAsked):
                    await self.may_answer.wait()
                    await self.client.submit(AnswerQuestions(envelope.event.ask_id, self.answers))
                elif isinstance(envelope.event, TurnEnded):
                    return self.all(ToolEnded)[-1].text
        raise AssertionError

    def all(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[Any]) -> None:
        await until(lambda: self.all(kind))


Open = Callable[..., Awaitable[Session]]


@pytest.fixture
async def open_session(workspace: Path, home: Path) -> AsyncIterator[Open]:
    manager = SessionManager()
    with ScriptedServer(answer) as model:

        async def open_one(env: dict[str, str] | None = None, **options: Any) -> Session:
            given: dict[str, Any] = {"cwd": str(workspace), "can_ask": True, "timing": LONG_WAITS, **options}
            variables = {**os.environ, **model.env("anthropic"), **(env or {})}
            return Session(await manager.open(Options(env=variables, yes=True, trust=True, **given)))

        yield open_one
        assert await manager.close(20)
    assert not list_programs(PROGRAM, FAKE_SERVER)


def list_programs(*names: str) -> list[int]:
    return [pid for pid, line in list_helpers().items() if any(name in line for name in names)]


async def wait_for_programs(name: str, count: int) -> None:
    await until(lambda: len(list_programs(name)) == count)


def configure_language_server(home: Path) -> None:
    server = {"command": sys.executable, "args": ["-I", "-S", FAKE_SERVER, "pull"], "file_types": [".txt"]}
    settings = {"lsp": "configured", "lsp_servers": {"fake": server}, "sandbox": {"backend": "off"}}
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "odinconfig.json").write_text(json.dumps(settings))


async def test_sessions_share_a_server_until_the_last_one_is_closed(open_session: Open, home: Path) -> None:
    configure(home, {"tiny": make_server_settings()})
    one, two = await open_session(), await open_session()
    assert await asyncio.gather(one.do("echo"), two.do("echo")) == ["echo: hi", "echo: hi"]
    shared = list_programs(PROGRAM)
    assert len(shared) == 1
    await one.client.close()
    assert await two.do("echo") == "echo: hi"
    late = await open_session()
    assert (await late.client.get_info()).servers[0].state == "ready"
    assert await late.do("echo") == "echo: hi"
    assert list_programs(PROGRAM) == shared
    await two.client.close()
    await late.client.close()
    assert not list_programs(PROGRAM)


async def test_a_question_reaches_only_the_session_whose_call_caused_it(open_session: Open, home: Path) -> None:
    configure(home, {"tiny": make_server_settings()})
    one, two = await open_session(), await open_session()
    one.may_answer.clear()
    first = asyncio.create_task(one.do("ask"))
    await one.wait_for(QuestionsAsked)
    two.answers = (("8",),)
    second = asyncio.create_task(two.do("ask"))  # waits in the pipe: the server answers one call after the other
    one.may_answer.set()
    given = [json.loads(text)["content"] for text in await asyncio.gather(first, second)]
    assert given == [{"n": 7}, {"n": 8}]
    assert [len(session.all(QuestionsAsked)) for session in (one, two)] == [1, 1]


async def test_a_question_that_two_sessions_may_have_caused_is_declined(open_session: Open, home: Path) -> None:
    configure(home, {"tiny": make_server_settings(fault="ambiguous")})
    one, two = await open_session(), await open_session()
    asking = asyncio.create_task(one.do("ask"))
    await one.wait_for(ToolProgressed)
    assert await two.do("echo") == "echo: hi"
    assert json.loads(await asking) == {"action": "decline"}
    for session in (one, two):
        assert not session.all(QuestionsAsked)
        assert any("cannot say which of them it asks" in event.text for event in session.all(Warned))


async def test_a_change_of_tools_reaches_every_session(open_session: Open, home: Path) -> None:
    configure(home, {"tiny": make_server_settings()})
    one, two = await open_session(), await open_session()
    await one.do("echo")
    await two.do("change")
    async with TimeLimit():
        while [(await session.client.get_info()).servers[0].tools for session in (one, two)] != [1, 1]:
            await asyncio.sleep(0.01)
    assert await asyncio.gather(one.do("fresh"), two.do("fresh")) == ["fresh: hi", "fresh: hi"]


async def test_a_server_is_enabled_for_one_session_and_connected_again_for_all(open_session: Open, home: Path) -> None:
    configure(home, {"tiny": {**make_server_settings(), "manual": True}})
    one, two = await open_session(), await open_session()

    async def list_states() -> list[str]:
        return [(await session.client.get_info()).servers[0].state for session in (one, two)]

    await one.client.submit(ControlServers("enable", ("tiny",)))
    assert await one.do("echo") == "echo: hi"
    assert await list_states() == ["ready", "disabled"]
    await two.client.submit(ControlServers("enable", ("tiny",)))
    await one.client.submit(ControlServers("disable", ("tiny",)))
    assert await two.do("echo") == "echo: hi"
    assert await list_states() == ["disabled", "ready"]
    before = list_programs(PROGRAM)
    await two.client.submit(ControlServers("reconnect", ("tiny",)))
    assert await two.do("echo") == "echo: hi"
    assert list_programs(PROGRAM) != before
    await two.client.submit(ControlServers("disable", ("tiny",)))
    assert not list_programs(PROGRAM)


async def test_a_server_that_failed_is_tried_again_by_the_next_session(open_session: Open, home: Path) -> None:
    program = home / "server"
    configure(home, {"tiny": {"command": str(program), "args": ["{}"]}})
    one = await open_session()
    await one.do("echo")
    assert (await one.client.get_info()).servers[0].state == "failed"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {PROGRAM}\n")
    program.chmod(0o755)
    two = await open_session()
    await two.do("echo")  # its first request cannot know the tools yet
    async with TimeLimit():
        while (await two.client.get_info()).servers[0].state != "ready":
            await asyncio.sleep(0.01)
    assert await two.do("echo") == await one.do("echo") == "echo: hi"
    assert len(list_programs(PROGRAM)) == 1
    assert len([event for event in one.all(Warned) if "cannot be used" in event.text]) == 1


@pytest.mark.parametrize("other", ["variable", "folder", "flag", "settings", "unshared"])
async def test_sessions_that_differ_share_no_server(open_session: Open, home: Path, tmp_path: Path, other: str) -> None:
    configure(home, {"tiny": {**make_server_settings(), "shared": other != "unshared"}})
    one, more = await open_session(), dict[str, Any]()
    if other == "variable":
        more = {"env": {"WHO": "two"}}
    elif other == "folder":
        (tmp_path / "elsewhere").mkdir()
        more = {"cwd": str(tmp_path / "elsewhere")}
    elif other == "flag":
        more = {"max_turns": 50}
    elif other == "settings":
        configure(home, {"tiny": make_server_settings()}, wait_s=9)
    two = await open_session(**more)
    await asyncio.gather(one.do("echo"), two.do("echo"))
    assert len(list_programs(PROGRAM)) == 2
    await one.client.close()
    assert await two.do("echo") == "echo: hi"


async def test_sessions_share_a_language_server_and_each_may_disable_it(
    open_session: Open, workspace: Path, home: Path
) -> None:
    configure_language_server(home)
    one, two = await open_session(), await open_session()
    for session, name in ((one, "a.txt"), (two, "b.txt")):
        assert "bad word" in await session.do(str(workspace / name))
    shared = list_programs(FAKE_SERVER)
    assert len(shared) == 1
    assert [(await session.client.get_info()).language_servers[0].errors for session in (one, two)] == [2, 2]
    await one.client.submit(ControlLanguageServer("disable"))
    assert "bad word" not in await one.do(str(workspace / "c.txt"))
    assert "bad word" in await two.do(str(workspace / "d.txt"))
    states = [(await session.client.get_info()).language_servers[0].status for session in (one, two)]
    assert states == ["disabled", "ready"]
    await one.client.submit(ControlLanguageServer("enable"))
    assert "bad word" in await one.do(str(workspace / "e.txt"))
    await two.client.close()
    assert "bad word" in await one.do(str(workspace / "f.txt"))
    assert list_programs(FAKE_SERVER) == shared
    await one.client.close()
    await wait_for_programs(FAKE_SERVER, 0)


async def test_a_language_server_that_is_not_used_ends_and_starts_again(
    open_session: Open, workspace: Path, home: Path
) -> None:
    configure_language_server(home)
    session = await open_session(timing=replace(LONG_WAITS, lsp_unused_s=0.01))
    for name in ("a.txt", "b.txt"):
        assert "bad word" in await session.do(str(workspace / name))
        await wait_for_programs(FAKE_SERVER, 0)
        assert (await session.client.get_info()).language_servers[0].status == "idle"


async def test_files_are_found_after_another_session_is_closed(open_session: Open, workspace: Path, home: Path) -> None:
    (workspace / "apple.py").write_text("")
    one, two = await open_session(), await open_session()
    searching = asyncio.create_task(one.client.find_files("apple"))
    await asyncio.sleep(0)
    await one.client.close()
    await searching
    async with TimeLimit():
        while await two.client.find_files("apple") != ("apple.py",):
            await asyncio.sleep(0.01)
