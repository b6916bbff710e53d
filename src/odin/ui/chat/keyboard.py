"""Waiting for a line at the prompt while the session lives on: its background processes, and turns it begins itself."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

from odin.core.client import Client
from odin.core.event import Envelope, TurnStarted
from odin.core.op import Prompt


class Begun:
    """A turn that began while nobody had typed anything, and what happens in it."""

    def __init__(self, first: Envelope, started: TurnStarted, events: AsyncIterator[Envelope]) -> None:
        self.prompt = Prompt(started.id, started.text, started.mode)
        self._first = first
        self._events = events

    async def events(self) -> AsyncIterator[Envelope]:
        yield self._first
        async for envelope in self._events:
            yield envelope

    def close(self) -> None:
        _close(self._events)


async def next_line(client: Client, prompt: str) -> str | Begun | None:
    """What was typed, or the turn that began before it; None when there is nothing more to wait for."""
    loop = asyncio.get_running_loop()
    events = client.events()
    turn = loop.create_task(_first_turn(events))
    typed: asyncio.Future[bool] = loop.create_future()

    def settle(line: bool) -> None:
        if not typed.done():
            typed.set_result(line)

    fd = sys.stdin.fileno()
    loop.add_reader(fd, settle, True)
    loop.add_signal_handler(signal.SIGINT, settle, False)
    sys.stdout.write(prompt)
    sys.stdout.flush()
    try:
        await asyncio.wait({turn, typed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(fd)
        loop.remove_signal_handler(signal.SIGINT)
        if not turn.done():
            turn.cancel()
            _close(events)
    if turn.done() and not turn.cancelled():
        sys.stdout.write("\n")
        return turn.result()
    line = sys.stdin.readline() if typed.result() else ""
    if not line:
        sys.stderr.write("\n")
    return line or None


async def _first_turn(events: AsyncIterator[Envelope]) -> Begun | None:
    async for envelope in events:
        if isinstance(envelope.event, TurnStarted) and not envelope.agent:
            return Begun(envelope, envelope.event, events)
    return None


def _close(events: AsyncIterator[Envelope]) -> None:
    """A reader that has left must not be kept events for."""
    close = getattr(events, "close", None)
    if close is not None:
        close()
