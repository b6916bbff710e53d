"""What runs the tasks of a fleet: an engine gives them to workers, once each, whoever dies meanwhile.

`RunTable` keeps a run in SQLite for the workers of one machine, `TemporalEngine` on a Temporal server for those of any
number. An engine stores ids, attempts, deadlines and results. What happened in a task is in the log of its session.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from odin.fleet.task import FleetTask

TaskStatus = Literal["waiting", "running", "paused", "done"]

Outcome = Literal["passed", "failed", "cancelled", "not_run"]
"""`failed`: the agent worked, and its work is not what was asked for. `not_run`: it never came to work, as when the
repository is missing; that says nothing about the agent."""

_NAME_CHARS = 80
"""How much of the names of run and task is in the id of a session, which is shorter than both could be."""

OVER_BUDGET = "The budget of the run is used up."

Signal = Literal["cancel", "pause", "resume", "retry"]


class FleetRun(Struct, frozen=True):
    """One run. `store` is where results go. A worker that dies costs an attempt, of which a task has `attempts`.

    `budget_usd` is for all tasks together; 0 is no limit. `unsandboxed`: tasks run also where no sandbox works.
    `keep`: the checkouts of tasks that passed stay, too.
    """

    name: str
    store: str
    created: float
    budget_usd: float = 0.0
    attempts: int = 3
    unsandboxed: bool = False
    keep: bool = False


def name_session(run: FleetRun, task: str, retries: int) -> str:
    """Return the id of a task's session. A task that starts over gets a new one, as does a later run of this name."""
    import hashlib

    digest = hashlib.sha256(f"{run.name}/{task}/{run.created}".encode()).hexdigest()[:8]
    return f"{f'{run.name}-{task}'.replace('.', '_')[:_NAME_CHARS]}-{retries}-{digest}"


class Progress(Struct, frozen=True):
    """How far a task is. `event` is the number of the last event in its log; `url` is where its session is served."""

    event: int = -1
    requests: int = 0
    tokens: int = 0
    usd: float = 0.0
    activity: str = ""
    url: str = ""


class TaskResult(Struct, frozen=True):
    """What a task came to. `reason` groups failures; `detail` is a sentence. `files` are names in the store, `model` is
    the one that worked last.

    `stopped`: the worker was told to stop; the session can go on. `is_transient`: another attempt may end
    better.
    """

    outcome: Outcome
    reason: str = ""
    detail: str = ""
    session: str = ""
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    stopped: bool = False
    is_transient: bool = False
    model: str = ""


class TaskState(Struct, frozen=True):
    """A task as the engine knows it. `attempt` counts how often a worker took it, `retries` how often a user
    had it start over; `earlier_usd` is what it had cost before that."""

    task: FleetTask
    status: TaskStatus = "waiting"
    attempt: int = 0
    retries: int = 0
    worker: str = ""
    progress: Progress = Progress()
    result: TaskResult | None = None
    started: float = 0.0
    ended: float = 0.0
    earlier_usd: float = 0.0


class Attempt(Struct):
    """A task in the hands of a worker. `stop` is set when it should end its session and return.

    `report` tells the engine how far it is, every few seconds: who is not heard of for long loses the task.
    `budget_usd` is what the task may cost; 0 is no limit.
    """

    run: FleetRun
    task: FleetTask
    number: int
    retries: int
    budget_usd: float
    stop: asyncio.Event
    report: Callable[[Progress], Awaitable[None]]


class WorkerLost(Exception):
    """The process of a task died before it had a result. Another attempt resumes its session."""


Perform = Callable[[Attempt], Awaitable[TaskResult]]
"""Runs or resumes a task. Raises WorkerLost."""


class FleetEngine(Protocol):
    async def submit(self, run: FleetRun, tasks: Sequence[FleetTask]) -> None:
        """Store a run with its tasks. Raise UsageError if there is one of this name."""
        ...

    async def read_run(self) -> FleetRun:
        """Return the run. Raise UsageError if there is none."""
        ...

    async def list_tasks(self) -> Sequence[TaskState]:
        """Return all tasks in their order."""
        ...

    async def signal(self, signal: Signal, tasks: Sequence[str] = ()) -> int:
        """Cancel, pause, resume or retry tasks; without names all to which it applies. Return how many."""
        ...

    async def work(self, perform: Perform, slots: int, name: str) -> None:
        """Perform tasks, at most `slots` at once, until none is waiting or running, or until cancelled.

        When cancelled, the tasks in hand are stopped and given back.
        """
        ...

    async def close(self) -> None: ...
