"""`TimeSlice` lets other tasks run, but only when its time is used up."""

import asyncio

from odin.core.provider import TimeSlice


async def count_other_task_runs(time_slice: TimeSlice, items: int) -> int:
    count = 0

    async def run_other_task() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(run_other_task())
    for _ in range(items):
        await time_slice.maybe_yield()
    task.cancel()
    return count


async def test_other_tasks_run_when_the_time_slice_is_used_up() -> None:
    assert await count_other_task_runs(TimeSlice(after=0.0), 100) == 100


async def test_other_tasks_wait_while_the_time_slice_lasts() -> None:
    assert await count_other_task_runs(TimeSlice(after=600.0), 100) == 0
