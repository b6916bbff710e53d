"""`odin fleet`: many tasks in many repositories, on this machine or on many."""

import argparse
import asyncio
import os
import time
from pathlib import Path

from odin.commands.command_line import Parser, make_formatter, write_output
from odin.config import get_home_dir, get_state_dir
from odin.core.errors import UsageError
from odin.fleet.engine import FleetRun
from odin.fleet.result_store import open_store
from odin.fleet.run_table import RunTable
from odin.fleet.task import find_missing, read_tasks
from odin.fleet.worker import Worker


def run_fleet(argv: list[str]) -> int:
    parser = Parser(prog="odin fleet", description="Run many tasks.", formatter_class=make_formatter)
    add = parser.add_argument
    add("what", choices=("run",), metavar="WHAT")
    add("source", nargs="?", default="", metavar="TASKS")
    add("--name", default="", metavar="NAME")
    add("--store", default="", metavar="URL")
    add("--workers", type=int, default=0, metavar="N")
    args = parser.parse_args(argv)
    return asyncio.run(_run(args))


def get_fleet_folder() -> Path:
    base = os.environ.get("XDG_DATA_HOME", "")
    return Path(base if base.startswith("/") else get_home_dir(os.environ) / ".local" / "share") / "odin" / "fleet"


async def _run(args: argparse.Namespace) -> int:
    tasks = read_tasks(Path(args.source), get_home_dir(os.environ))
    if missing := find_missing(tasks):
        raise UsageError("\n".join(missing))
    name = args.name or time.strftime("%Y%m%d-%H%M%S")
    folder = get_fleet_folder() / name
    store = args.store or str(folder / "results")
    open_store(store).check()
    state = get_state_dir(os.environ)
    table = RunTable(state / "fleet" / f"{name}.sqlite")
    try:
        await table.submit(FleetRun(name, store, time.time()), tasks)
        worker = Worker(folder, state, os.environ)
        await table.work(worker.perform, args.workers or os.cpu_count() or 2, f"{os.getpid()}")
        for state in await table.list_tasks():
            write_output(f"{state.task.id} {state.status} {state.result}\n")
    finally:
        await table.close()
    return 0
