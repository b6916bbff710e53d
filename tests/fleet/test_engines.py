"""The contract of both engines, with tasks that only pretend to work."""

import asyncio
import os
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from signal import SIGKILL

import pytest

from odin.core.errors import UsageError
from odin.fleet.engine import Attempt, FleetEngine, Progress, Signal, TaskResult, WorkerLost
from odin.fleet.summary import get_usd
from tests.fleet.engines import Engines, list_statuses, make_run, make_tasks, wait_for


class Pretender:
    """Performs tasks by their names: `hold…` until it is stopped or released, `stuck…` loses its worker when it is
    stopped, `lost…` at once, `bad…` fails, `shaky…` fails in a transient way the first time. The rest passes."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.running = Counter[str]()
        self.most = 0
        self.released = defaultdict[str, asyncio.Event](asyncio.Event)

    @property
    def performed(self) -> list[str]:
        return [attempt.task.id for attempt in self.attempts]

    async def __call__(self, attempt: Attempt) -> TaskResult:
        name = attempt.task.id
        earlier = self.performed.count(name)
        self.attempts.append(attempt)
        self.running[name] += 1
        self.most = max(self.most, self.running.total())
        assert self.running[name] == 1, "two workers have the same task"
        try:
            await attempt.report(Progress(5 * earlier, 1, 100, 0.4, "Bash"))
            if name.startswith("lost"):
                raise WorkerLost("The process died.")
            if name.startswith("stuck"):
                await attempt.stop.wait()
                raise WorkerLost("The process does not answer.")
            if name.startswith("hold"):
                waiting = [asyncio.create_task(event.wait()) for event in (attempt.stop, self.released[name])]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    task.cancel()
                if not self.released[name].is_set():
                    return TaskResult("failed", requests=1, usd=0.4, stopped=True)
            if name.startswith("shaky") and not earlier:
                return TaskResult("failed", "RateLimited", requests=1, usd=0.4, is_transient=True)
            if name.startswith("bad"):
                return TaskResult("failed", "checks", f"`make`: exit code 2 in {name}", requests=1, usd=0.4)
            return TaskResult("passed", session=f"s-{name}", requests=1, usd=0.4, files=(f"{name}/patch.diff",))
        finally:
            self.running[name] -= 1


@asynccontextmanager
async def work(engine: FleetEngine, perform: Pretender, slots: int = 1, name: str = "w") -> AsyncGenerator[None]:
    """Work while the block runs, and until all is done after it."""
    working = asyncio.create_task(engine.work(perform, slots, name))
    try:
        yield
        await working
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


@asynccontextmanager
async def submit(
    engines: Engines, *names: str, budget_usd: float = 0, attempts: int = 3, slots: int = 1
) -> AsyncGenerator[FleetEngine]:
    engines.slots = slots
    engine = await engines.open()
    try:
        await engine.submit(make_run(engines, budget_usd=budget_usd, attempts=attempts), make_tasks(*names))
        yield engine
    finally:
        await engine.close()


async def test_each_task_is_performed_once_and_its_result_is_kept(engines: Engines):
    perform, names = Pretender(), ["a", "bad", "c", "d", "e", "f"]
    async with submit(engines, *names, slots=2) as engine, work(engine, perform, slots=2):
        pass
    assert Counter(perform.performed) == dict.fromkeys(names, 1)
    assert perform.most <= 2
    again = await engines.open()
    states = await again.list_tasks()
    assert [state.task for state in states] == make_tasks(*names)
    assert (await again.read_run()).store == str(engines.folder / "store")
    await again.close()
    assert list_statuses(states) == {name: "failed" if name == "bad" else "passed" for name in names}
    for state in states:
        assert state.result is not None
        assert (state.attempt, state.retries, state.result.requests, state.result.usd) == (1, 0, 1, 0.4)
        assert state.ended >= state.started > 0
    assert states[0].result == TaskResult("passed", session="s-a", requests=1, usd=0.4, files=("a/patch.diff",))
    assert states[1].result == TaskResult("failed", "checks", "`make`: exit code 2 in bad", requests=1, usd=0.4)


async def test_tasks_begin_in_their_order(engines: Engines):
    perform, names = Pretender(), [f"t{number}" for number in range(6)]
    async with submit(engines, *names) as engine, work(engine, perform):
        pass
    assert perform.performed == names


async def test_a_running_task_shows_how_far_it_is(engines: Engines):
    perform = Pretender()
    async with submit(engines, "hold", "next") as engine, work(engine, perform):
        states = await wait_for(engine, lambda states: states["hold"].progress.requests == 1)
        assert (states["hold"].status, states["hold"].worker, states["hold"].attempt) == ("running", "w", 1)
        assert states["hold"].progress.activity == "Bash"
        assert states["next"].status == "waiting"
        perform.released["hold"].set()


@pytest.mark.parametrize(("signal", "becomes"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_running_and_waiting_tasks_are_stopped(engines: Engines, signal: Signal, becomes: str):
    perform = Pretender()
    async with submit(engines, "hold", "next") as engine:
        async with work(engine, perform):
            await wait_for(engine, lambda states: states["hold"].progress.requests == 1)
            assert await engine.signal(signal) == 2
        states = await engine.list_tasks()
        assert list_statuses(states) == {"hold": becomes, "next": becomes}
        assert perform.performed == ["hold"]
        assert await engine.signal(signal) == 0
        await engine.signal("cancel")
        spent = [get_usd(state) for state in await engine.list_tasks()]
        assert spent == [get_usd(state) for state in states] and spent[0] > 0


@pytest.mark.parametrize(("signal", "becomes"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_a_signal_outlives_the_process_of_a_task(engines: Engines, signal: Signal, becomes: str):
    perform = Pretender()
    async with submit(engines, "stuck") as engine:
        async with work(engine, perform):
            await wait_for(engine, lambda states: states["stuck"].progress.requests == 1)
            await engine.signal(signal)
        assert list_statuses(await engine.list_tasks()) == {"stuck": becomes}
        await engine.signal("cancel")
        (state,) = await engine.list_tasks()
    assert (perform.performed, list_statuses([state]), get_usd(state)) == (["stuck"], {"stuck": "cancelled"}, 0.4)


async def test_what_was_paused_goes_on(engines: Engines):
    perform = Pretender()
    async with submit(engines, "hold", "next") as engine:
        async with work(engine, perform):
            await wait_for(engine, lambda states: states["hold"].progress.requests == 1)
            assert await engine.signal("pause") == 2
        assert await engine.signal("resume", ["hold"]) == 1
        perform.released["hold"].set()
        async with work(engine, perform):
            pass
        assert list_statuses(await engine.list_tasks()) == {"hold": "passed", "next": "paused"}
        assert await engine.signal("cancel") == 1
        assert list_statuses(await engine.list_tasks()) == {"hold": "passed", "next": "cancelled"}
    assert [(attempt.task.id, attempt.number, attempt.retries) for attempt in perform.attempts] == [
        ("hold", 1, 0),
        ("hold", 2, 0),
    ]


async def test_failed_tasks_are_tried_again_on_demand(engines: Engines):
    perform = Pretender()
    async with submit(engines, "a", "bad", "bad2") as engine:
        async with work(engine, perform):
            pass
        assert await engine.signal("pause") == await engine.signal("resume") == await engine.signal("cancel") == 0
        assert await engine.signal("retry", ["bad"]) == 1
        async with work(engine, perform):
            pass
        assert await engine.signal("retry") == 2
        assert list_statuses(await engine.list_tasks()) == {"a": "passed", "bad": "waiting", "bad2": "waiting"}
        async with work(engine, perform):
            pass
        states = {state.task.id: state for state in await engine.list_tasks()}
    assert Counter(perform.performed) == {"a": 1, "bad": 3, "bad2": 2}
    assert [attempt.retries for attempt in perform.attempts if attempt.task.id == "bad"] == [0, 1, 2]
    assert (states["bad"].retries, states["bad"].earlier_usd) == (2, 0.8)


async def test_the_budget_ends_a_run(engines: Engines):
    perform = Pretender()
    async with submit(engines, "a", "hold", "c", "d", budget_usd=0.7) as engine:
        async with work(engine, perform):
            pass
        states = await engine.list_tasks()
    assert [(state.result.outcome, state.result.reason) for state in states if state.result] == [
        ("passed", ""),
        ("failed", "budget"),
        ("not_run", "budget"),
        ("not_run", "budget"),
    ]
    assert round(perform.attempts[0].budget_usd, 2) == 0.7
    assert [get_usd(state) for state in states] == [0.4, 0.4, 0, 0]


async def test_a_worker_that_is_stopped_gives_its_tasks_back(engines: Engines):
    perform = Pretender()
    async with submit(engines, "hold", "next") as engine:
        working = asyncio.create_task(engine.work(perform, 1, "w1"))
        await wait_for(engine, lambda states: states["hold"].progress.requests == 1)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert list_statuses(await engine.list_tasks()) == {"hold": "waiting", "next": "waiting"}
        perform.released["hold"].set()
        async with work(engine, perform, name="w2"):
            pass
        states = await engine.list_tasks()
    assert list_statuses(states) == {"hold": "passed", "next": "passed"}
    assert states[0].worker in ("w2", "")
    assert Counter(perform.performed) == {"hold": 2, "next": 1}


async def test_a_task_that_loses_its_workers_fails(engines: Engines):
    perform = Pretender()
    async with submit(engines, "lost", "a", attempts=2) as engine:
        async with work(engine, perform):
            pass
        states = {state.task.id: state for state in await engine.list_tasks()}
    found = states["lost"].result
    assert found is not None
    assert (found.outcome, found.reason, found.detail) == ("failed", "died", "Its process died 2 times.")
    assert (states["lost"].attempt, perform.performed.count("lost")) == (2, 2)
    assert list_statuses([states["a"]]) == {"a": "passed"}


async def test_a_transient_failure_is_tried_again(engines: Engines):
    perform = Pretender()
    async with submit(engines, "shaky") as engine:
        async with work(engine, perform):
            pass
        (state,) = await engine.list_tasks()
    assert (list_statuses([state]), state.attempt, state.retries) == ({"shaky": "passed"}, 2, 0)


async def test_tasks_of_a_killed_worker_go_to_the_next(engines: Engines):
    perform = Pretender()
    async with submit(engines, "hold", "b") as engine:
        kind = "temporal" if engines.address else "table"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fleet.hanging_worker", kind),
            *(str(engines.folder), engines.name, engines.address),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        await wait_for(engine, lambda states: states["hold"].progress.event == 7)
        process.send_signal(SIGKILL)
        await process.wait()
        perform.released["hold"].set()
        async with work(engine, perform, name="other"):
            pass
        states = await engine.list_tasks()
    assert list_statuses(states) == {"hold": "passed", "b": "passed"}
    assert states[0].attempt == 2
    assert sorted(perform.performed) == ["b", "hold"]


async def test_wrong_names_are_refused(engines: Engines):
    engine = await engines.open()
    for request in (engine.read_run(), engine.list_tasks(), engine.signal("pause")):
        with pytest.raises(UsageError, match=f"There is no run {engines.name}"):
            await request
    await engine.close()
    async with submit(engines, "a") as engine:
        with pytest.raises(UsageError, match=f"There is a run {engines.name} already"):
            await engine.submit(make_run(engines), make_tasks("b"))
        with pytest.raises(UsageError, match="There is no task 'b' in this run"):
            await engine.signal("cancel", ["a", "b"])
        assert list_statuses(await engine.list_tasks()) == {"a": "waiting"}
