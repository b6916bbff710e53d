"""A fleet run on a Temporal server, for workers on any number of machines.

What the server is told is in `temporal_workflows`. Tasks are in a file of the store, which all workers can read, and so
is the result of each. A heartbeat says how far an attempt is; it is not part of any history.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WithStartWorkflowOperation,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHandle,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from odin.core.errors import OdinError, UsageError
from odin.fleet.engine import (
    OVER_BUDGET,
    Attempt,
    FleetRun,
    Perform,
    Progress,
    Signal,
    TaskResult,
    TaskState,
    WorkerLost,
)
from odin.fleet.result_store import open_store
from odin.fleet.task import FleetTask, check_task
from odin.fleet.temporal_connection import TemporalServer, translate
from odin.fleet.temporal_workflows import (
    ATTEMPT,
    DEFAULT_TIMING,
    AttemptEnd,
    AttemptOrder,
    Change,
    FleetRunWorkflow,
    FleetTaskWorkflow,
    FleetTiming,
    Heartbeat,
    RunRecord,
    Spending,
    TaskRow,
    name_machine_queue,
    name_task_workflow,
)

_POLL_S = 1.0
_ASK_POLLS = 3
"""How long a question waits for a worker, before this process answers it."""

_PATIENCE_S = 120.0
_STOP_S = 90.0
_HEARTBEAT_S = 5.0
_STICKY_S = 4.0
"""How long a workflow waits for the worker that ran it last, which may be dead."""

_AT_ONCE = 16
_MAX_FILES = 4
_STEPS = 100
"""The run is told when a task has cost another hundredth of the budget."""

_UNHEARD = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNKNOWN,  # a connection that was cut
)

_RESTRICTIONS = SandboxRestrictions.default.with_passthrough_modules("msgspec", "odin")
"""A fresh import of Odin for each workflow would take longer than the workflow."""

T = TypeVar("T")


class TemporalEngine:
    """The engine on Temporal. `url` is where the sessions of this worker are served."""

    def __init__(
        self,
        client: Client,
        server: TemporalServer,
        name: str,
        *,
        url: str = "",
        timing: FleetTiming = DEFAULT_TIMING,
        poll_s: float = _POLL_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._client = client
        self._server = server
        self._name = name
        self._url = url
        self._timing = timing
        self._poll_s = poll_s
        self._patience_s = patience_s
        self._id = f"odin-fleet/{name}"
        self._handle: WorkflowHandle[FleetRunWorkflow, RunRecord] = client.get_workflow_handle_for(
            FleetRunWorkflow.run, self._id
        )
        self._answering: asyncio.Task[None] | None = None
        self._tasks = _TaskFiles()
        self._results: dict[tuple[str, int, float], TaskResult] = {}
        self._states: dict[str, tuple[float, TaskState]] = {}

    async def close(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.wait({self._answering})
            self._answering = None

    # --- for coordinators ---

    async def submit(self, run: FleetRun, tasks: Sequence[FleetTask]) -> None:
        data = b"".join(msgspec.json.encode(task) + b"\n" for task in tasks)
        name = _name_task_file(data)
        await asyncio.to_thread(open_store(run.store).write, name, data)
        rows = [TaskRow(task.id) for task in tasks]
        record = RunRecord(run, name, self._server.queue, self._timing, rows)

        async def start() -> None:
            await self._client.start_workflow(
                FleetRunWorkflow.run,
                record,
                id=self._id,
                task_queue=self._server.queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo={"run": run},
            )

        try:
            await self._call(start)
        except WorkflowAlreadyStartedError:
            raise UsageError(
                f"There is a run {run.name} already.", "Choose another --name, or --continue it."
            ) from None

    async def read_run(self) -> FleetRun:
        found = await self._describe()
        return await found.memo_value("run", type_hint=FleetRun)

    async def list_tasks(self) -> Sequence[TaskState]:
        _, record = await self._read()
        store = record.run.store
        tasks = await asyncio.to_thread(self._tasks.read, store, record.tasks)
        limit = asyncio.Semaphore(_AT_ONCE)
        age_s = sum(row.status == "running" for row in record.rows) / 100

        async def make_state(row: TaskRow) -> TaskState:
            task, result = tasks[row.id], None
            if row.status != "waiting":
                async with limit:
                    if row.status == "running":
                        return await self._watch(row, task, age_s)
                    if row.status == "done":
                        result = await self._find_result(store, row)
            machine = next(reversed(row.machines), "")
            return TaskState(
                task,
                row.status,
                row.attempt,
                row.retries,
                machine,
                Progress(usd=row.usd),
                result,
                row.started,
                row.ended,
                row.earlier_usd,
            )

        return await asyncio.gather(*map(make_state, record.rows))

    async def signal(self, signal: Signal, tasks: Sequence[str] = ()) -> int:
        change, key = Change(signal, (*tasks,)), os.urandom(16).hex()  # a repeated request changes nothing twice
        while True:
            is_open, record = await self._read()
            if missing := [task for task in tasks if task not in {row.id for row in record.rows}]:
                raise UsageError(
                    f"There is no task {missing[0]!r} in this run.", "`odin fleet status RUN --json` lists all."
                )
            if not is_open and signal != "retry":
                return 0
            with suppress(_Gone):  # the run has ended meanwhile
                return await (self._change(change, key) if is_open else self._reopen(record, change, key))

    async def _change(self, change: Change, key: str) -> int:
        return await self._ask(lambda: self._handle.execute_update(FleetRunWorkflow.change, change, id=key))  # pyright: ignore[reportUnknownMemberType]

    async def _reopen(self, record: RunRecord, change: Change, key: str) -> int:
        """Start a run that is over once more, with a signal."""
        for row in record.rows:
            if row.status == "running":  # somebody has terminated the run
                row.status, row.wanted = "waiting", ""

        async def start() -> int:
            operation = WithStartWorkflowOperation(
                FleetRunWorkflow.run,
                record,
                id=self._id,
                task_queue=record.queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                memo={"run": record.run},
            )
            return await self._client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]
                FleetRunWorkflow.change, change, start_workflow_operation=operation, id=key
            )

        return await self._ask(start)

    # --- requests ---

    async def _describe(self) -> WorkflowExecutionDescription:
        try:
            return await self._call(self._handle.describe)
        except _Gone:
            raise UsageError(
                f"There is no run {self._name} on {self._server.address}.", "`odin fleet list` lists the runs."
            ) from None

    async def _read(self) -> tuple[bool, RunRecord]:
        """Return whether the run is open, and its record."""
        status = (await self._describe()).status
        if status == WorkflowExecutionStatus.COMPLETED:
            return False, await self._call(self._handle.result)
        record = await self._ask(lambda: self._handle.query(FleetRunWorkflow.read))
        return status == WorkflowExecutionStatus.RUNNING, record

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return what the workflow answers. If no worker is there to run it, this process does."""
        asking = asyncio.ensure_future(self._call(question))
        try:
            if self._answering is None and not (await asyncio.wait({asking}, timeout=_ASK_POLLS * self._poll_s))[0]:
                self._answering = asyncio.create_task(serve(self._client, self._server, until=asyncio.Event().wait()))
            return await asking
        finally:
            asking.cancel()

    async def _call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request. A server that is not there has time to come back."""
        patience = time.monotonic() + self._patience_s
        while True:
            try:
                return await request()
            except (RPCError, RPCTimeoutOrCancelledError) as error:
                status = error.status if isinstance(error, RPCError) else RPCStatusCode.UNAVAILABLE
                if status == RPCStatusCode.NOT_FOUND:
                    raise _Gone from error
                if status not in _UNHEARD or time.monotonic() > patience:
                    raise translate(status, str(error), self._server) from error
                await asyncio.sleep(self._poll_s)

    # --- states ---

    async def _watch(self, row: TaskRow, task: FleetTask, age_s: float) -> TaskState:
        """Return the state of a task in hand, which may be so old."""
        name = name_task_workflow(self._id, row.id, row.opened)
        seen, state = self._states.get(name, (0.0, None))
        if state is not None and time.monotonic() - seen < age_s:
            return state
        state = TaskState(
            task,
            "waiting",
            row.attempt,
            row.retries,
            progress=Progress(usd=row.usd),
            started=row.started,
            earlier_usd=row.earlier_usd,
        )
        with suppress(_Gone):
            found = await self._call(self._client.get_workflow_handle(name).describe)
            for pending in found.raw_description.pending_activities:
                if pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED:
                    continue
                machine, started, progress = pending.last_worker_identity, pending.last_started_time.seconds, Progress()
                if pending.heartbeat_details.payloads:
                    payloads = pending.heartbeat_details.payloads
                    (last,) = await self._client.data_converter.decode(payloads, [Heartbeat])
                    machine, started, progress = last.machine, last.started, last.progress
                state = msgspec.structs.replace(
                    state,
                    status="running",
                    attempt=row.attempt + 1,
                    worker=machine,
                    progress=msgspec.structs.replace(progress, usd=max(progress.usd, row.usd)),
                    started=row.started or started,
                )
        self._states[name] = time.monotonic(), state
        return state

    async def _find_result(self, store: str, row: TaskRow) -> TaskResult:
        key = (row.id, row.retries, row.ended)
        if (found := self._results.get(key)) is not None:
            return found
        assert row.outcome is not None
        detail = ""
        if row.is_stored:
            try:
                data = await asyncio.to_thread(open_store(store).read, f"{row.id}/result.json")
                stored = msgspec.json.decode(data, type=TaskResult)
                found = msgspec.structs.replace(stored, outcome=row.outcome, reason=row.reason)
            except (OSError, OdinError, msgspec.MsgspecError):
                detail = "Its result cannot be read from the store."
        elif row.reason == "died":
            detail = f"Its process died {row.losses} times."
        elif row.reason == "budget":
            detail = OVER_BUDGET
        found = found or TaskResult(row.outcome, row.reason, detail, usd=row.usd)
        self._results[key] = found
        return found

    # --- for workers ---

    async def work(self, perform: Perform, slots: int, name: str) -> None:
        """As FleetEngine says. With no slots, wait until others have performed the tasks."""

        async def wait() -> None:
            while True:
                if not await self._call(lambda: self._handle.query(FleetRunWorkflow.is_busy)):
                    return
                await asyncio.sleep(self._poll_s)

        await self.close()  # one worker of a client takes from a queue
        serving = serve(self._client, self._server, perform, slots, name, url=self._url, until=wait())
        self._answering = asyncio.create_task(serving)
        try:
            await self._answering
        finally:
            await self.close()


async def serve(
    client: Client,
    server: TemporalServer,
    perform: Perform | None = None,
    slots: int = 0,
    name: str = "",
    *,
    url: str = "",
    until: Coroutine[Any, Any, object],
) -> None:
    """Perform tasks of all runs on the task queue of the server until then; with no slots, only run workflows.

    When cancelled, the tasks in hand are stopped and given back. `name` is that of the machine: who comes back with it
    gets the tasks whose sessions are there.
    """
    waiting = asyncio.create_task(until)
    workers = [
        Worker(
            client,
            task_queue=queue,
            workflows=workflows,
            activities=activities,
            workflow_runner=SandboxedWorkflowRunner(_RESTRICTIONS),
            identity=name or None,
            max_concurrent_activities=slots or None,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=_STICKY_S),
            max_heartbeat_throttle_interval=timedelta(seconds=_HEARTBEAT_S),
            graceful_shutdown_timeout=timedelta(seconds=_STOP_S),
        )
        for queue, workflows, activities in _list_duties(client, server, perform, slots, name, url)
    ]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        await asyncio.wait({waiting, *running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        leaving = [asyncio.create_task(worker.shutdown()) for worker in workers]
        await asyncio.wait(running)
        for task in leaving:
            task.cancel()
    for task in running:
        await task
    with suppress(asyncio.CancelledError):
        await waiting


def _list_duties(
    client: Client, server: TemporalServer, perform: Perform | None, slots: int, name: str, url: str
) -> Iterator[tuple[str, Sequence[type], Sequence[Callable[..., Any]]]]:
    """Yield task queues, with the workflows and activities that a worker takes from them."""
    workflows = (FleetRunWorkflow, FleetTaskWorkflow)
    if not perform or not slots:
        yield server.queue, workflows, ()
        return
    runner = AttemptRunner(client, perform, slots, name, url)
    yield server.queue, workflows, (runner.attempt,)
    yield name_machine_queue(server.queue, name), (), (runner.attempt,)


class AttemptRunner:
    """Performs what the server gives to this machine, at most `slots` at once whichever queue it comes from."""

    def __init__(self, client: Client, perform: Perform, slots: int, name: str, url: str) -> None:
        self._client = client
        self._perform = perform
        self._slots = asyncio.Semaphore(slots)
        self._name = name
        self._url = url
        self._tasks = _TaskFiles()

    @activity.defn(name=ATTEMPT)
    async def attempt(self, order: AttemptOrder) -> AttemptEnd:
        stop = asyncio.Event()
        if activity.is_worker_shutdown():
            stop.set()
        last = Heartbeat(self._name, time.time(), Progress())
        told = 0.0
        run_workflow = self._client.get_workflow_handle(f"odin-fleet/{order.run.name}")

        async def report(progress: Progress) -> None:
            nonlocal last, told
            last = Heartbeat(
                last.machine, last.started, msgspec.structs.replace(progress, url=progress.url or self._url)
            )
            activity.heartbeat(last)
            if order.run.budget_usd and progress.usd - told >= order.run.budget_usd / _STEPS:
                told = progress.usd
                with suppress(RPCError):  # the end of the attempt says it again
                    spending = Spending(order.id, order.opened, self._name, progress.usd)
                    await run_workflow.signal(FleetRunWorkflow.spend, spending)

        working = asyncio.create_task(self._work(order, stop, report))
        leaving = asyncio.create_task(activity.wait_for_worker_shutdown())
        try:
            while not working.done():
                activity.heartbeat(last)
                try:
                    await asyncio.wait(
                        {working, leaving} if not stop.is_set() else {working},
                        timeout=min(order.heartbeat_s / 4, _HEARTBEAT_S),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                except asyncio.CancelledError:  # from the run, or because the server has not heard of it for too long
                    stop.set()
                if leaving.done():
                    stop.set()
            result = working.result()
        except WorkerLost as error:
            raise ApplicationError(str(error), last, type="WorkerLost", non_retryable=True) from None
        finally:
            working.cancel()
            leaving.cancel()
        return AttemptEnd(last, result.outcome, result.reason, result.stopped, result.is_transient)

    async def _work(
        self, order: AttemptOrder, stop: asyncio.Event, report: Callable[[Progress], Awaitable[None]]
    ) -> TaskResult:
        coming, stopping = asyncio.create_task(self._slots.acquire()), asyncio.create_task(stop.wait())
        await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if stop.is_set():
            if coming.done():
                self._slots.release()
            coming.cancel()
            return TaskResult("not_run", stopped=True)
        try:
            tasks = await asyncio.to_thread(self._tasks.read, order.run.store, order.tasks)
            task = tasks[order.id]
            limit = min((usd for usd in (task.limits.usd, order.budget_usd) if usd), default=0.0)
            attempt = Attempt(order.run, task, order.number, order.retries, limit, stop, report)
            result = await self._perform(attempt)
            if result.requests or result.usd:
                await report(Progress(0, result.requests, result.tokens_in + result.tokens_out, result.usd))
            details = activity.cancellation_details()
            if not result.stopped and not (details and (details.timed_out or details.not_found)):
                data = msgspec.json.encode(result)
                await asyncio.to_thread(open_store(order.run.store).write, f"{order.id}/result.json", data)
        except (OdinError, OSError) as error:
            return TaskResult("not_run", "store", str(error), is_transient=True)
        else:
            return result
        finally:
            self._slots.release()


class _TaskFiles:
    """The tasks of the newest runs, read once."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], Mapping[str, FleetTask]] = {}
        self._lock = threading.Lock()

    def read(self, store: str, name: str) -> Mapping[str, FleetTask]:
        with self._lock:
            if (store, name) not in self._files:
                if len(self._files) >= _MAX_FILES:
                    del self._files[next(iter(self._files))]
                try:
                    data = open_store(store).read(name)
                except OSError as error:
                    raise OdinError(
                        f"The tasks of the run cannot be read from {store}: {error.strerror or error}.",
                        "All workers, and who watches, must reach the store.",
                    ) from error
                # Who may write to the store does not decide what workers do.
                if name != _name_task_file(data):
                    raise OdinError(f"{name} in {store} is not what was submitted.", "Submit the run again.")
                try:
                    tasks = [msgspec.json.decode(line, type=FleetTask) for line in data.splitlines()]
                    for task in tasks:
                        check_task(task)
                except ValueError as error:
                    raise OdinError(f"The tasks of the run cannot be used: {error}.", "Submit them again.") from error
                self._files[store, name] = {task.id: task for task in tasks}
            return self._files[store, name]


def _name_task_file(data: bytes) -> str:
    import hashlib

    return f".tasks/{hashlib.sha256(data).hexdigest()}.jsonl"


class _Gone(Exception):
    """The server has no such workflow, or it is over."""
