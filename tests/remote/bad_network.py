"""A TCP proxy that cuts connections at any byte, delays what it forwards, and sends requests twice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class BadNetwork:
    """`done` counts what it did. While `is_calm`, it only forwards."""

    def __init__(self, port: int, seed: str) -> None:
        self.is_calm = False
        self.done = Counter[str]()
        self._target = port
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def cut_all(self) -> None:
        """Cut all connections that are open."""
        for writer in self._open:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.done["connections"] += 1
        try:
            there, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        is_cut = not self.is_calm and (self.done["connections"] <= 3 or self._random.random() < 0.8)
        is_first = self.done["connections"] == 1
        limit = int(10 ** self._random.uniform(1, 3 if is_first else 4)) if is_cut else -1
        up = not is_first and self._random.random() < 0.4
        self._open.add(writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, to_server, limit if up else -1, "request"))
                group.create_task(self._forward(there, writer, -1 if up else limit, "response"))
        except* (ConnectionError, _Cut):
            pass
        finally:
            self._open.discard(writer)
            for one in (writer, to_server):
                if self._random.random() < 0.5:
                    one.transport.abort()
                else:
                    one.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int, direction: str
    ) -> None:
        sent = 0
        while data := await reader.read(self._random.choice((7, 100, 65_536))):
            is_request = direction == "request" and data.startswith((b"GET", b"POST"))
            if is_request and not self.is_calm and self._random.random() < 0.3:
                data += await self._read_rest(reader, data)
                task = asyncio.create_task(self._repeat(data))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                if self._random.random() < 0.5:
                    await asyncio.sleep(self._random.random() * 0.01)  # it may arrive before the first one
            if 0 <= limit < sent + len(data):
                writer.write(data[: limit - sent])
                with suppress(ConnectionError):
                    await writer.drain()
                self.done[f"cut {direction}"] += 1
                raise _Cut
            sent += len(data)
            writer.write(data)
            await writer.drain()
            if self._random.random() < 0.02:
                await asyncio.sleep(self._random.random() * 0.02)
        raise _Cut

    async def _read_rest(self, reader: asyncio.StreamReader, data: bytes) -> bytes:
        """Return what belongs to the request that begins with this data and has not been read."""
        rest = b""
        while b"\r\n\r\n" not in data + rest:
            if not (more := await reader.read(65_536)):
                return rest
            rest += more
        head, _, body = (data + rest).partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
        with suppress(asyncio.IncompleteReadError):
            rest += await reader.readexactly(max(0, int(length or b"0") - len(body)))
        return rest

    async def _repeat(self, request: bytes) -> None:
        """Send a request once more over a connection of its own, and hang up when it is answered."""
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
            writer.write(request)
            await reader.read(1000)
            self.done["repeated"] += 1
            writer.close()


class _Cut(Exception):
    pass


@asynccontextmanager
async def worsen(port: int, seed: str) -> AsyncGenerator[tuple[BadNetwork, int]]:
    """Give the proxy in front of a port, and its own port."""
    network = BadNetwork(port, seed)
    server = await network.listen()
    try:
        yield network, server.sockets[0].getsockname()[1]
    finally:
        server.close()
