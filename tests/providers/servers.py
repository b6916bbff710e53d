"""Small HTTP servers for what ScriptedServer cannot do, and helpers that collect the stream of a provider."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from odin.core.message import ReplyMessage, Usage
from odin.core.provider import Chunk, Provider, ReplyBuilder, Request, WaitChunk

Handler = Callable[["Connection"], Awaitable[None]]


class Connection:
    """One accepted connection of a test server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def read_request(self) -> tuple[str, bytes]:
        """Return the head and the body of the next request."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next((int(row[15:]) for row in head.split("\r\n") if row.lower().startswith("content-length:")), 0)
        return head, await self.reader.readexactly(length)

    async def send(self, *parts: bytes, pause: float = 0.0) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            if pause:
                await asyncio.sleep(pause)

    async def wait_closed(self) -> bool:
        """Wait until the client closes the connection. True if it sent nothing more."""
        return await self.reader.read() == b""


class Listener:
    """The address of a test server, and what it has received."""

    def __init__(self, port: int, scheme: str) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.accepted = 0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []


@asynccontextmanager
async def serve(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncGenerator[Listener]:
    """Run a server that calls `handler` for each connection. On exit, cancel the handlers that still run."""
    tasks: set[asyncio.Task[Any]] = set()
    listener = Listener(0, "https" if context else "http")

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        listener.accepted += 1
        connection = Connection(reader, writer, listener.accepted)
        try:
            await handler(connection)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    found = Listener(server.sockets[0].getsockname()[1], "https" if context else "http")
    listener.port, listener.url = found.port, found.url
    try:
        yield listener
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


@asynccontextmanager
async def serve_answers(*answers: bytes, pause: float = 0.0) -> AsyncGenerator[Listener]:
    """Run a server that gives these answers in turn, over any number of connections, and records the requests."""
    left = list(answers)
    current: list[Listener] = []

    async def handle(connection: Connection) -> None:
        while left:
            head, body = await connection.read_request()
            current[0].heads.append(head)
            current[0].bodies.append(body)
            answer = left.pop(0)
            await connection.send(answer, pause=pause)
            if b"content-length" not in answer and b"chunked" not in answer:
                return
        await connection.wait_closed()

    async with serve(handle) as listener:
        current.append(listener)
        yield listener


def make_chunked_response(
    *chunks: bytes, head: str = "content-type: text/event-stream\r\n", status: str = "200 OK"
) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return f"HTTP/1.1 {status}\r\n{head}transfer-encoding: chunked\r\n\r\n".encode() + body + b"0\r\n\r\n"


def make_response(body: bytes, head: str = "content-type: application/json\r\n", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def collect(provider: Provider, request: Request) -> list[Chunk]:
    """Return every chunk of the stream except those that report progress."""
    return [piece async for piece in provider.stream(request) if not isinstance(piece, WaitChunk)]


async def get_reply(provider: Provider, request: Request) -> tuple[ReplyMessage, Usage]:
    """Return the reply and the usage that the chunks add up to."""
    builder = ReplyBuilder(provider.name, request.model)
    for piece in await collect(provider, request):
        builder.add(piece)
    reply = builder.finish()
    assert reply.malformed_calls == ()
    return reply.message, reply.usage
