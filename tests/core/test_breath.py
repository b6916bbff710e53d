"""Whoever works through much lets others run in between, and not more often than is needed."""

import asyncio

from odin.core.provider import TimeSlice


async def turns_of_others(breath: TimeSlice, pieces: int) -> int:
    count = 0

    async def other() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(pieces):
        await breath.maybe_yield()
    task.cancel()
    return count


async def test_others_run_while_much_is_worked_through() -> None:
    assert await turns_of_others(TimeSlice(after=0.0), 100) == 100


async def test_little_work_is_not_interrupted() -> None:
    assert await turns_of_others(TimeSlice(after=600.0), 100) == 0
