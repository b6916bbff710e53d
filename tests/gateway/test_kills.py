"""`odin gateway` as a process that is killed at random moments while messages come in: each is answered once."""

import asyncio
import json
import os
import random
import re
import resource
import signal
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from odin.testing import ScriptedServer, say
from odin.testing.script import SeenRequest, Turn
from tests.gateway.platform import open_store, write_settings
from tests.gateway.receiver import Receiver, receive_callbacks
from tests.gateway.test_chats import list_starts
from tests.gateway.test_webhook import make_headers
from tests.soak import choose, list_seeds, soak
from tests.waiting import LIMIT_S, until

CHATS = ("ant", "bee", "cat", "dog", "eel")


def echo(request: SeenRequest) -> Turn:
    """Answer the newest message of the conversation, also if the gateway asks for its answer again."""
    asked = [str(item["content"]) for item in request.messages if item["role"] == "user"]
    newest = re.findall(r"> (msg-\w+-\d+)", "".join(asked))[-1]
    return say(f"re: {newest}").delay(random.uniform(0, 0.05))


async def start(model: ScriptedServer, home: Path) -> asyncio.subprocess.Process:
    env = {**os.environ, **model.env("anthropic")}
    with (home / "gateway.err").open("ab") as err:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "odin", "gateway"), cwd=home, env=env, stdout=err, stderr=err
        )


async def post_all(port: int, chat: str, count: int, first: int = 0) -> None:
    """Send the messages of one chat in their order, each until it is accepted, and some of them twice."""
    secret = make_secret(chat)
    async with httpx2.AsyncClient(timeout=LIMIT_S, verify=False) as http:
        for number in range(first, count):
            body = f"msg-{chat}-{number}".encode()
            for _ in range(2 if number % 5 == 0 else 1):
                while True:
                    try:
                        headers = make_headers(str(number), body, secret)
                        answer = await http.post(f"http://127.0.0.1:{port}/hook/{chat}", content=body, headers=headers)
                        if answer.status_code in (200, 202):
                            break
                    except httpx2.HTTPError:
                        pass
                    await asyncio.sleep(0.05)


def make_secret(chat: str) -> str:
    return f"{chat}-9f8e7d6c5b4a3210"


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def list_answers(receiver: Receiver) -> dict[str, list[str]]:
    """Return the answers of each chat in the order in which they came first. The same key is the same answer."""
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    for callback in receiver.received:
        text = json.loads(callback.body)["text"]
        assert text.startswith("re: "), text
        answers[text.split("-")[1]].setdefault(callback.headers["x-odin-id"], text)
    return {chat: list(texts.values()) for chat, texts in answers.items()}


async def finish(receiver: Receiver, count: int) -> None:
    async with asyncio.timeout(600):
        while sum(len(texts) for texts in list_answers(receiver).values()) < count:
            await asyncio.sleep(0.05)


def check_answers(receiver: Receiver, count: int, chats: Sequence[str] = CHATS) -> None:
    wanted = {chat: [f"re: msg-{chat}-{number}" for number in range(count)] for chat in chats}
    assert list_answers(receiver) == wanted
    assert open_store().list_failed() == []
    ids = [start.id for start in list_starts()]
    assert len(ids) == len(set(ids))


def write_webhooks(home: Path, port: int, url: str, chats: Sequence[str] = CHATS) -> None:
    webhooks: dict[str, Any] = {
        chat: {"secret": make_secret(chat), "callback_url": url, "history": True} for chat in chats
    }
    write_settings(home, webhooks=webhooks, port=port, max_budget_usd_per_day=0)


@soak
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", list_seeds(1, 5))
async def test_kills_under_load(home: Path, seed: int) -> None:
    rounds, count, chance, port = choose(3, 10), choose(6, 25), random.Random(seed), find_free_port()
    async with receive_callbacks() as receiver:
        write_webhooks(home, port, receiver.url)
        with ScriptedServer(echo) as model:
            posting = asyncio.gather(*(post_all(port, chat, count) for chat in CHATS))
            for _ in range(rounds):
                gateway = await start(model, home)
                before, more = len(receiver.received), chance.randrange(1, 8)
                await until(lambda enough=before + more: len(receiver.received) >= enough or posting.done())
                await asyncio.sleep(chance.uniform(0, 0.1))
                gateway.send_signal(signal.SIGKILL)
                await gateway.wait()
            gateway = await start(model, home)
            await posting
            await finish(receiver, count * len(CHATS))
            gateway.send_signal(signal.SIGTERM)
            assert await gateway.wait() == 0
    check_answers(receiver, count)


MANY = tuple(f"chat{number}" for number in range(50))
GROWTH_BYTES = 3_000
"""What a message may add to the process: it stays, with its answer, in the conversation of its open session."""


@soak
@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_many_messages(home: Path) -> None:
    """10,000 messages in 50 chats: in order in each chat, all at once, in a process that does not grow."""
    count, port = choose(4, 200), find_free_port()
    busy, all_busy = set[str](), threading.Event()

    def answer(request: SeenRequest) -> Turn:
        """Answer the first messages when those of all chats have come, which never happens if one chat waits."""
        turn = echo(request)
        busy.add(turn.text.split("-")[1])
        if len(busy) == len(MANY):
            all_busy.set()
        return turn.hold(all_busy)

    sizes: list[int] = []
    async with receive_callbacks() as receiver:
        write_webhooks(home, port, receiver.url, MANY)
        with ScriptedServer(answer) as model:
            gateway = await start(model, home)
            for part in range(4):
                first, end = count * part // 4, count * (part + 1) // 4
                await asyncio.gather(*(post_all(port, chat, end, first) for chat in MANY))
                await finish(receiver, end * len(MANY))
                pages = Path(f"/proc/{gateway.pid}/statm").read_text().split()[1]
                sizes.append(int(pages) * resource.getpagesize())
                model.requests.clear()  # each has the whole conversation
            gateway.send_signal(signal.SIGTERM)
            assert await gateway.wait() == 0
    check_answers(receiver, count, MANY)
    messages = count * len(MANY) // 2
    assert sizes[3] - sizes[1] < 2_000_000 + messages * GROWTH_BYTES, sizes
