"""Lets others have their turn: who works through much that is already there must not keep keys and timers waiting."""

import asyncio
import time

SLICE_S = 0.004


class TimeSlice:
    """A stream whose next piece is always there never waits, and so nothing else would run until it is empty."""

    def __init__(self, after: float = SLICE_S) -> None:
        self._after = after
        self._deadline = time.monotonic() + after

    async def maybe_yield(self) -> None:
        """To be called after each piece; it lets the others run when this one has worked for long enough."""
        if time.monotonic() >= self._deadline:
            await asyncio.sleep(0)
            self._deadline = time.monotonic() + self._after
