"""An HTTP server that takes the callbacks of webhooks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from tests.waiting import until


class Callback(Struct):
    headers: dict[str, str]
    body: bytes


class Receiver:
    """`answers` are the status codes of the next answers; then it is 200."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[int] = []
        self.received: list[Callback] = []
        self.connections: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                pairs = (line.partition(":") for line in head.decode().split("\r\n")[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.received.append(Callback(headers, body))
                status = self.answers.pop(0) if self.answers else 200
                writer.write(f"HTTP/1.1 {status} Yes\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.connections.discard(writer)
            writer.close()

    async def wait_for(self, count: int) -> None:
        await until(lambda: len(self.received) >= count)


@asynccontextmanager
async def receive_callbacks() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/answers"
    try:
        yield receiver
    finally:
        server.close()
        for writer in tuple(receiver.connections):
            writer.close()
        while receiver.connections:
            await asyncio.sleep(0)
