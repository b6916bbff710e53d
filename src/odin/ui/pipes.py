"""Asynchronous standard input and output without threads.

The descriptors may be shared with other processes, so they are not made non-blocking; they are used only when the
event loop reports them ready. A slow reader never blocks the agent, and a client may write before it reads.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator

from odin.ui.terminal import escape_json

_CHUNK = 65536
_ATOMIC = 4096
"""A ready pipe accepts at least this many bytes without blocking."""


class PipeWriter:
    """Writes bytes to a file descriptor in order, and buffers what cannot be written yet."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[memoryview] = deque()
        self._drained: asyncio.Future[None] | None = None
        self._is_regular_file = False
        self.broken: asyncio.Future[None] = self._loop.create_future()
        """Done when the pipe accepts no more output."""
        self.error: OSError | None = None
        """Why, unless the reader is gone."""

    def write_json(self, data: bytes) -> None:
        """Write one line of JSON; on a terminal, with deceptive characters escaped."""
        self.write((escape_json(data) if os.isatty(self._fd) else data) + b"\n")

    def write(self, data: bytes) -> None:
        if self.broken.done() or not data:
            return
        if self._is_regular_file:
            self._write_file(data)
            return
        idle = not self._unwritten
        self._unwritten.append(memoryview(data))
        if idle:
            try:
                self._loop.add_writer(self._fd, self._flush)
            except PermissionError:
                self._is_regular_file = True
                self._unwritten.clear()
                self._write_file(data)

    async def drain(self) -> bool:
        """Wait until everything is written. Return False if that failed or the reader went away first."""
        while self._unwritten and not self.broken.done():
            if self._drained is None or self._drained.done():
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        return not self.broken.done()

    def close(self) -> None:
        """Discard what is not written yet."""
        if self._unwritten:
            self._unwritten.clear()
            self._loop.remove_writer(self._fd)

    def _write_file(self, data: bytes) -> None:
        """Write to a regular file, which is always ready and which the event loop cannot watch."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._break(error)

    def _flush(self) -> None:
        view = self._unwritten[0]
        try:
            written = os.write(self._fd, view[:_ATOMIC])
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
            return
        if written < len(view):
            self._unwritten[0] = view[written:]
            return
        self._unwritten.popleft()
        if not self._unwritten:
            self._loop.remove_writer(self._fd)
            self._wake()

    def _break(self, error: OSError) -> None:
        self.error = None if isinstance(error, BrokenPipeError) else error
        self.close()
        self.broken.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


async def read_lines(fd: int, limit: int = sys.maxsize) -> AsyncIterator[bytes]:
    """Yield the lines of a file descriptor as they arrive, without line ends.

    A line of more than `limit` bytes is cut after one more; the rest is not kept in memory.
    """
    pieces: list[bytes] = []
    room = limit + 1
    while chunk := await _read_chunk(fd):
        head, *rest = chunk.split(b"\n")
        pieces.append(head[:room])
        room -= len(pieces[-1])
        for line in rest:
            yield b"".join(pieces)
            pieces = [line[: limit + 1]]
            room = limit + 1 - len(pieces[0])
    if last := b"".join(pieces):
        yield last


async def _read_chunk(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(fd, _mark_ready, ready)
    except PermissionError:
        return os.read(fd, _CHUNK)
    try:
        await ready
        return os.read(fd, _CHUNK)
    finally:
        loop.remove_reader(fd)


def _mark_ready(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
