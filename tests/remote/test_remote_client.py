"""A session over HTTP: what a remote client sees and does is what a local one sees and does."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from odin.config import Options
from odin.config.paths import locate_socket
from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import Envelope, TurnEnded, WorkEnded
from odin.core.op import Answer, Interrupt, Prompt
from odin.host.manager import SessionManager
from odin.remote.local import connect_local
from odin.remote.sessions import RemoteSessions
from odin.server.local import LocalListener
from odin.session.lock import read_start_time
from odin.testing import ScriptedServer, call, say
from tests.waiting import TimeLimit


def make_options(server: ScriptedServer, workspace: Path, **more: object) -> Options:
    return Options(env={**os.environ, **server.env("anthropic")}, cwd=str(workspace), **more)  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def share(options: Options) -> AsyncGenerator[tuple[Client, RemoteSessions]]:
    """Open a session, and attach to it over the socket of the process."""
    manager = SessionManager()
    state = Path(os.environ["HOME"], ".local/state/odin")
    async with LocalListener(manager, options, state):
        local = await manager.open(options)
        connection = connect_local(locate_socket(state, os.getpid(), read_start_time(os.getpid())), "the other one")
        assert connection is not None
        remote = RemoteSessions(connection, local.session.id)
        yield local, remote
        await remote.close()
        await local.close()


async def collect(client: Client, after: int | None = -1) -> list[Envelope]:
    found: list[Envelope] = []
    async with TimeLimit():
        async for envelope in client.stream_events(after):
            found.append(envelope)
            if isinstance(envelope.event, TurnEnded):
                break
    return found


async def test_a_remote_client_prompts_and_sees_the_events_of_the_log(workspace: Path) -> None:
    with ScriptedServer([say("one")]) as server:
        async with share(make_options(server, workspace)) as (local, remote):
            watching = asyncio.create_task(collect(remote.client))
            assert await remote.client.submit(Prompt("p1", "hello"))
            seen = await watching
            logged = await collect(local)
            durable = [envelope for envelope in seen if envelope.event.durable]
            assert durable == logged
            assert encode(await remote.client.snapshot()) == encode(await local.snapshot())
            assert encode(await remote.client.get_info()) == encode(await local.get_info())


async def test_a_client_that_joins_or_comes_back_learns_that_nothing_works(workspace: Path) -> None:
    """The end of all work is in no log. A stream is open before the snapshot is taken, so that it is in one of them."""
    gate = threading.Event()
    with ScriptedServer([say("one").hold(gate)]) as server:
        async with share(make_options(server, workspace)) as (local, remote):
            await local.submit(Prompt("p1", "hello"))
            await asyncio.to_thread(server.wait_for, 1)
            events: Any = remote.client.stream_events()
            assert (await remote.client.snapshot()).is_working
            assert events._is_open.is_set()
            gate.set()
            async with TimeLimit("the end of all work"):
                seen = [envelope async for envelope in until_work_ends(events)]
                last = max(envelope.seq for envelope in seen)
                again = [envelope async for envelope in until_work_ends(remote.client.stream_events(after=last))]
            assert isinstance(again[0].event, WorkEnded) and again[0].seq == last
            assert not (await remote.client.snapshot()).is_working


async def until_work_ends(events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
    async for envelope in events:
        yield envelope
        if isinstance(envelope.event, WorkEnded):
            return


async def test_what_was_fetched_before_is_not_asked_for_again_and_misses_nothing(workspace: Path) -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        async with share(make_options(server, workspace)) as (local, remote):
            watching = asyncio.create_task(collect(local))
            await local.submit(Prompt("p1", "hello"))
            first = [one for one in await watching if one.event.durable]
            before = encode((await local.get_info(), await local.snapshot()))
            await remote.prefetch()
            watching = asyncio.create_task(collect(local, first[-1].seq))
            await local.submit(Prompt("p2", "again"))
            second = [one for one in await watching if one.event.durable]
            assert encode((await remote.client.get_info(), await remote.client.snapshot())) == before
            assert encode(await remote.client.snapshot()) == encode(await local.snapshot())
            events, seen = remote.client.stream_events(-1), list[Envelope]()
            async with TimeLimit():
                while len(seen) < len(first) + len(second):
                    seen += [one for one in [await anext(events)] if one.event.durable]
            assert seen == first + second


async def test_a_prompt_that_waits_for_an_approval_is_answered_remotely(workspace: Path) -> None:
    with ScriptedServer([call("Bash", {"command": "curl example.com"}), say("done")]) as server:
        async with share(make_options(server, workspace, can_ask=True)) as (local, remote):
            watching = asyncio.create_task(collect(remote.client))
            await local.submit(Prompt("p1", "fetch"))
            async with TimeLimit():
                while not (shot := await remote.client.snapshot()).interactions:
                    await asyncio.sleep(0.01)
            assert await remote.client.submit(Answer(shot.interactions[0].id, "deny", "no network"))
            assert not await local.submit(Answer(shot.interactions[0].id, "allow_once"))
            answered = [one.event for one in await watching if type(one.event).__name__ == "PermissionAnswered"]
            assert [(one.by, one.client, one.allowed) for one in answered] == [("user", "another terminal", False)]  # pyright: ignore


async def test_errors_are_those_of_the_session(workspace: Path) -> None:
    with ScriptedServer([]) as server:
        async with share(make_options(server, workspace)) as (_, remote):
            with pytest.raises(UsageError, match="The prompt is empty"):
                await remote.client.submit(Prompt("p1", " "))
            assert not await remote.client.submit(Interrupt())
