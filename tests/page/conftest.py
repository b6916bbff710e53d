"""One browser for all tests of a worker; each test has a window of its own, which shares nothing with the others."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from odin.core.rights import Right
from odin.testing import ScriptedServer, Turn, say
from odin.testing.script import Player
from tests.page.visit import HandName, Visit, launch_browser, require_chromium, visit
from tests.server.served import Served, serve

SHORT_RUN = (
    "test_pair_ask_and_see_the_answer_arrive[keyboard]",
    "test_answer_permission_requests[touch]",
    "test_the_policy_is_in_force",
)
"""The tests in a browser that `make test` runs, too: each takes two seconds of the processor."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """The browser belongs to one event loop, so these tests share it."""
    for item in (item for item in items if item.nodeid.startswith("tests/page/")):
        if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if "browser" in item.fixturenames and item.name not in SHORT_RUN:
                item.add_marker(pytest.mark.slow)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    require_chromium()
    async with async_playwright() as playwright:
        browser = await launch_browser(playwright, tmp_path_factory.mktemp("browser"))
        yield browser
        await browser.close()


@dataclass
class Stage:
    """A server with a scripted model, and a paired browser on a new session."""

    model: ScriptedServer
    served: Served
    visit: Visit
    session: str


OpenStage = Callable[..., AbstractAsyncContextManager[Stage]]
OpenVisit = Callable[..., AbstractAsyncContextManager[Visit]]


@pytest.fixture
def open_visit(browser: Browser) -> OpenVisit:
    """Open a window on a server: open_visit(served.url, "touch")."""

    def open_window(url: str, hand: HandName = "keyboard", **more: Any) -> AbstractAsyncContextManager[Visit]:
        return visit(browser, url, hand, **more)

    return open_window


@pytest.fixture
def open_stage(browser: Browser, workspace: Path) -> OpenStage:
    """Serve the workspace and open a new session in a window: open_stage([say("hello")], "touch")."""

    @asynccontextmanager
    async def open_session(
        script: Sequence[Turn] | Player = (), hand: HandName = "keyboard", *, right: Right = "approve", **more: Any
    ) -> AsyncGenerator[Stage]:
        with ScriptedServer(script if callable(script) else play(script)) as model:
            async with serve(model, workspace) as served:
                session = await served.open()
                async with visit(browser, served.url, hand, **more) as one:
                    await log_in(one, served, right)
                    await one.open(session)
                    yield Stage(model, served, one, session)
            assert [why for _, why in model.rejected] == []

    return open_session


def play(turns: Sequence[Turn]) -> Player:
    """Play the turns in order. A request for a title or a summary gets one, and takes no turn."""
    left = iter(turns)
    return lambda seen: next(left) if seen.tool_names else say("A fine title")


async def log_in(one: Visit, served: Served, right: Right = "approve") -> None:
    """Pair by the code in the address, as the QR code does."""
    code = served.store.create_code(right, f"{right} browser").text
    await one.page.goto(f"{one.url}/#{code}")
    await one.page.wait_for_url(f"{one.url}/#/")
