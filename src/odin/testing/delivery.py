"""How an answer travels: whole and at once, or late, torn, garbled and in single bytes, as the turn asks."""

import asyncio
import zlib
from typing import Protocol

from msgspec import Struct

from odin.testing.script import Turn
from odin.testing.wire import LAST_CHUNK, chunk_bytes, head_bytes

_POLL = 0.002


class Answer(Struct):
    """What is to be sent. A stream goes out in chunks, anything else with its length."""

    status: int
    headers: dict[str, str]
    frames: list[bytes]
    streamed: bool = False
    ping: bytes = b""


class Line(Protocol):
    """One connection to one client. It cancels the delivery when the client is gone."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    def abort(self, reset: bool) -> None: ...


async def deliver(answer: Answer, turn: Turn, line: Line) -> bool:
    """Send the answer the way the turn wants it. False when the connection is no longer usable."""
    if turn.delay_s:
        await asyncio.sleep(turn.delay_s)
    if turn.drop:
        line.abort(turn.rst)
        return False
    if turn.gzipped:
        _compress(answer)
    headers = _framed(answer, turn)
    wire = [chunk_bytes(frame) if answer.streamed else frame for frame in answer.frames if frame]
    last = LAST_CHUNK if answer.streamed else b""
    head = head_bytes(answer.status, headers)
    if not _is_stepwise(turn):
        line.write(b"".join((head, *wire, last)))
        await line.drained()
        return True
    return await _Steps(turn, line, answer).play(head, wire, last)


def _is_stepwise(turn: Turn) -> bool:
    marks = (turn.stall_after, turn.ping_after, turn.cut_after, turn.cut_bytes)
    return turn.trickled or turn.pace_s > 0 or turn.gate is not None or any(mark is not None for mark in marks)


def _framed(answer: Answer, turn: Turn) -> dict[str, str]:
    """The headers with the framing; what the turn says comes last and may also take a header away."""
    headers = dict(answer.headers)
    if answer.streamed:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(sum(map(len, answer.frames)))
    for name, value in turn.headers.items():
        headers.pop(name.lower(), None)
        if value is not None:
            headers[name.lower()] = value
    return headers


def _compress(answer: Answer) -> None:
    """Every frame is flushed, so that a client can read a compressed stream as it comes."""
    packer = zlib.compressobj(wbits=31)
    answer.frames = [packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH) for frame in answer.frames]
    answer.frames.append(packer.flush())
    answer.headers["content-encoding"] = "gzip"


class _Steps:
    """Sends piece by piece, looking before each whether something is to happen there."""

    def __init__(self, turn: Turn, line: Line, answer: Answer) -> None:
        self._turn = turn
        self._line = line
        self._ping = chunk_bytes(answer.ping) if answer.streamed and answer.ping else b""

    async def play(self, head: bytes, wire: list[bytes], last: bytes) -> bool:
        turn = self._turn
        cut_at = turn.cut_after
        if turn.cut_bytes is not None:
            wire = _truncated(wire, turn.cut_bytes, chunked=bool(last))
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
        await self._line.drained()


def _truncated(wire: list[bytes], size: int, *, chunked: bool) -> list[bytes]:
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
