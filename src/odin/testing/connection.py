"""One kept connection of a client: requests are read, answered one after another, and recorded."""

import asyncio
import socket
import struct
import time
from typing import Protocol, cast

from odin.testing.delivery import ServerAnswer, deliver
from odin.testing.script import Turn
from odin.testing.seen import SeenRequest
from odin.testing.wire import HttpParseError, RawRequest, RequestReader

_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class ConnectionHost(Protocol):
    """What a connection needs of the server."""

    connections: "set[ClientConnection]"

    def record_request(self, raw: RawRequest) -> SeenRequest: ...

    def answer(self, seen: SeenRequest) -> tuple[ServerAnswer, Turn]: ...

    def record_end(self, seen: SeenRequest, *, complete: bool) -> None: ...


class ClientConnection(asyncio.Protocol):
    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._reader = RequestReader()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._writable.set()
        self._host.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._host.connections.discard(self)
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._start_next()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the kernel has every byte."""
        await self._writable.wait()

    def abort(self, reset: bool) -> None:
        """Close without a word. A reset also throws away what the client has not read yet."""
        transport = self._transport
        if transport is None:
            return
        if reset:
            raw: socket.socket = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _start_next(self) -> None:
        if self.task is not None:
            return
        try:
            raw = self._reader.take_request(time.monotonic())
        except HttpParseError:
            self.write(_BAD_REQUEST)
            self._close()
            return
        if raw is not None:
            self.task = asyncio.get_running_loop().create_task(self._answer(raw))
        elif self._reader.wants_continue():
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer(self, raw: RawRequest) -> None:
        seen = self._host.record_request(raw)
        complete = False
        try:
            answer, turn = self._host.answer(seen)
            seen.status = answer.status
            usable = await deliver(answer, turn, self)
            complete = True
        finally:
            self._host.record_end(seen, complete=complete)
            self.task = None
        if usable and raw.keep_alive:
            self._start_next()
        else:
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
