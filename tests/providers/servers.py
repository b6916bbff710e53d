"""Small servers for what a well-behaved model server never does, and a way to collect what a provider says."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from odin.core.message import ReplyMessage, Usage
from odin.core.provider import Chunk, Provider, ReplyBuilder, Request, WaitChunk

Handler = Callable[["Line"], Awaitable[None]]


class Line:
    """One accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def request(self) -> tuple[str, bytes]:
        """The head and the body of the next request."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next((int(row[15:]) for row in head.split("\r\n") if row.lower().startswith("content-length:")), 0)
        return head, await self.reader.readexactly(length)

    async def send(self, *parts: bytes, pause: float = 0.0) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            if pause:
                await asyncio.sleep(pause)

    async def closed(self) -> bool:
        """Wait until the other side has gone away."""
        return await self.reader.read() == b""


class Listener:
    def __init__(self, port: int, scheme: str) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.accepted = 0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []


@asynccontextmanager
async def listening(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncGenerator[Listener]:
    """A server whose every connection is played by `handler`; what it still does at the end is cancelled."""
    tasks: set[asyncio.Task[Any]] = set()
    spot = Listener(0, "https" if context else "http")

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        spot.accepted += 1
        line = Line(reader, writer, spot.accepted)
        try:
            await handler(line)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    found = Listener(server.sockets[0].getsockname()[1], "https" if context else "http")
    spot.port, spot.url = found.port, found.url
    try:
        yield spot
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


@asynccontextmanager
async def answering(*answers: bytes, pause: float = 0.0) -> AsyncGenerator[Listener]:
    """A server that gives these answers in turn, over as many connections as it takes, and notes the requests."""
    left = list(answers)
    spot: list[Listener] = []

    async def play(line: Line) -> None:
        while left:
            head, body = await line.request()
            spot[0].heads.append(head)
            spot[0].bodies.append(body)
            answer = left.pop(0)
            await line.send(answer, pause=pause)
            if b"content-length" not in answer and b"chunked" not in answer:
                return
        await line.closed()

    async with listening(play) as listener:
        spot.append(listener)
        yield listener


def chunked(*chunks: bytes, head: str = "content-type: text/event-stream\r\n", status: str = "200 OK") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return f"HTTP/1.1 {status}\r\n{head}transfer-encoding: chunked\r\n\r\n".encode() + body + b"0\r\n\r\n"


def whole(body: bytes, head: str = "content-type: application/json\r\n", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def collect(provider: Provider, request: Request) -> list[Chunk]:
    """Every piece but those that tell how far the connection is."""
    return [piece async for piece in provider.stream(request) if not isinstance(piece, WaitChunk)]


async def reply_of(provider: Provider, request: Request) -> tuple[ReplyMessage, Usage]:
    """What the pieces add up to."""
    builder = ReplyBuilder(provider.name, request.model)
    for piece in await collect(provider, request):
        builder.add(piece)
    reply = builder.finish()
    assert reply.malformed_calls == ()
    return reply.message, reply.usage
