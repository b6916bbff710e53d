"""How a process ended, in words.

One process that was started, as its owner sees it: its number, the moment it ends, and with which code.

One started process: its pipes, the moment it ends, and how to end it with everything it started.
"""

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Protocol

from odin.sandbox.orphans import (
    find_marked,
    is_any_alive,
    is_group_alive,
    kill_marked,
    list_group_members,
    signal_group,
    signal_marked,
)
from odin.sandbox.output import OutputSink


def describe_exit(code: int) -> str:
    """`exit code 3` or `killed by signal SIGTERM`."""
    return f"exit code {code}" if code >= 0 else f"killed by signal {signal_name_of(-code)}"


def signal_name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class ChildProcess(Protocol):
    """The leader of a group of its own."""

    @property
    def pid(self) -> int: ...

    @property
    def code(self) -> int:
        """How it ended; negative for a signal. Known once it was collected."""
        ...

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Call this once, in the loop that runs now, when it has ended."""
        ...

    def collect(self) -> dict[int, int]:
        """It has ended: take its code. Returns what lives on in its group, with the start of each."""
        ...

    def reap(self) -> bool:
        """Collect one that was just killed, without a loop, in a moment. False when it is still there."""
        ...


class LocalChild:
    """A child of this process."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._pidfd = -1
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def code(self) -> int:
        return self._popen.returncode

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Through a pidfd, or from a thread where the system has none."""
        self._loop = loop = asyncio.get_running_loop()
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, args=[loop, on_exit], daemon=True).start()
        else:
            loop.add_reader(self._pidfd, on_exit)

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]) -> None:
        self._popen.wait()
        if not loop.is_closed():
            loop.call_soon_threadsafe(on_exit)

    def collect(self) -> dict[int, int]:
        self._unwatch()
        self._popen.wait()
        return list_group_members(self.pid) if is_group_alive(self.pid) else {}

    def reap(self) -> bool:
        self._unwatch()
        try:
            self._popen.wait(1.0)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


_CHUNK = 65_536

_SMALL_READ = 8_192
_PAUSE = 0.002
"""A program that prints in small pieces is left alone for a moment, so that many of them are read at once."""


class OutputPipe:
    """One pipe of a process, read whenever the loop says there is something to read."""

    def __init__(self, fd: int, sink: OutputSink, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self.sink = sink
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._on_ready)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def drain(self) -> None:
        """Take what the pipe still holds; a child that prints for ever must not keep us here."""
        for _ in range(32):
            if not self.is_open or not self._read():
                return

    def _on_ready(self) -> None:
        before = self.sink.total
        if self._read() and self.sink.total - before < _SMALL_READ:
            self._loop.remove_reader(self._fd)
            self._loop.call_later(_PAUSE, self._resume)

    def _resume(self) -> None:
        if self.is_open:
            self._loop.add_reader(self._fd, self._on_ready)

    def _read(self) -> bool:
        """Take one piece. False when there is nothing more at the moment."""
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.sink.add(data)
            self._on_data(data)
            return True
        self.close()
        self._on_end()
        return False

    def close(self) -> None:
        if self.is_open:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self.sink.close()


class RunningProcess:
    """A started process: its pipes, the moment it ended, and what it left running in its group."""

    def __init__(self, child: ChildProcess, mark: str, linger: float) -> None:
        self._child = child
        self.mark = mark
        self.pipes: list[OutputPipe] = []
        self.exited = False
        self.survivors: dict[int, int] = {}
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def code(self) -> int:
        return self._child.code if self.exited else -signal.SIGKILL

    @property
    def is_reading(self) -> bool:
        """Whether somebody may still print."""
        return any(pipe.is_open for pipe in self.pipes)

    def attach_pipe(self, fd: int, sink: OutputSink, on_data: Callable[[bytes], None]) -> None:
        self.pipes.append(OutputPipe(fd, sink, on_data, self._on_pipe_end))

    def watch(self) -> None:
        self._child.watch(self._on_exit)

    def _on_exit(self) -> None:
        self.survivors = self._child.collect()
        self.exited = True
        for pipe in self.pipes:
            pipe.drain()
        if self.is_reading:
            self._loop.call_later(self._linger, self._settle)
        else:
            self._settle()

    def _on_pipe_end(self) -> None:
        if self.exited and not self.is_reading:
            self._settle()

    def _settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def send_signal(self, number: int) -> None:
        """To the whole group, and to everything that carries our mark wherever it moved."""
        if not self.exited or self.has_survivors():
            signal_group(self.pid, number)
        signal_marked(self.mark, number)

    def has_survivors(self) -> bool:
        """Whether members outlived the leader. The group's number alone proves nothing: strangers may get it later."""
        return is_any_alive(self.survivors)

    def is_alive(self) -> bool:
        return not self.exited or self.has_survivors() or bool(find_marked(self.mark))

    async def wait_until_gone(self, seconds: float) -> bool:
        """Wait until nothing of it is left, but not longer than this."""
        deadline = time.monotonic() + seconds
        pause = 0.002
        while self.is_alive():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
        return True

    async def terminate(self, grace: float) -> None:
        """TERM, and CONT for what was stopped; KILL after the grace. A cancellation meanwhile goes straight to KILL."""
        try:
            self.send_signal(signal.SIGTERM)
            self.send_signal(signal.SIGCONT)
            await self.wait_until_gone(grace)
        finally:
            self.send_signal(signal.SIGKILL)
            kill_marked(self.mark)
        await self.wait_until_gone(1.0)

    def reap(self) -> None:
        """Collect a process that was just killed, without a loop. Whoever waits for it learns of its end."""
        self.exited = self._child.reap() or self.exited
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
