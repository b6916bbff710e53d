"""The workflows of a fleet on Temporal: one for each run, and one for each of its tasks that is in hand.

The workflow of a run is the run table: it knows the state of every task, keeps a window of them in hand, and takes
signals. That of a task gives it to workers until it has an end. Histories have references and numbers only: tasks and
results are in the store, and conversations in the logs of the sessions.

Workers replay this module. What it does in which order must not change while runs are open, unless workers are
versioned.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Literal

from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

with workflow.unsafe.imports_passed_through():
    import msgspec
    from msgspec import Struct

    from odin.fleet.engine import FleetRun, Outcome, Progress, Signal, TaskStatus

_EVER = timedelta(days=3650)
"""Sessions have no time limit here: tasks have their own."""

ATTEMPT = "OdinFleetAttempt"


class FleetTiming(Struct, frozen=True):
    """A worker that is not heard of for `heartbeat_s` has lost its tasks. For `machine_s` they wait for another one on
    that machine, which has their sessions. `pause_s` as in RunTable. At most `window` tasks are in hand."""

    heartbeat_s: float = 30.0
    machine_s: float = 60.0
    pause_s: float = 10.0
    window: int = 500


DEFAULT_TIMING = FleetTiming()


class TaskRow(Struct, array_like=True):
    """A task as its run knows it.

    `status` is `running` while the task is in hand, also while it waits for a worker. `opened` counts the workflows it
    had. `machines` is what it has cost on each machine; the last one has its session.
    """

    id: str
    status: TaskStatus = "waiting"
    wanted: Literal["", "cancel", "pause", "budget"] = ""
    opened: int = 0
    attempt: int = 0
    losses: int = 0
    retries: int = 0
    machines: dict[str, float] = {}
    earlier_usd: float = 0.0
    outcome: Outcome | None = None
    reason: str = ""
    is_stored: bool = False
    started: float = 0.0
    ended: float = 0.0

    @property
    def usd(self) -> float:
        return sum(self.machines.values())


class RunRecord(Struct):
    """All that a run is. `tasks` is the name of the file in the store that has the tasks."""

    run: FleetRun
    tasks: str
    queue: str
    timing: FleetTiming
    rows: list[TaskRow]


class TaskHandout(Struct, frozen=True):
    """What the workflow of a task is told."""

    run: FleetRun
    tasks: str
    queue: str
    timing: FleetTiming
    id: str
    opened: int
    attempt: int
    losses: int
    retries: int
    machines: dict[str, float]
    budget_usd: float


class AttemptOrder(Struct, frozen=True):
    """What a worker is told. `number` as in Attempt."""

    run: FleetRun
    tasks: str
    id: str
    opened: int
    number: int
    retries: int
    budget_usd: float
    heartbeat_s: float


class Heartbeat(Struct, frozen=True):
    """What the server knows of an attempt."""

    machine: str
    started: float
    progress: Progress


class AttemptEnd(Struct, frozen=True):
    """What a worker returns. All else is in the store."""

    last: Heartbeat
    outcome: Outcome
    reason: str = ""
    stopped: bool = False
    is_transient: bool = False


class HandoutEnd(Struct, frozen=True):
    """What the workflow of a task tells its run in the end."""

    id: str
    opened: int
    attempt: int
    losses: int
    machines: dict[str, float]
    started: float
    ended: float
    outcome: Outcome | None = None
    reason: str = ""
    is_stored: bool = False


class Change(Struct, frozen=True):
    """A signal to tasks; without names to all."""

    signal: Signal
    tasks: tuple[str, ...] = ()


class Spending(Struct, frozen=True):
    """What a running task has cost so far."""

    id: str
    opened: int
    machine: str
    usd: float


def name_task_workflow(run_workflow: str, task: str, opened: int) -> str:
    return f"{run_workflow}/{task}/{opened}"


def name_machine_queue(queue: str, machine: str) -> str:
    return f"{queue}@{machine}"


@workflow.defn(name="OdinFleetTask")
class FleetTaskWorkflow:
    """Gives a task to workers until it has an end or is stopped, and reports that to the run."""

    @workflow.init
    def __init__(self, given: TaskHandout) -> None:
        self._given = given
        self._attempt = given.attempt
        self._losses = given.losses
        self._machines = dict(given.machines)
        self._home = next(reversed(given.machines), "")
        self._started = 0.0
        self._last: Heartbeat | None = None
        self._stop = False
        self._activity: workflow.ActivityHandle[AttemptEnd] | None = None

    @workflow.signal
    def stop(self) -> None:
        self._stop = True
        if self._activity is not None:
            self._activity.cancel()

    @workflow.run
    async def run(self, given: TaskHandout) -> None:
        end = await self._work()
        report = HandoutEnd(
            given.id,
            given.opened,
            self._attempt,
            self._losses,
            self._machines,
            self._started,
            workflow.time(),
            end.outcome if end else None,
            end.reason if end else "",
            end is not None and end.reason != "died",
        )
        parent = workflow.info().parent
        assert parent is not None
        try:
            await workflow.get_external_workflow_handle(parent.workflow_id).signal(FleetRunWorkflow.end, report)
        except FailureError:  # somebody has terminated the run
            workflow.logger.warning("The run of %s is gone.", given.id)

    async def _work(self) -> AttemptEnd | None:
        """Return the end of the task, or None if it was stopped."""
        given = self._given
        while not self._stop:
            end = await self._try()
            if end is None or end.stopped:
                continue  # given back, or the machine that has the session did not come back
            if end.reason != "died" and not end.is_transient:
                return end
            if self._stop:
                return None
            self._losses += 1
            if self._losses >= given.run.attempts:
                return end
            pause = (self._losses - 1) * given.timing.pause_s
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(lambda: self._stop, timeout=pause)
        return None

    async def _try(self) -> AttemptEnd | None:
        """Return how one attempt ended, or None if no worker took it."""
        given, timing = self._given, self._given.timing
        self._activity = workflow.start_activity(
            ATTEMPT,
            AttemptOrder(
                given.run,
                given.tasks,
                given.id,
                given.opened,
                self._attempt + 1,
                given.retries,
                given.budget_usd,
                timing.heartbeat_s,
            ),
            result_type=AttemptEnd,
            task_queue=name_machine_queue(given.queue, self._home) if self._home else given.queue,
            schedule_to_start_timeout=timedelta(seconds=timing.machine_s) if self._home else None,
            start_to_close_timeout=_EVER,
            heartbeat_timeout=timedelta(seconds=timing.heartbeat_s),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        try:
            end = await self._activity
        except ActivityError as error:
            cause = error.cause
            details = ()
            if isinstance(cause, ActivityTimeout):
                if cause.type == TimeoutType.SCHEDULE_TO_START:
                    self._home = ""
                    return None
                details = cause.last_heartbeat_details
            elif isinstance(cause, ApplicationError):
                details = cause.details
            else:
                return None  # cancelled before a worker took it
            last = msgspec.convert(details[0], Heartbeat) if details else Heartbeat("", workflow.time(), Progress())
            end = AttemptEnd(last, "failed", "died")
        finally:
            self._activity = None
        self._attempt += 1
        self._note(end)
        if end.reason == "died" and not (self._last and self._last.progress.requests):
            return msgspec.structs.replace(end, outcome="not_run")
        return end

    def _note(self, end: AttemptEnd) -> None:
        last = end.last
        self._started = self._started or last.started
        # A heartbeat is late: there may be more in the log than it says. Only who never began has no session.
        if last.machine != self._home and end.stopped and last.progress == Progress():
            self._home = ""
            return
        self._home = last.machine
        if last.machine:
            self._machines[last.machine] = max(last.progress.usd, self._machines.pop(last.machine, 0.0))
        if last.progress.requests:
            self._last = last


@workflow.defn(name="OdinFleetRun")
class FleetRunWorkflow:
    """Keeps the tasks of a run in hand, as many as the window has, in their order. Returns the record in the end."""

    @workflow.init
    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._rows = {row.id: row for row in record.rows}
        self._to_stop = [row for row in record.rows if row.status == "running" and row.wanted]
        self._has_news = True

    @workflow.query
    def read(self) -> RunRecord:
        return self._record

    @workflow.query
    def is_busy(self) -> bool:
        return any(row.status in ("waiting", "running") for row in self._record.rows)

    @workflow.update
    def change(self, change: Change) -> int:
        """Return to how many tasks the signal applied."""
        rows = [self._rows[task] for task in change.tasks] if change.tasks else self._record.rows
        return sum(self._change(row, change.signal) for row in rows)

    @workflow.signal
    def end(self, report: HandoutEnd) -> None:
        row = self._rows[report.id]
        if row.status != "running" or row.opened != report.opened:
            return
        row.attempt, row.losses, row.machines = report.attempt, report.losses, report.machines
        row.started = row.started or report.started
        wanted, row.wanted = row.wanted, ""
        self._has_news = True
        if report.outcome is not None:
            self._finish(row, report.outcome, report.reason, report.ended, is_stored=report.is_stored)
        elif wanted == "cancel":
            self._finish(row, "cancelled", "cancelled", report.ended)
        else:  # what the budget has stopped ends when its turn comes
            row.status = "paused" if wanted == "pause" else "waiting"

    @workflow.signal
    def spend(self, spending: Spending) -> None:
        row = self._rows[spending.id]
        if row.status == "running" and row.opened == spending.opened:
            row.machines[spending.machine] = max(spending.usd, row.machines.get(spending.machine, 0.0))
            self._has_news = True

    @workflow.run
    async def run(self, record: RunRecord) -> RunRecord:
        while True:
            await workflow.wait_condition(lambda: self._has_news or workflow.info().is_continue_as_new_suggested())
            self._has_news = False
            left = self._get_left()
            if left <= 0:
                self._end_over_budget()
            rows = self._record.rows
            in_hand = sum(row.status == "running" for row in rows)
            room = max(0, record.timing.window - in_hand)
            chosen = [row for row in rows if row.status == "waiting"][:room]
            for row in chosen:
                row.status, row.opened = "running", row.opened + 1
            stops, self._to_stop = self._to_stop, []
            if chosen:
                await asyncio.gather(*(self._start(row, left) for row in chosen))
            if stops:
                await asyncio.gather(*(self._stop(row) for row in stops))
            if all(row.status == "done" for row in rows):
                await workflow.wait_condition(workflow.all_handlers_finished)
                return self._record
            if workflow.info().is_continue_as_new_suggested():  # also while there is news, of which a busy run is full
                workflow.continue_as_new(self._record)

    async def _start(self, row: TaskRow, left: float) -> None:
        record = self._record
        await workflow.start_child_workflow(
            FleetTaskWorkflow.run,
            TaskHandout(
                record.run,
                record.tasks,
                record.queue,
                record.timing,
                row.id,
                row.opened,
                row.attempt,
                row.losses,
                row.retries,
                row.machines,
                left + row.usd if record.run.budget_usd else 0.0,
            ),
            id=name_task_workflow(workflow.info().workflow_id, row.id, row.opened),
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )

    async def _stop(self, row: TaskRow) -> None:
        name = name_task_workflow(workflow.info().workflow_id, row.id, row.opened)
        try:
            await workflow.get_external_workflow_handle(name).signal(FleetTaskWorkflow.stop)
        except FailureError:  # it has ended meanwhile
            workflow.logger.debug("%s has ended", name)

    def _change(self, row: TaskRow, signal: Signal) -> bool:
        match signal, row.status:
            case "cancel", "waiting" | "paused":
                self._finish(row, "cancelled", "cancelled", workflow.time())
            case "cancel", "running":
                self._want(row, "cancel")
            case "pause", "waiting":
                row.status = "paused"
            case "pause", "running" if not row.wanted:
                self._want(row, "pause")
            case "resume", "paused":
                row.status, row.losses = "waiting", 0
            case "resume", "running" if row.wanted == "pause":
                row.wanted = ""
            case "retry", "done" if row.outcome != "passed":
                row.status, row.losses, row.retries = "waiting", 0, row.retries + 1
                row.earlier_usd, row.machines = row.earlier_usd + row.usd, {}
                row.outcome, row.reason, row.is_stored, row.started, row.ended = None, "", False, 0.0, 0.0
            case _:
                return False
        self._has_news = True
        return True

    def _want(self, row: TaskRow, wanted: Literal["cancel", "pause", "budget"]) -> None:
        row.wanted = wanted
        self._to_stop.append(row)

    def _finish(self, row: TaskRow, outcome: Outcome, reason: str, ended: float, *, is_stored: bool = False) -> None:
        row.status, row.outcome, row.reason, row.ended, row.is_stored = "done", outcome, reason, ended, is_stored

    def _get_left(self) -> float:
        budget = self._record.run.budget_usd
        return budget - sum(row.usd + row.earlier_usd for row in self._record.rows) if budget else float("inf")

    def _end_over_budget(self) -> None:
        for row in self._record.rows:
            if row.status == "waiting":
                self._finish(row, "failed" if row.attempt else "not_run", "budget", workflow.time())
            elif row.status == "running" and not row.wanted:
                self._want(row, "budget")
