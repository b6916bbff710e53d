"""Both engines behind one fixture, for tests that must not see a difference."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from odin.fleet.engine import FleetEngine, FleetRun, TaskState
from odin.fleet.run_table import RunTable
from odin.fleet.task import FleetTask
from odin.fleet.temporal import TemporalEngine
from odin.fleet.temporal_connection import TemporalServer, connect
from odin.fleet.temporal_workflows import FleetTiming

QUICK = FleetTiming(heartbeat_s=2, machine_s=1.5, pause_s=0)
_numbers = itertools.count()


class Engines(Protocol):
    """Opens engines on one run, as several processes do."""

    folder: Path
    name: str
    address: str
    slots: int

    async def open(self) -> FleetEngine: ...


class TableEngines:
    name = "run"
    address = ""
    slots = 2

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self) -> FleetEngine:
        return RunTable(self.folder / "run.sqlite", lease_s=2, poll_s=0.02, pause_s=0)


class TemporalEngines:
    """Runs with a task queue of their own on a server that all tests share. No more tasks than slots are in hand, which
    gives them the strict order of a table."""

    slots = 2

    def __init__(self, folder: Path, address: str, timing: FleetTiming = QUICK, name: str = "") -> None:
        self.folder = folder
        self.name = name or f"run{next(_numbers)}"
        self.address = address
        self.server = TemporalServer(address, queue=f"queue-{self.name}")
        self.timing = timing

    async def open(self) -> TemporalEngine:
        client = await connect(self.server, {}, timeout_s=30)
        timing = msgspec.structs.replace(self.timing, window=self.slots)
        return TemporalEngine(client, self.server, self.name, timing=timing, poll_s=0.2)


def make_run(engines: Engines, *, budget_usd: float = 0, attempts: int = 3) -> FleetRun:
    return FleetRun(engines.name, str(engines.folder / "store"), time.time(), budget_usd, attempts)


def make_tasks(*names: str) -> list[FleetTask]:
    return [FleetTask(name, f"prompt of {name}") for name in names]


async def wait_for(engine: FleetEngine, is_so: Callable[[dict[str, TaskState]], bool]) -> dict[str, TaskState]:
    """Return the tasks by their names when it is so."""
    while not is_so(states := {state.task.id: state for state in await engine.list_tasks()}):
        await asyncio.sleep(0.1)
    return states


def list_statuses(states: Sequence[TaskState]) -> dict[str, str]:
    return {state.task.id: state.result.outcome if state.result else state.status for state in states}
