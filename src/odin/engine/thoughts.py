"""Reasoning on its way to people: a few pieces a second while it comes, then each block once as a whole."""

import asyncio
import time
from collections.abc import Callable

from odin.core.event import AnyEvent, ThinkingEnded, ThinkingStarted, ThinkingStreamed
from odin.core.provider import ThinkingChunk

FLUSH_EVERY_S = 0.15
"""Deltas that come closer together than this are joined: nobody reads faster, and some models send one per token."""


class ReasoningStream:
    """Follows the reasoning of one reply. A timer runs only while something waits to be shown."""

    def __init__(self, emit: Callable[[AnyEvent], None]) -> None:
        self._emit = emit
        self._started_at: float | None = None
        self._block: list[str] = []
        self._waiting: list[str] = []
        self._final = ""
        self._timer: asyncio.TimerHandle | None = None

    def add_chunk(self, piece: ThinkingChunk) -> None:
        if piece.text or piece.final:
            self._begin_block()
            self._final = piece.final or self._final
        if piece.text:
            self._block.append(piece.text)
            self._waiting.append(piece.text)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self._flush)
        if piece.signature:
            self.end()

    def end(self) -> None:
        """The block is over, if one is open: what the provider gave as its whole text wins."""
        if self._started_at is None:
            return
        self._flush()
        text = self._final or "".join(self._block)
        seconds = round(time.monotonic() - self._started_at, 3)
        self.drop()
        self._emit(ThinkingEnded(text, seconds))

    def drop(self) -> None:
        """Forget an unfinished block: the reply starts again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._started_at, self._final = None, ""
        self._block, self._waiting = [], []

    def _begin_block(self) -> None:
        if self._started_at is None:
            self._started_at = time.monotonic()
            self._emit(ThinkingStarted())

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._emit(ThinkingStreamed("".join(waiting)))
