"""Keeps long loops from starving the event loop."""

import asyncio
import time

SLICE_S = 0.004


class TimeSlice:
    """An async iterator that never blocks starves the event loop; yield after 4 ms of work."""

    def __init__(self, after: float = SLICE_S) -> None:
        self._after = after
        self._deadline = time.monotonic() + after

    async def maybe_yield(self) -> None:
        """Call after each item; lets other tasks run if this one has used up its time slice."""
        if time.monotonic() >= self._deadline:
            await asyncio.sleep(0)
            self._deadline = time.monotonic() + self._after
