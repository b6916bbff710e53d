"""What a page makes of the changes that it is sent is what a page that connects now gets, whatever has happened."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from odin.config import Options
from odin.core.client import Client
from odin.core.event import Warned
from odin.core.op import Answer, Interrupt, Prompt
from odin.server.page.blocks import encode_block
from odin.testing import ScriptedServer, call, say
from odin.ui.transcript.model import TranscriptModels
from odin.ui.transcript.words import ShownFolders
from tests.monkey.log_checks import LoopErrors
from tests.monkey.random_model import RandomModel
from tests.monkey.random_user import RandomUser
from tests.monkey.runner import WINDOW, configure_models
from tests.pictures import png
from tests.remote.bad_network import worsen
from tests.remote.served import Served, serve
from tests.server.view_follower import ViewFollower, read_start
from tests.soak import choose, list_seeds, soak
from tests.waiting import LIMIT_S, TimeLimit, until

ACTS = choose(sample=40, full=200)


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"authorization": "Bearer alice:approve"}
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(headers=headers, timeout=LIMIT_S, limits=limits, verify=False) as http:
        yield http


class UserOfServer(RandomUser):
    """The random user as a client of a server, of whose session nobody else opens the log."""

    async def attach(self, client: Client) -> None:
        self._opened = client
        self._listener = asyncio.create_task(self._listen(client))

    async def _query_session(self) -> None:
        await self.client.report_context()

    async def answer_all(self) -> None:
        """Answer what is asked, or stop the work, until nothing works any more."""
        async with asyncio.timeout(90):
            began = time.monotonic()
            while (shot := await self.client.snapshot()).executing or shot.team_working:
                for one in shot.interactions:
                    await self.submit(Answer(one.id, one.default))
                if time.monotonic() - began > 5:
                    await self.submit(Interrupt())
                await asyncio.sleep(0.02)

    async def leave(self) -> None:
        assert self._listener is not None
        self._listener.cancel()
        await asyncio.gather(self._listener, *self._background_tasks, return_exceptions=True)


class Pages:
    """Pages on the main agent, one of them behind a bad network, and on sub-agents."""

    def __init__(self, http: httpx2.AsyncClient, served: Served, session: str, bad_port: int) -> None:
        self._http, self._session = http, session
        self.url = f"http://127.0.0.1:{served.port}"
        self._bad_url = f"http://127.0.0.1:{bad_port}"
        self.all = [ViewFollower(http, self.url, session), ViewFollower(http, self._bad_url, session)]

    def follow_agents(self) -> None:
        shown = {page.agent for page in self.all}
        for agent in self.all[0].state.get("agents", ()):
            if agent["id"] not in shown and len(self.all) < 6:
                self.all.append(ViewFollower(self._http, self.url, self._session, agent["id"]))

    async def agree(self) -> None:
        """Wait until each page shows what a new page would."""
        for page in self.all:
            difference = ""
            async with TimeLimit(lambda: f"the page on {page.agent or 'the main agent'}: {difference}"):  # noqa: B023
                while difference := await page.find_difference() if page.starts else "no start":
                    assert not page.problem, page.problem
                    await asyncio.sleep(0.02)

    async def close(self) -> None:
        for page in self.all:
            await page.close()


def fold_log(served: Served, session: str) -> list[dict[str, Any]]:
    models = TranscriptModels()
    for envelope in served.read_log(session):
        if not isinstance(envelope.event, Warned):
            models.apply(envelope)
    return [encode_block(block, ShownFolders()) for block in models[""].blocks]


def list_comparable(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is the same in a page that saw it happen and in one made from the log."""
    kinds = ("prompt", "answer", "call", "summary", "command")
    fields = ("kind", "text", "name", "args", "state", "result", "interrupted", "is_injected", "output")
    return [{name: one.get(name) for name in fields} for one in blocks if one["kind"] in kinds]


@soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", list_seeds(sample=2, full=60))
async def test_changes_add_up_to_what_a_new_page_gets(
    seed: int, workspace: Path, home: Path, http: httpx2.AsyncClient
) -> None:
    loop_errors = LoopErrors()
    asyncio.get_running_loop().set_exception_handler(loop_errors)
    (workspace / "picture.png").write_bytes(png(64, 64))
    chance = random.Random(seed + 2)
    with ScriptedServer(RandomModel(random.Random(seed + 1), workspace).answer, window=WINDOW) as model:
        configure_models(home, model)
        urls = {"ANTHROPIC_BASE_URL": model.url, "OPENAI_BASE_URL": model.openai_url}
        user = UserOfServer(seed, workspace, home, urls)
        env = {**os.environ, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", **urls}
        options = Options(env=env, cwd=str(workspace), can_ask=True, thinking=1024, model="anthropic/claude-sonnet-4-5")
        async with serve(model, workspace, options=options) as served, worsen(served.port, str(seed)) as (network, bad):
            session = await served.create()
            await user.attach(served.attach(session))
            pages = Pages(http, served, session, bad)
            try:
                for number in range(ACTS):
                    await user.act()
                    pages.follow_agents()
                    if chance.random() < 0.05:
                        await chance.choice(pages.all).cut()
                    if number % 20 == 19:
                        await user.answer_all()
                        network.is_calm = True
                        await pages.agree()
                        network.is_calm = False
                        await pages.all[1].cut()
                network.is_calm = True
                await user.answer_all()
                await pages.agree()
                main = pages.all[0]
                # How many there are depends on the load: a busy machine sends several changes as one.
                assert main.changes and pages.all[1].starts > 2
                if main.first == 0:
                    assert list_comparable(main.blocks) == list_comparable(fold_log(served, session))
            except BaseException as error:
                error.add_note(f"seed {seed}; actions: {' | '.join(user.actions[-60:])}")
                raise
            finally:
                network.is_calm = True
                await pages.close()
                await user.leave()
    assert loop_errors.collect() == []


async def test_a_page_of_a_long_session_gets_the_newest_blocks_and_asks_for_earlier_ones(
    workspace: Path, http: httpx2.AsyncClient
) -> None:
    with ScriptedServer(lambda seen: say("Yes.")) as model:
        async with serve(model, workspace) as served:
            session = await served.create()
            client = served.attach(session)
            for number in range(90):
                await client.submit(Prompt(f"p{number}", f"Prompt {number}"))
            url = f"http://127.0.0.1:{served.port}/sessions/{session}"

            async def is_idle() -> bool:
                shot = await client.snapshot()
                return len(shot.messages) == 90 and not shot.executing

            await until(is_idle)
            start = await read_start(http, f"{url}/view")
            assert len(start["blocks"]) == 200 and start["first"] > 0
            found = start["blocks"]
            while (first := start["first"]) > 0:
                answer = await http.get(f"{url}/blocks", params={"end": first, "limit": 33})
                start = answer.json()
                assert start["first"] == max(first - 33, 0)
                found = [*start["blocks"], *found]
            prompts = [one["text"] for one in found if one["kind"] == "prompt"]
            assert prompts == [f"Prompt {number}" for number in range(90)]
            assert len({one["key"] for one in found}) == len(found)
            nothing = await http.get(f"{url}/blocks", params={"end": 0})
            assert nothing.json() == {"first": 0, "blocks": []}


async def test_the_state_says_what_is_asked_and_who_answered(workspace: Path, http: httpx2.AsyncClient) -> None:
    turns = [call("WriteFile", {"path": "a.txt", "content": "one\n"}, id="c1"), say("Written.")]
    with ScriptedServer(turns) as model:
        async with serve(model, workspace) as served:
            session = await served.create()
            page = ViewFollower(http, f"http://127.0.0.1:{served.port}", session)
            client = served.attach(session, "bob:approve")
            await client.submit(Prompt("p1", "Write it."))
            await until(lambda: page.state.get("interactions"))
            asked = page.state["interactions"][0]
            assert asked["kind"] == "permission" and asked["form"] and asked["answers"]
            assert page.state["executing"] and page.state["turn"] == "p1" and page.state["activity"]["is_asking"]
            block = next(one for one in page.blocks if one["kind"] == "call")
            assert (block["state"], block["args"]) == ("asking", {"path": "a.txt", "content": "one\n"})
            await client.submit(Answer(asked["id"], "allow_once"))
            await until(lambda: not page.state["executing"])
            await until(lambda: not page.state["interactions"] and page.state["answered"])
            assert page.state["answered"]["id"] == asked["id"] and "bob" in page.state["answered"]["text"]
            assert [one["path"] for one in page.state["files"]] == ["a.txt"]
            await until(lambda: page.blocks[-1]["kind"] == "end")
            assert next(one for one in page.blocks if one["kind"] == "call")["state"] == "success"
            await page.close()
