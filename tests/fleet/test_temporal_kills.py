"""A fleet on two machines whose workers, coordinator and Temporal server are killed at random."""

import asyncio
import os
import random
import re
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from odin.core.call_events import ToolEnded
from odin.core.event import TurnStarted
from odin.fleet.engine import TaskResult
from odin.fleet.task import FleetTask
from odin.fleet.temporal import TemporalEngine
from odin.fleet.temporal_connection import TemporalServer, connect
from odin.session.log import read_log
from odin.testing import ScriptedServer
from tests.fleet.coordinator import TIMING
from tests.fleet.runs import make_repository
from tests.fleet.temporal_server import TemporalProcess, run_temporal
from tests.fleet.test_kills import play
from tests.soak import choose, list_seeds, soak


class Machine:
    """A computer with a worker: a home of its own."""

    def __init__(self, home: Path, model: ScriptedServer) -> None:
        home.mkdir()
        self.home = home
        self._env = {**os.environ, **model.env("anthropic"), "HOME": str(home)}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, address: str, *flags: str) -> None:
        with (self.home / "worker.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "odin", "fleet", "worker", "--temporal", address, "--slots", "2", *flags),
                cwd=self.home,
                env=self._env,
                stdout=log,
                stderr=log,
            )

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def stop(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
            await self._process.wait()


async def start_coordinator(address: str, folder: Path) -> asyncio.subprocess.Process:
    with (folder / "coordinator.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fleet.coordinator", address, "k"),
            *(str(folder / "store"), str(folder / "tasks.jsonl")),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
        )


async def kill_at_random(
    rng: random.Random, count: int, machines: list[Machine], server: TemporalProcess, folder: Path
) -> Counter[str]:
    """Kill until the coordinator says that all is done, or `count` times. Return what was killed."""
    kills = Counter[str]()
    coordinator = await start_coordinator(server.address, folder)
    for machine in machines:
        await machine.start(server.address)
    while True:
        with suppress(TimeoutError):
            code = await asyncio.wait_for(coordinator.wait(), rng.uniform(0.5, 2.5))
            if code == 0:
                return kills
            coordinator = await start_coordinator(server.address, folder)
        for machine in machines:
            if not machine.is_up:  # it was started while there was no server
                await machine.start(server.address)
        if kills.total() < count:
            victim = rng.choice(["worker", "worker", "worker", "coordinator", "server"])
            kills[victim] += 1
            match victim:
                case "worker":
                    await (machine := rng.choice(machines)).stop(rng.choice([signal.SIGKILL, signal.SIGTERM]))
                    await machine.start(server.address)
                case "coordinator":
                    coordinator.kill()
                case _:
                    server.kill()
                    server.start()


@pytest.mark.slow
@soak
@pytest.mark.timeout(choose(300, 3600))
@pytest.mark.parametrize("seed", list_seeds(1, 3))
async def test_every_task_ends_once(seed: int, home: Path) -> None:
    rng, names = random.Random(seed), [f"t{number}" for number in range(choose(20, 200))]
    repository = make_repository(home / "repo", {"a.txt": "one\n"})
    tasks = [FleetTask(name, f"Task {name}.", str(repository), checks=("grep once log.txt",)) for name in names]
    (home / "tasks.jsonl").write_bytes(b"\n".join(msgspec.json.encode(task) for task in tasks))
    with ScriptedServer(play) as model, run_temporal(home) as server:
        machines = [Machine(home / name, model) for name in ("one", "two")]
        kills = await kill_at_random(rng, max(8, len(names) // 5), machines, server, home)
        engine = TemporalEngine(
            await connect(server := TemporalServer(server.address), {}), server, "k", timing=TIMING, poll_s=0.3
        )
        states = await engine.list_tasks()
        await engine.close()
        for machine in machines:
            await machine.stop(signal.SIGTERM)
    assert kills["worker"]
    assert {state.task.id: state.result.outcome for state in states if state.result} == dict.fromkeys(names, "passed")
    asked = Counter(re.findall(r"Task (t\d+)\.", str(request.messages))[0] for request in model.requests)
    for name in names:
        stored = msgspec.json.decode((home / "store" / name / "result.json").read_bytes(), type=TaskResult)
        assert (stored.outcome, stored.session[:-8]) == ("passed", f"k-{name}-0-"), name
        logs = [path for path in home.rglob("*.jsonl") if stored.session in str(path) and "sessions" in path.parts]
        assert len(logs) == 1, f"{name} ran on both machines"
        events = [envelope.event for envelope in read_log(logs[0])]
        ran = [event for event in events if isinstance(event, ToolEnded) and event.status == "success"]
        assert len(ran) == 1, name
        assert sum(isinstance(event, TurnStarted) and event.id == "task.0" for event in events) == 1, name
        assert asked[name] >= 2
    # Only a request that had no answer yet is sent again: at most one for each slot of a worker that dies.
    assert asked.total() <= 2 * len(names) + 2 * kills["worker"] + 4 * kills["server"]
