"""Standard input and output without threads and without changing the file descriptors, which others may share.

A descriptor is only touched when the event loop says it is ready, so a slow reader never stops the agent and a client
that writes before it reads is never locked out.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator

_CHUNK = 65536
_ATOMIC = 4096
"""A pipe that is ready takes at least this much without blocking."""


class PipeWriter:
    """Bytes for one file descriptor, in order. What cannot be written now waits here."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[memoryview] = deque()
        self._drained: asyncio.Future[None] | None = None
        self._is_regular_file = False
        self.broken: asyncio.Future[None] = self._loop.create_future()
        """Done when nobody reads any more."""

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
        """Wait until all is written. False when the reader went away before that."""
        while self._unwritten and not self.broken.done():
            self._drained = self._loop.create_future()
            await self._drained
        return not self.broken.done()

    def close(self) -> None:
        """Give up what is still waiting."""
        if self._unwritten:
            self._unwritten.clear()
            self._loop.remove_writer(self._fd)

    def _write_file(self, data: bytes) -> None:
        """A regular file: always ready, and the event loop does not watch it."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._break()

    def _flush(self) -> None:
        view = self._unwritten[0]
        try:
            written = os.write(self._fd, view[:_ATOMIC])
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        if written < len(view):
            self._unwritten[0] = view[written:]
            return
        self._unwritten.popleft()
        if not self._unwritten:
            self._loop.remove_writer(self._fd)
            self._wake()

    def _break(self) -> None:
        self.close()
        self.broken.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


async def read_lines(fd: int) -> AsyncIterator[bytes]:
    """The lines of a file descriptor as they come, without their ends; the last one may lack its end."""
    pieces: list[bytes] = []
    while chunk := await _read_chunk(fd):
        head, *rest = chunk.split(b"\n")
        pieces.append(head)
        for line in rest:
            yield b"".join(pieces)
            pieces = [line]
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
