"""Answers of the server that a test changes on their way to the browser."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
from playwright.async_api import Route

from tests.page.visit import Visit
from tests.server.served import Served
from tests.server.view_follower import read_start

Change = Callable[[Any], Any]


async def read_state(served: Served, session: str) -> dict[str, Any]:
    """Return the state of a session as the page gets it."""
    headers = {"authorization": f"Bearer {served.tokens['approve']}"}
    async with httpx2.AsyncClient(headers=headers, verify=False) as http:
        return (await read_start(http, f"{served.url}/sessions/{session}/view"))["state"]


async def show_view(visit: Visit, blocks: list[dict[str, Any]], state: dict[str, Any]) -> None:
    """Let the page see these blocks and this state in place of those of its session."""
    data = json.dumps({"first": 0, "blocks": blocks, "state": state})
    frames = f"event: start\ndata: {data}\n\n"

    async def answer(route: Route) -> None:
        await route.fulfill(status=200, content_type="text/event-stream", body=frames)

    await visit.context.unroute("**/view*")
    await visit.context.route("**/view*", answer)


async def change_answers(visit: Visit, address: str, change: Change) -> None:
    """Change what the server answers to the requests of this address (a pattern), if it is JSON."""

    async def answer(route: Route) -> None:
        response = await route.fetch()
        await route.fulfill(response=response, json=change(await response.json()))

    await visit.context.route(address, answer)


async def give_answers(visit: Visit, address: str, body: Any, status: int = 200) -> None:
    """Answer the requests of this address in place of the server."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, json=body)

    await visit.context.route(address, answer)
