"""A client of `GET /sessions/ID/view` that applies what it gets, as the page does, and nothing more."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import httpx2

Block = dict[str, Any]
ViewEvent = tuple[str, dict[str, Any]]


class ViewFollower:
    """What a page knows of an agent. It connects again whenever its connection ends, and counts these in `starts`."""

    def __init__(self, http: httpx2.AsyncClient, url: str, session: str, agent: str = "") -> None:
        self.blocks: list[Block] = []
        self.first = 0
        self.state: dict[str, Any] = {}
        self.starts = 0
        self.changes = 0
        self.problem = ""
        self.agent = agent
        self._http = http
        self._url = f"{url}/sessions/{session}/view"
        self._response: httpx2.Response | None = None
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while not self.problem:
            with suppress(httpx2.HTTPError):
                async for name, data in self._read():
                    if name == "start":
                        self.starts += 1
                        self.blocks, self.first, self.state = data["blocks"], data["first"], data["state"]
                    elif name in ("resync", "closed") or (name == "change" and not self._change(data)):
                        break
            await asyncio.sleep(0.002)

    async def _read(self) -> AsyncGenerator[ViewEvent]:
        async with self._http.stream("GET", self._url, params={"agent": self.agent}, timeout=60) as response:
            self._response = response
            if response.status_code != 200:
                await response.aread()
                if response.status_code != 410:  # the session is being closed
                    self.problem = response.text
                return
            async for event in read_events(response):
                yield event

    def _change(self, change: dict[str, Any]) -> bool:
        """Apply a change. False if it is about blocks before those that are known."""
        self.changes += 1
        self.state |= change.get("state", {})
        for at, removed, added in change.get("splice", ()):
            if at < self.first:
                return False
            place = at - self.first
            assert place + removed <= len(self.blocks), "a change of blocks that nobody has"
            self.blocks[place : place + removed] = added
        by_key = {block["key"]: block for block in self.blocks} if "blocks" in change else {}
        for one in change.get("blocks", ()):
            if (block := by_key.get(one["key"])) is not None:
                block |= one.get("set", {})
                for name, more in one.get("append", {}).items():
                    block[name] += more
        return True

    async def cut(self) -> None:
        """End the connection, as a network does."""
        if self._response is not None:
            await self._response.aclose()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def find_difference(self) -> str:
        """Return how this differs from what a new page gets; "" if it does not."""
        fresh = await read_start(self._http, self._url, self.agent)
        first = max(fresh["first"], self.first)
        mine, theirs = self.blocks[first - self.first :], fresh["blocks"][first - fresh["first"] :]
        keys, other_keys = [one["key"] for one in mine], [one["key"] for one in theirs]
        if keys != other_keys:
            return f"the blocks {keys} should be {other_keys}"
        for one, other in zip(mine, theirs, strict=True):
            if one != other:
                return f"block {describe_difference(one, other)}"
        return f"state {describe_difference(self.state, fresh['state'])}" if self.state != fresh["state"] else ""


def describe_difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    names = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    return f"{one.get('key', '')}: " + "; ".join(
        f"{name} {one.get(name)!r} should be {other.get(name)!r}" for name in names
    )


async def read_events(response: httpx2.Response) -> AsyncGenerator[ViewEvent]:
    name, data = "message", ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data += line[6:]
        elif not line and (data or name != "message"):
            yield name, json.loads(data or "{}")
            name, data = "message", ""


async def read_start(http: httpx2.AsyncClient, url: str, agent: str = "") -> dict[str, Any]:
    async with http.stream("GET", url, params={"agent": agent}) as response:
        assert response.status_code == 200, await response.aread()
        async for name, data in read_events(response):
            assert name == "start"
            return data
    raise AssertionError("no start")
