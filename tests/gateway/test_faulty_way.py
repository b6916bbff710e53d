"""Webhooks through a proxy that cuts connections, loses answers and repeats requests."""

from pathlib import Path

import httpx2

from odin.providers.http import HttpClient
from odin.testing import ScriptedServer
from tests.gateway.http_stand_in import FaultyWay
from tests.gateway.receiver import receive_callbacks
from tests.gateway.test_chats import answer_last
from tests.gateway.test_webhook import make_headers, serve
from tests.waiting import until


async def test_each_message_is_answered_once(home: Path) -> None:
    """Who sends until it is accepted is answered once, with one id, however often the answer comes."""
    http = HttpClient({})
    async with receive_callbacks() as receiver:
        back = FaultyWay(receiver.url.removesuffix("/answers"), http)
        with ScriptedServer(answer_last) as model:
            async with back.serve(), serve(model, home, callback_url=f"{back.url}/answers") as (url, client):
                way = FaultyWay(url.removesuffix("/hook/ci"), http)
                way.faults["/ci"] = ["lose", "cut", "twice", "lose", "twice", "cut"]
                back.faults["/answers"] = ["lose", "twice", "cut"]
                async with way.serve():
                    ids = [await send_until_accepted(client, f"{way.url}/hook/ci", str(number)) for number in range(6)]
                    await until(lambda: len({one.body for one in receiver.received}) >= 6)
    await http.close()
    assert len(set(ids)) == 6 == len(model.requests)
    assert len({one.headers["x-odin-id"] for one in receiver.received}) == 6 < len(receiver.received)
    assert way.complaints == back.complaints == []


async def send_until_accepted(client: httpx2.AsyncClient, url: str, id: str) -> str:
    """Return the id that the gateway gives the message."""
    body = f"run {id}".encode()
    while True:
        try:
            answer = await client.post(url, content=body, headers=make_headers(id, body))
        except httpx2.TransportError:
            continue
        if answer.status_code in (200, 202):
            return answer.json()["id"]
