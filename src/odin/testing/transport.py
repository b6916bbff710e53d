"""The HTTP/1.1 side of the scripted server: reads requests and delivers responses, faults included."""

import asyncio
import socket
import struct
import time
import zlib
from http import HTTPStatus
from typing import Protocol, cast

from msgspec import Struct

from odin.testing.script import SeenRequest, Turn

MAX_HEAD = 256 * 1024


class HttpParseError(Exception):
    """The bytes are not an HTTP/1.1 request."""


class RawRequest(Struct):
    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    at: float
    length: int | None
    """None if the body is chunked."""
    body: bytes = b""


class RequestReader:
    """Collects bytes until a request is complete. The rest stays for the next one."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: RawRequest | None = None
        self._chunks: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def wants_continue(self) -> bool:
        """True once if the client waits for permission to send the body."""
        head = self._head
        return head is not None and head.headers.pop("expect", "").lower() == "100-continue"

    def take_request(self, now: float) -> RawRequest | None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise HttpParseError("The request headers are too long.")
                return None
            self._head = parse_head(bytes(self._buffer[:end]), now)
            del self._buffer[: end + 4]
        head = self._head
        if head.length is None:
            if not self._take_chunks():
                return None
            head.body = b"".join(self._chunks)
            self._chunks.clear()
        elif len(self._buffer) < head.length:
            return None
        else:
            head.body = bytes(self._buffer[: head.length])
            del self._buffer[: head.length]
        self._head = None
        return head

    def _take_chunks(self) -> bool:
        while True:
            line = self._buffer.find(b"\r\n")
            if line < 0:
                return False
            try:
                size = int(bytes(self._buffer[:line]).split(b";")[0], 16)
            except ValueError as error:
                raise HttpParseError("A chunk of the body has no size.") from error
            if len(self._buffer) < line + 2 + size + 2:
                return False
            self._chunks.append(bytes(self._buffer[line + 2 : line + 2 + size]))
            del self._buffer[: line + 2 + size + 2]
            if size == 0:
                return True


def parse_head(head: bytes, now: float) -> RawRequest:
    lines = head.decode("latin-1").split("\r\n")
    try:
        method, path, version = lines[0].split(" ")
    except ValueError as error:
        raise HttpParseError("The request line is malformed.") from error
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpParseError(f"{version} is not spoken here.")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise HttpParseError("A header has no colon.")
        headers[name.strip().lower()] = value.strip()
    connection = headers.get("connection", "").lower()
    keep_alive = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise HttpParseError("The content-length is not a number.")
    if "://" in path:  # what a client sends to a proxy
        path = "/" + path.split("/", 3)[3]
    return RawRequest(method, path, headers, keep_alive, now, None if chunked else int(length))


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


_POLL = 0.002


class ServerAnswer(Struct):
    """What to send. A stream is sent in chunks, anything else with its length."""

    status: int
    headers: dict[str, str]
    frames: list[bytes]
    is_stream: bool = False
    ping: bytes = b""


async def deliver(answer: ServerAnswer, turn: Turn, line: "ClientConnection") -> bool:
    """Send the response as the turn says. Return False if the connection is no longer usable.

    The connection cancels the delivery when the client is gone.
    """
    if turn.delay_s:
        await asyncio.sleep(turn.delay_s)
    if turn.drop:
        line.abort(turn.rst)
        return False
    if turn.gzipped:
        # Flush every frame, so that a client can read a compressed stream as it arrives.
        packer = zlib.compressobj(wbits=31)
        answer.frames = [packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH) for frame in answer.frames]
        answer.frames.append(packer.flush())
        answer.headers["content-encoding"] = "gzip"
    headers = _build_headers(answer, turn)
    wire = [encode_chunk(frame) if answer.is_stream else frame for frame in answer.frames if frame]
    last = LAST_CHUNK if answer.is_stream else b""
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Overloaded" if answer.status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {answer.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    marks = (turn.stall_after, turn.ping_after, turn.cut_after, turn.cut_bytes)
    if not (turn.trickled or turn.pace_s > 0 or turn.gate is not None or any(mark is not None for mark in marks)):
        line.write(b"".join((head, *wire, last)))
        await line.drain()
        return True
    ping = encode_chunk(answer.ping) if answer.is_stream and answer.ping else b""
    return await _deliver_stepwise(turn, line, ping, [head, *wire, last])


def _build_headers(answer: ServerAnswer, turn: Turn) -> dict[str, str]:
    """Return the headers with framing; the turn's headers come last and may remove others."""
    headers = dict(answer.headers)
    if answer.is_stream:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(sum(map(len, answer.frames)))
    for name, value in turn.headers.items():
        headers.pop(name.lower(), None)
        if value is not None:
            headers[name.lower()] = value
    return headers


async def _deliver_stepwise(turn: Turn, line: "ClientConnection", ping: bytes, pieces: list[bytes]) -> bool:
    """Send piece by piece, applying the turn's faults in between."""
    head, *wire, last = pieces
    cut_at = turn.cut_after
    if turn.cut_bytes is not None:
        wire = _truncate_frames(wire, turn.cut_bytes, chunked=bool(last))
        cut_at = len(wire)

    def is_at(mark: int | None) -> bool:
        return mark is not None and min(mark, len(wire)) == index

    async def send(data: bytes) -> None:
        if not turn.trickled:
            line.write(data)
        else:
            for at in range(len(data)):
                line.write(data[at : at + 1])
                await asyncio.sleep(0)
        await line.drain()

    await send(head)
    for index in range(len(wire) + 1):
        # The gate belongs to a thread, not to this loop.
        while turn.gate is not None and is_at(turn.gate_after) and not turn.gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(_POLL)
        if is_at(turn.stall_after):
            await asyncio.Event().wait()
        while is_at(turn.ping_after):
            await send(ping)
            await asyncio.sleep(turn.ping_every)
        if is_at(cut_at):
            line.abort(turn.rst)
            return False
        if index < len(wire):
            await send(wire[index])
            await asyncio.sleep(turn.pace_s)
    await send(last)
    return True


def _truncate_frames(wire: list[bytes], size: int, *, chunked: bool) -> list[bytes]:
    """Return the frames up to this many bytes of body. A cut chunk still announces its full length."""
    out: list[bytes] = []
    for chunk in wire:
        start = chunk.index(b"\r\n") + 2 if chunked else 0
        body = len(chunk) - start - (2 if chunked else 0)
        if body > size:
            out.append(chunk[: start + size])
            return out
        out.append(chunk)
        size -= body
    return out


_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class ConnectionHost(Protocol):
    """What a connection needs from the server."""

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
        """Close without a response. A reset also discards what the client has not read."""
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
