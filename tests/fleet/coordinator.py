"""A coordinator that can be killed: ADDRESS NAME STORE TASKS. Whoever comes next with the same name goes on."""

import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from odin.core.errors import OdinError, UsageError
from odin.fleet.engine import FleetRun
from odin.fleet.task import read_tasks
from odin.fleet.temporal import TemporalEngine
from odin.fleet.temporal_connection import TemporalServer, connect
from odin.fleet.temporal_workflows import FleetTiming
from tests.fleet.hanging_worker import hang

TIMING = FleetTiming(heartbeat_s=2, machine_s=30, pause_s=0, window=12)


async def main(address: str, name: str, store: str, tasks: str) -> None:
    server = TemporalServer(address)
    while True:
        with suppress(OdinError):
            client = await connect(server, {})
            break
    engine = TemporalEngine(client, server, name, timing=TIMING, poll_s=0.3)
    with suppress(UsageError):
        await engine.submit(FleetRun(name, store, time.time(), attempts=50), read_tasks(Path(tasks), Path.home()))
    await engine.work(hang, 0, "")
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    os._exit(0)  # as `odin` does: threads of the Temporal library may crash an interpreter that ends
