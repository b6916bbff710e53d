"""How an answer travels: whole and at once, or late, torn, garbled and in single bytes, as the turn asks."""

import asyncio
import zlib
from typing import Protocol

from msgspec import Struct

from odin.testing.script import Turn
from odin.testing.wire import LAST_CHUNK, encode_chunk, encode_head

_POLL = 0.002


class ServerAnswer(Struct):
    """What is to be sent. A stream goes out in chunks, anything else with its length."""

    status: int
    headers: dict[str, str]
    frames: list[bytes]
    is_stream: bool = False
    ping: bytes = b""


class ClientLink(Protocol):
    """One connection to one client. It cancels the delivery when the client is gone."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def abort(self, reset: bool) -> None: ...


async def deliver(answer: ServerAnswer, turn: Turn, line: ClientLink) -> bool:
    """Send the answer the way the turn wants it. False when the connection is no longer usable."""
    if turn.delay_s:
        await asyncio.sleep(turn.delay_s)
    if turn.drop:
        line.abort(turn.rst)
        return False
    if turn.gzipped:
        _compress(answer)
    headers = _build_headers(answer, turn)
    wire = [encode_chunk(frame) if answer.is_stream else frame for frame in answer.frames if frame]
    last = LAST_CHUNK if answer.is_stream else b""
    head = encode_head(answer.status, headers)
    if not _is_stepwise(turn):
        line.write(b"".join((head, *wire, last)))
        await line.drain()
        return True
    return await _StepwiseDelivery(turn, line, answer).play(head, wire, last)


def _is_stepwise(turn: Turn) -> bool:
    marks = (turn.stall_after, turn.ping_after, turn.cut_after, turn.cut_bytes)
    return turn.trickled or turn.pace_s > 0 or turn.gate is not None or any(mark is not None for mark in marks)


def _build_headers(answer: ServerAnswer, turn: Turn) -> dict[str, str]:
    """The headers with the framing; what the turn says comes last and may also take a header away."""
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


def _compress(answer: ServerAnswer) -> None:
    """Every frame is flushed, so that a client can read a compressed stream as it comes."""
    packer = zlib.compressobj(wbits=31)
    answer.frames = [packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH) for frame in answer.frames]
    answer.frames.append(packer.flush())
    answer.headers["content-encoding"] = "gzip"


class _StepwiseDelivery:
    """Sends piece by piece, looking before each whether something is to happen there."""

    def __init__(self, turn: Turn, line: ClientLink, answer: ServerAnswer) -> None:
        self._turn = turn
        self._line = line
        self._ping = encode_chunk(answer.ping) if answer.is_stream and answer.ping else b""

    async def play(self, head: bytes, wire: list[bytes], last: bytes) -> bool:
        turn = self._turn
        cut_at = turn.cut_after
        if turn.cut_bytes is not None:
            wire = _truncate_frames(wire, turn.cut_bytes, chunked=bool(last))
            cut_at = len(wire)
        await self._send(head)
        for index in range(len(wire) + 1):
            if not await self._go_on(index, len(wire), cut_at):
                return False
            if index < len(wire):
                await self._send(wire[index])
                await asyncio.sleep(turn.pace_s)
        await self._send(last)
        return True

    async def _go_on(self, index: int, count: int, cut_at: int | None) -> bool:
        turn = self._turn

        def here(mark: int | None) -> bool:
            return mark is not None and min(mark, count) == index

        if turn.gate is not None and here(turn.gate_after):
            while not turn.gate.is_set():  # noqa: ASYNC110 - the gate belongs to a thread, not to this loop
                await asyncio.sleep(_POLL)
        if here(turn.stall_after):
            await asyncio.Event().wait()
        while here(turn.ping_after):
            await self._send(self._ping)
            await asyncio.sleep(turn.ping_every)
        if here(cut_at):
            self._line.abort(turn.rst)
            return False
        return True

    async def _send(self, data: bytes) -> None:
        if not self._turn.trickled:
            self._line.write(data)
        else:
            for at in range(len(data)):
                self._line.write(data[at : at + 1])
                await asyncio.sleep(0)
        await self._line.drain()


def _truncate_frames(wire: list[bytes], size: int, *, chunked: bool) -> list[bytes]:
    """The pieces up to so many bytes of body. A chunk that is cut still announces its whole length."""
    out: list[bytes] = []
    for piece in wire:
        start = piece.index(b"\r\n") + 2 if chunked else 0
        body = len(piece) - start - (2 if chunked else 0)
        if body > size:
            out.append(piece[: start + size])
            return out
        out.append(piece)
        size -= body
    return out
