"""Signals of the outside: the first one interrupts the turn, the second one ends the wait for it."""

import asyncio
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Self

from odin.core.client import Client
from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.core.op import Interrupt, Leftover

PATIENCE_S = 10.0
"""How long an interrupted turn may take to wind up before we leave without it."""

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


class Stopping:
    """While it is entered, SIGINT, SIGTERM and SIGHUP interrupt the session; `code` is then the exit code.

    Prompts that wait rest in the log, because the process ends; `queue` is for a SIGINT that ends only the turn.
    `after` takes the signals over, so that there is no moment in which one of them kills us.

    `asked` is done at the first signal; `gone` is done when there is nothing left to wait for.
    """

    def __init__(
        self,
        client: Client,
        patience: float = PATIENCE_S,
        queue: Leftover = "rest",
        after: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._queue: Leftover = queue
        self._after = after
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[bool]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self.code = 0
        self.asked: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()

    def __enter__(self) -> Self:
        for number, code in _CODES.items():
            try:
                self._loop.add_signal_handler(number, self.stop, code)
            except (ValueError, RuntimeError):
                break  # not the main thread: the program that embeds us keeps its signals
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._after is not None:
            self._after()
        else:
            for number in _CODES:
                self._loop.remove_signal_handler(number)
        if self._timer is not None:
            self._timer.cancel()

    def stop(self, code: int) -> None:
        if self.code:
            self._leave()
            return
        self.code = code
        self.asked.set_result(None)
        self._timer = self._loop.call_later(self._patience, self._leave)
        if self._running:
            self._interrupt()

    def see(self, envelope: Envelope) -> None:
        """Follow the session: a turn that begins when we were told to stop is stopped too."""
        if envelope.agent:
            return
        if isinstance(envelope.event, TurnStarted):
            self._running = True
            if self.code:
                self._interrupt()
        elif isinstance(envelope.event, TurnEnded):
            self._running = False

    def _interrupt(self) -> None:
        queue = self._queue if self.code == _CODES[signal.SIGINT] else "rest"
        task = self._loop.create_task(self._client.submit(Interrupt(queue)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _leave(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
