"""The page and another client act at random on one session; in the end the page shows what a fresh page shows."""

import asyncio
import os
import random
import re
import time
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, expect

from odin.config import Options
from odin.testing import ScriptedServer
from tests.monkey.random_model import RandomModel
from tests.monkey.runner import WINDOW, configure_models
from tests.page.visit import Visit, use_token, visit
from tests.pictures import png
from tests.remote.bad_network import worsen
from tests.remote.served import serve
from tests.server.test_view import UserOfServer, fold_log, list_comparable
from tests.server.view_follower import read_start
from tests.soak import choose, list_seeds, soak
from tests.waiting import LIMIT_S

ACTS = choose(sample=24, full=120)
PAGE_ACTS = (*("prompt",) * 4, "steer", "stop", "mode", "shell", "compact", "queue", "look")
READ = """() => ({
    blocks: [...document.querySelectorAll('[data-block]')].map(
        (node) => [node.dataset.key, node.dataset.block, node.textContent]),
    title: document.querySelector('h1')?.textContent,
    parts: ['.status-line', '.queue', '.activity', '.side', '.interaction h2'].map(
        (name) => document.querySelector(name)?.textContent ?? ''),
})"""


class RandomPageUser:
    """Uses the keys and buttons of the page at random."""

    def __init__(self, seed: int, window: Visit) -> None:
        self.random = random.Random(seed)
        self.actions: list[str] = []
        self._visit = window
        self._count = 0

    async def act(self) -> None:
        page = self._visit.page
        if await page.get_by_role("dialog").count():
            await self._press("Escape")
        if await self._visit.request.count() and self.random.random() < 0.6:
            await self._answer()
            return
        match self.random.choice(PAGE_ACTS):
            case "prompt":
                await self._type(f"From the page: {self._next()}.", "Enter")
            case "steer":
                await self._type(f"Steered by the page: {self._next()}.", "Control+Enter")
            case "shell":
                await self._type(f"!echo shell {self._next()}", "Enter")
            case "compact":
                await self._type("/compact", "Enter")
            case "stop":
                await self._press("Escape")
            case "mode":
                await self._press("F2")
            case "queue":
                await self._press("Alt+q", self.random.choice(("d", "s", "m", "w")), "Escape")
            case _:
                await self._press("Alt+ArrowUp", "k", "k", self.random.choice(("G", "g", "j")), "Escape")

    async def _answer(self) -> None:
        buttons = self._visit.request.get_by_role("button", name=self._choose_answer())
        self.actions.append("answer")
        await buttons.evaluate_all("([first]) => first?.isConnected && first.click()")  # another client may be faster

    def _choose_answer(self) -> re.Pattern[str]:
        return re.compile(self.random.choice(("Allow once|Keep|^Answer|Approve", "Deny|Discard|Cancel|Keep planning")))

    async def _type(self, line: str, key: str) -> None:
        prompt = self._visit.prompt
        if await prompt.count():
            self.actions.append(line)
            await prompt.fill(line)
            await prompt.press(key)

    async def _press(self, *keys: str) -> None:
        self.actions.extend(keys)
        for key in keys:
            await self._visit.page.keyboard.press(key)

    def _next(self) -> int:
        self._count += 1
        return self._count


async def agree(browser: Browser, live: Visit, session: str, http: httpx2.AsyncClient, view: str) -> None:
    """Wait until the page shows what a page that is opened now shows, and the newest blocks of the server."""
    async with visit(browser, live.url) as other:
        await use_token(other, "carol:approve")
        await other.open(session)
        await expect(other.page.locator("[data-block]").first).to_be_visible()
        end = time.monotonic() + LIMIT_S
        while True:
            one, two = await live.page.evaluate(READ), await other.page.evaluate(READ)
            shown = [block[:2] for block in two["blocks"]]
            count = min(len(one["blocks"]), len(two["blocks"]), 150)
            keys = [[block["key"], block["kind"]] for block in (await read_start(http, view))["blocks"]]
            is_same = one["blocks"][-count:] == two["blocks"][-count:] and {**one, "blocks": 0} == {**two, "blocks": 0}
            if is_same and shown[-count:] == keys[-count:]:
                return
            pairs = zip(one["blocks"][-count:], two["blocks"][-count:], strict=True)
            differing = [f"{mine}\nshould be {theirs}" for mine, theirs in pairs if mine != theirs]
            rest = [f"{one[name]}\nshould be {two[name]}" for name in ("title", "parts") if one[name] != two[name]]
            if time.monotonic() > end:
                pytest.fail("\n".join([*differing[:3], *rest]))
            await asyncio.sleep(0.05)


@soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", list_seeds(sample=2, full=30))
async def test_the_page_converges_with_other_clients(seed: int, browser: Browser, workspace: Path, home: Path) -> None:
    (workspace / "picture.png").write_bytes(png(64, 64))
    chance = random.Random(seed + 3)
    with ScriptedServer(RandomModel(random.Random(seed + 1), workspace).answer, window=WINDOW) as model:
        configure_models(home, model)
        urls = {"ANTHROPIC_BASE_URL": model.url, "OPENAI_BASE_URL": model.openai_url}
        other = UserOfServer(seed, workspace, home, urls)
        env = {**os.environ, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", **urls}
        options = Options(env=env, cwd=str(workspace), can_ask=True, thinking=1024, model="anthropic/claude-sonnet-4-5")
        async with (
            serve(model, workspace, options=options) as served,
            worsen(served.port, str(seed)) as (network, port),
        ):
            network.is_calm = True
            session = await served.create()
            await other.attach(served.attach(session))
            headers = {"authorization": "Bearer alice:approve"}
            async with (
                visit(browser, f"http://127.0.0.1:{port}") as window,
                httpx2.AsyncClient(headers=headers, verify=False) as http,
            ):
                await use_token(window, "bob:approve")
                await window.open(session)
                user = RandomPageUser(seed, window)
                view = f"http://127.0.0.1:{served.port}/sessions/{session}/view"
                try:
                    for number in range(ACTS):
                        await user.act()
                        await other.act()
                        if chance.random() < 0.15:
                            user.actions.append("cut")
                            network.cut_all()
                        if number % 12 == 11:
                            await other.answer_all()
                            await agree(browser, window, session, http, view)
                    start = await read_start(http, view)
                    if start["first"] == 0:
                        assert list_comparable(start["blocks"]) == list_comparable(fold_log(served, session))
                except BaseException as error:
                    error.add_note(f"seed {seed}; page: {' | '.join(user.actions)}; other: {' | '.join(other.actions)}")
                    raise
                finally:
                    await other.leave()
                window.problems[:] = [one for one in window.problems if "net::ERR" not in one]
