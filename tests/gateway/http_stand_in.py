"""An HTTP server in the test's own loop, which can answer badly: cut, hang, or send any status."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from odin.gateway.channels.platform_api import PlatformApi
from odin.providers.http import HttpClient
from odin.server.http import HttpServer
from tests.waiting import until


class Seen(Struct):
    """A request. `json` is its body if that is an object, `target` its path and query as they were sent."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    json: dict[str, Any]
    target: str


class Reply(Struct):
    status: int = 200
    content: Any = None
    """Bytes, or what is sent as JSON."""
    headers: dict[str, str] = {}


Fault = Reply | Literal["cut", "hang", "lose", "twice"]
"""`cut` ends the connection before the answer. `lose` does so, too, after the request was carried out, and `twice`
carries it out twice."""


class Refused(Exception):
    """The platform refuses a request. `is_fault`: the one who sent it is to blame."""

    def __init__(self, reply: Reply, *, is_fault: bool = True) -> None:
        super().__init__(str(reply.content))
        self.reply = reply
        self.is_fault = is_fault


class HttpStandIn:
    """Gives each request to `answer`. `faults` has what happens to the next ones, by the end of their paths."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.complaints: list[str] = []
        """What was wrong with requests. A test that expects none finds out at the end."""
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.changed = asyncio.Event()

    async def answer(self, seen: Seen) -> Reply:
        raise NotImplementedError

    def note(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        async def wait_for_change(seconds: float) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.changed.wait()

        await until(is_so, pause=wait_for_change)

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = HttpServer(self._handle)
        await server.listen(listener)
        try:
            yield
        finally:
            await server.close()

    async def _handle(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        body = b""
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode()).items()}
        is_json = headers.get("content-type", "").startswith("application/json")
        content: dict[str, Any] = msgspec.json.decode(body) if is_json and body else {}
        target = b"?".join(filter(None, (scope["raw_path"], scope["query_string"]))).decode()
        seen = Seen(scope["method"], scope["path"], query, headers, body, content, target)
        self.seen.append(seen)
        name = next((name for name in self.faults if self.faults[name] and seen.path.endswith(name)), "")
        fault = self.faults[name].pop(0) if name else None
        self.note()
        if fault == "hang":
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if fault == "cut":
            _cut(receive)
            return
        if isinstance(fault, Reply):
            reply = fault
        else:
            try:
                if fault == "twice":
                    await self.answer(seen)
                reply = await self.answer(seen)
            except Refused as error:
                if error.is_fault:
                    self.complaints.append(f"{seen.path.rpartition('/')[2]}: {error}")
                reply = error.reply
        self.note()
        if fault == "lose":
            _cut(receive)
            return
        sent = reply.content if isinstance(reply.content, bytes) else msgspec.json.encode(reply.content)
        given = {"content-type": "application/json", **reply.headers, "content-length": str(len(sent))}
        head = [(name.encode(), value.encode()) for name, value in given.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        await send({"type": "http.response.body", "body": sent})


def _cut(receive: Any) -> None:
    """End a connection without an answer, which ASGI cannot do: `receive` belongs to what has the transport."""
    receive.__self__.transport.abort()


class FaultyWay(HttpStandIn):
    """A proxy before a server, which cuts connections, repeats requests and answers wrongly."""

    def __init__(self, target: str, http: HttpClient) -> None:
        super().__init__()
        self._target = target
        self._api = PlatformApi(http, "The server")

    async def answer(self, seen: Seen) -> Reply:
        headers = {
            name: value
            for name, value in seen.headers.items()
            if name in ("authorization", "content-type") or name.startswith("x-")
        }
        reply = await self._api.request(seen.method, f"{self._target}{seen.target}", headers, seen.body, timeout=60)
        if reply.status >= 400:
            self.complaints.append(f"{seen.method} {seen.path}: {reply.status} {reply.content.decode()}")
        return Reply(reply.status, reply.content, {"content-type": reply.headers.get("content-type", "")})
