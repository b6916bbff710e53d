"""Work in threads: whatever becomes of the wait for it, what it made is undone."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from odin.core.timing import run_in_thread
from tests.waiting import LIMIT_S, TimeLimit


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_what_cancelled_work_has_made_is_undone(cancellations: int) -> None:
    begun, may_end = threading.Event(), threading.Event()
    undone: asyncio.Queue[str] = asyncio.Queue()

    def work(stopped: Callable[[], bool]) -> str:
        begun.set()
        assert may_end.wait(LIMIT_S)
        return "made, and was told" if stopped() else "made"

    task = asyncio.create_task(run_in_thread(work, undone.put_nowait))
    await asyncio.to_thread(begun.wait, LIMIT_S)
    for _ in range(cancellations):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    may_end.set()
    async with TimeLimit():
        assert await undone.get() == "made, and was told"
        with pytest.raises(asyncio.CancelledError):
            await task
    assert undone.empty()


async def test_failed_work_has_nothing_to_undo() -> None:
    begun, may_end = threading.Event(), threading.Event()
    undone: list[object] = []

    def work(_: Callable[[], bool]) -> str:
        begun.set()
        assert may_end.wait(LIMIT_S)
        raise OSError("full")

    task = asyncio.create_task(run_in_thread(work, undone.append))
    await asyncio.to_thread(begun.wait, LIMIT_S)
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    async with TimeLimit():
        with pytest.raises(asyncio.CancelledError):
            await task
    assert undone == []
