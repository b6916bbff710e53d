"""A worker whose tasks never end: ENGINE FOLDER NAME ADDRESS. The test kills it."""

import asyncio
import sys
from pathlib import Path

from odin.fleet.engine import Attempt, Progress, TaskResult
from tests.fleet.engines import TableEngines, TemporalEngines


async def hang(attempt: Attempt) -> TaskResult:
    await attempt.report(Progress(7, 1, 100, 0.25, "Bash"))
    await asyncio.Event().wait()
    raise AssertionError


async def main(kind: str, folder: str, name: str, address: str) -> None:
    engines = TableEngines(Path(folder)) if kind == "table" else TemporalEngines(Path(folder), address, name=name)
    engine = await engines.open()
    await engine.work(hang, 1, "machine")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
