"""A hundred sessions in one process: they share what the process has, and nothing else."""

import asyncio
import gc
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from odin.config import Options
from odin.core.call_events import ToolEnded
from odin.core.event import Envelope, TurnEnded
from odin.core.op import Prompt
from odin.core.timing import Timing
from odin.engine.client import LocalClient
from odin.host.manager import SessionManager
from odin.testing import ScriptedServer, Turn, call, say
from odin.testing.script import SeenRequest
from tests.sandbox.processes import list_helpers, list_more_helpers
from tests.soak import list_seeds, soak
from tests.waiting import TimeLimit, until

SESSIONS = 100
ACTIVE = 20


def answer(request: SeenRequest) -> Turn:
    """Let the model say where it is and who it works for: only the commands of its session know."""
    last = request.json["messages"][-1]
    return say("done") if "tool_result" in str(last) else call("ExecuteCommand", {"command": 'echo "$WHO in $PWD"'})


async def ask(client: LocalClient, text: str) -> list[Envelope]:
    seen: list[Envelope] = []
    events = client.stream_events()
    await client.submit(Prompt(os.urandom(4).hex(), text))
    async with TimeLimit():
        async for envelope in events:
            seen.append(envelope)
            if isinstance(envelope.event, TurnEnded):
                return seen
    raise AssertionError("the session ended")


@pytest.mark.slow
@soak
@pytest.mark.parametrize("seed", list_seeds(1, 20))
async def test_a_hundred_sessions_do_not_meet(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    folders = [tmp_path / f"workspace{number % 2}" / f"room{number}" for number in range(SESSIONS)]
    for folder in folders:
        folder.mkdir(parents=True)
        folder.parent.joinpath(".git").mkdir(exist_ok=True)
    timing, before = Timing(sandbox_idle_s=0.2), list_helpers()
    with ScriptedServer(answer) as server:
        manager = SessionManager()
        clients: list[LocalClient] = []
        for number, folder in enumerate(folders):
            env = {**os.environ, **server.env("anthropic"), "WHO": f"user {number}"}
            clients.append(await manager.open(Options(env=env, cwd=str(folder), yes=True, timing=timing)))
        assert len({client.session.id for client in clients}) == SESSIONS
        for _ in range(2):
            active = chance.sample(range(SESSIONS), ACTIVE)
            for number, seen in zip(
                active,
                await asyncio.gather(*(ask(clients[number], f"prompt {number}") for number in active)),
                strict=True,
            ):
                assert {envelope.session for envelope in seen} == {clients[number].session.id}
                (ended,) = [envelope.event for envelope in seen if isinstance(envelope.event, ToolEnded)]
                assert ended.text.strip() == f"user {number} in {folders[number]}"
        await until(lambda: len(list_more_helpers(before)) <= 10)
        assert await manager.close(30)
        assert list_more_helpers(before) == {}


@pytest.mark.slow
async def test_an_active_session_has_at_most_three_helpers(tmp_path: Path) -> None:
    with ScriptedServer(answer) as server:
        manager, clients, before = SessionManager(), list[LocalClient](), list_helpers()
        for number in range(12):
            folder = tmp_path / f"workspace{number % 2}"
            folder.mkdir(exist_ok=True)
            env = {**os.environ, **server.env("anthropic"), "WHO": str(number)}
            clients.append(await manager.open(Options(env=env, cwd=str(folder), yes=True)))
        active = clients[:6]
        for _ in range(2):  # a second prompt starts no more of them
            await asyncio.gather(*(ask(client, "go") for client in active))
            assert len(list_more_helpers(before)) <= 3 * len(active), list_more_helpers(before)
        assert await manager.close(30)
        assert list_more_helpers(before) == {}


@pytest.mark.slow
async def test_an_idle_session_with_two_hundred_calls_is_small(workspace: Path) -> None:
    def work(request: SeenRequest) -> Turn:
        done = str(request.json["messages"]).count("'tool_result'")
        return say("done") if done >= 200 else call("ExecuteCommand", {"command": f"echo {done}"})

    with ScriptedServer(work, strict=False) as server:
        manager = SessionManager()
        env = {**os.environ, **server.env("anthropic")}
        options = Options(env=env, cwd=str(workspace), yes=True)
        first = await manager.open(options)
        await ask(first, "go")
        gc.collect()
        tracemalloc.start()
        try:
            second = await manager.open(options)
            await ask(second, "go")
            server.requests.clear()
            gc.collect()
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
        # The scripted server runs in this process, too.
        others = tracemalloc.Filter(False, "*/odin/testing/*"), tracemalloc.Filter(False, __file__)
        assert sum(item.size for item in snapshot.filter_traces(others).statistics("filename")) <= 1_500_000
        assert await manager.close(30)
