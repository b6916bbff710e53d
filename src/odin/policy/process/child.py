"""One process that was started, as its owner sees it: its number, the moment it ends, and with which code."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Protocol

from odin.policy.process.leftover import is_group_alive, list_group_members


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
