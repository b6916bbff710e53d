"""A fleet run in one SQLite file, for the workers of one machine.

A worker takes a task with a lease, which its reports extend. A task whose lease has run out, or whose worker is dead,
is given to the next worker, who resumes its session. Only the attempt that holds the task can store its result.
"""

import asyncio
import math
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from odin.core.errors import ConfigError, StateUnwritable, UsageError
from odin.core.private_folders import make_private_folder
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
from odin.fleet.task import FleetTask

LEASE_S = 60.0
POLL_S = 0.5
PAUSE_S = 10.0
"""How much later a task is tried again with each attempt that was lost; the first time at once."""

_VERSION = 1

_SCHEMA = """
CREATE TABLE run (info BLOB NOT NULL);
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, spec BLOB NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting', wanted TEXT NOT NULL DEFAULT '',
    attempt INTEGER NOT NULL DEFAULT 0, losses INTEGER NOT NULL DEFAULT 0, retries INTEGER NOT NULL DEFAULT 0,
    worker TEXT NOT NULL DEFAULT '', lease REAL NOT NULL DEFAULT 0, due REAL NOT NULL DEFAULT 0,
    usd REAL NOT NULL DEFAULT 0, earlier_usd REAL NOT NULL DEFAULT 0,
    progress BLOB, result BLOB, started REAL NOT NULL DEFAULT 0, ended REAL NOT NULL DEFAULT 0
);
CREATE INDEX tasks_by_status ON tasks (status, number)
"""

_CANCELLED = msgspec.json.encode(TaskResult("cancelled", "cancelled"))

_GIVE_BACK = """
    status = CASE wanted WHEN 'cancel' THEN 'done' WHEN 'pause' THEN 'paused' ELSE 'waiting' END,
    result = CASE wanted WHEN 'cancel' THEN ? END, ended = CASE wanted WHEN 'cancel' THEN ? ELSE ended END,
    wanted = '', worker = ''
"""
"""What becomes of a task in hand that has no result: its user may have asked for something meanwhile."""

T = TypeVar("T")


class _Claim(Struct, frozen=True):
    task: FleetTask
    attempt: int
    retries: int
    budget_usd: float


class RunTable:
    """The engine on SQLite. `is_alive` tells whether the worker of this name still runs."""

    def __init__(
        self,
        path: Path,
        *,
        is_alive: Callable[[str], bool] = lambda _: True,
        clock: Callable[[], float] = time.time,
        lease_s: float = LEASE_S,
        poll_s: float = POLL_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._path = path
        self._is_alive = is_alive
        self._clock = clock
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._pause_s = pause_s
        self._thread = ThreadPoolExecutor(1, "odin-fleet")
        self._db: sqlite3.Connection | None = None

    async def _run(self, action: Callable[..., T], *args: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, action, *args)
        except sqlite3.OperationalError as error:  # such as a full disk
            raise StateUnwritable(f"{self._path} cannot be used: {error}.", "Make it writable.") from error
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{self._path} is damaged ({error}).", "Remove it, and start the run again.") from error

    # --- the file ---

    def _connect(self, *, create: bool = False) -> sqlite3.Connection:
        if self._db is not None:
            return self._db
        if not create and not self._path.exists():
            raise UsageError(f"There is no run {self._path.stem}.", "`odin fleet list` lists the runs.")
        make_private_folder(self._path.parent)
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # a result that a power cut loses is in the store
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            with _transact(db):
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_VERSION}")
        self._db = db
        return db

    async def close(self) -> None:
        def close() -> None:
            if self._db is not None:
                self._db.close()

        await self._run(close)
        self._thread.shutdown()

    # --- for coordinators ---

    async def submit(self, run: FleetRun, tasks: Sequence[FleetTask]) -> None:
        await self._run(self._submit, run, tasks)

    def _submit(self, run: FleetRun, tasks: Sequence[FleetTask]) -> None:
        db = self._connect(create=True)
        with _transact(db):
            if db.execute("SELECT 1 FROM run").fetchone():
                raise UsageError(f"There is a run {run.name} already.", "Choose another --name, or --continue it.")
            db.execute("INSERT INTO run VALUES (?)", (msgspec.json.encode(run),))
            db.executemany(
                "INSERT INTO tasks (id, spec) VALUES (?, ?)", [(task.id, msgspec.json.encode(task)) for task in tasks]
            )

    async def read_run(self) -> FleetRun:
        return await self._run(self._read_run)

    def _read_run(self) -> FleetRun:
        found = self._connect().execute("SELECT info FROM run").fetchone()
        if found is None:
            raise UsageError(f"There is no run {self._path.stem}.", "`odin fleet list` lists the runs.")
        return msgspec.json.decode(found[0], type=FleetRun)

    async def list_tasks(self) -> Sequence[TaskState]:
        return await self._run(self._list_tasks)

    def _list_tasks(self) -> list[TaskState]:
        rows = self._connect().execute(
            "SELECT spec, status, attempt, retries, worker, progress, result, started, ended, earlier_usd, usd"
            " FROM tasks ORDER BY number"
        )
        return [
            TaskState(
                msgspec.json.decode(spec, type=FleetTask),
                status,
                attempt,
                retries,
                worker,
                msgspec.json.decode(progress, type=Progress) if progress else Progress(),
                # A task that is ended between two attempts has cost what they did.
                msgspec.structs.replace(msgspec.json.decode(result, type=TaskResult), usd=usd) if result else None,
                started,
                ended,
                earlier_usd,
            )
            for spec, status, attempt, retries, worker, progress, result, started, ended, earlier_usd, usd in rows
        ]

    async def signal(self, signal: Signal, tasks: Sequence[str] = ()) -> int:
        return await self._run(self._signal, signal, tasks)

    def _signal(self, signal: Signal, tasks: Sequence[str]) -> int:
        db, now = self._connect(), self._clock()
        chosen = ", ".join("?" * len(tasks))
        named = f" AND id IN ({chosen})" if tasks else ""
        with _transact(db):
            known = {row[0] for row in db.execute("SELECT id FROM tasks")}
            if missing := [task for task in tasks if task not in known]:
                raise UsageError(
                    f"There is no task {missing[0]!r} in this run.", "`odin fleet status RUN --json` lists all."
                )

            def change(statement: str, *values: Any) -> int:
                return db.execute(f"UPDATE tasks SET {statement}{named}", (*values, *tasks)).rowcount

            match signal:
                case "cancel":
                    return change(
                        "status = 'done', result = ?, ended = ? WHERE status IN ('waiting', 'paused')", _CANCELLED, now
                    ) + change("wanted = 'cancel' WHERE status = 'running'")
                case "pause":
                    return change("status = 'paused' WHERE status = 'waiting'") + change(
                        "wanted = 'pause' WHERE status = 'running' AND wanted = ''"
                    )
                case "resume":
                    return change("status = 'waiting', losses = 0 WHERE status = 'paused'") + change(
                        "wanted = '' WHERE status = 'running' AND wanted = 'pause'"
                    )
                case "retry":
                    return change(
                        "status = 'waiting', wanted = '', losses = 0, retries = retries + 1, result = NULL,"
                        " progress = NULL, earlier_usd = earlier_usd + usd, usd = 0, started = 0, ended = 0"
                        " WHERE status = 'done' AND json_extract(CAST(result AS TEXT), '$.outcome') != 'passed'"
                    )

    # --- for workers ---

    async def work(self, perform: Perform, slots: int, name: str) -> None:
        run = await self.read_run()
        running: set[asyncio.Task[None]] = set()
        stops: dict[str, asyncio.Event] = {}
        try:
            while True:
                while len(running) < slots and (claim := await self._run(self._claim, name, run)) is not None:
                    task = asyncio.create_task(self._perform(perform, run, claim, name, stops))
                    running.add(task)
                    task.add_done_callback(running.discard)
                for ended in {task for task in running if task.done()}:
                    ended.result()
                if not running and await self._run(self._is_finished):
                    return
                wanted = await self._run(self._list_wanted, name)
                for task_id in wanted & stops.keys():
                    stops[task_id].set()
                await asyncio.wait(
                    {*running, asyncio.create_task(asyncio.sleep(self._poll_s))}, return_when="FIRST_COMPLETED"
                )
        finally:
            for stop in stops.values():
                stop.set()
            if running:
                await asyncio.wait(running)
            for task in running:
                with suppress(asyncio.CancelledError):
                    task.result()
            await self._run(self._give_back, name)

    async def _perform(
        self, perform: Perform, run: FleetRun, claim: _Claim, name: str, stops: dict[str, asyncio.Event]
    ) -> None:
        task, number = claim.task, claim.attempt
        stop = stops[task.id] = asyncio.Event()

        async def report(progress: Progress) -> None:
            if not await self._run(self._extend, task.id, number, progress, run):
                stop.set()

        try:
            given = Attempt(run, task, number, claim.retries, claim.budget_usd, stop, report)
            result = await perform(given)
        except WorkerLost:
            await self._run(self._lose, task.id, number, run.attempts)
        else:
            await self._run(self._finish, task.id, number, result, run.attempts)
        finally:
            stops.pop(task.id, None)

    def _claim(self, worker: str, run: FleetRun) -> _Claim | None:
        db, now = self._connect(), self._clock()
        with _transact(db):
            held = db.execute("SELECT id, attempt, worker, lease FROM tasks WHERE status = 'running'").fetchall()
            for task, attempt, holder, lease in held:
                if holder != worker and (lease < now or not self._is_alive(holder)):
                    self._lose_in(db, task, attempt, run.attempts)
            found = db.execute(
                "SELECT id, spec, attempt, retries, usd FROM tasks WHERE status = 'waiting' AND due <= ?"
                " ORDER BY number LIMIT 1",
                (now,),
            ).fetchone()
            if found is None:
                return None
            name, spec, attempt, retries, usd = found
            left = _get_left(db, run)
            if left <= 0:
                for over, which in (
                    (TaskResult("not_run", "budget", OVER_BUDGET), "= 0"),
                    (TaskResult("failed", "budget", OVER_BUDGET), "> 0"),
                ):
                    db.execute(
                        "UPDATE tasks SET status = 'done', result = ?, ended = ?"
                        f" WHERE status = 'waiting' AND attempt {which}",
                        (msgspec.json.encode(over), now),
                    )
                return None
            db.execute(
                "UPDATE tasks SET status = 'running', attempt = attempt + 1, worker = ?, lease = ?,"
                " started = CASE started WHEN 0 THEN ? ELSE started END WHERE id = ?",
                (worker, now + self._lease_s, now, name),
            )
        task = msgspec.json.decode(spec, type=FleetTask)
        limit = min(task.limits.usd or math.inf, left + usd)
        return _Claim(task, attempt + 1, retries, 0.0 if math.isinf(limit) else limit)

    def _extend(self, task: str, attempt: int, progress: Progress, run: FleetRun) -> bool:
        """Store the progress and extend the lease. Return False if the task is to stop: another attempt has it, or the
        budget of the run is used up."""
        with _transact(self._connect()) as db:
            changed = db.execute(
                # A process that resumes a session begins to count anew.
                "UPDATE tasks SET lease = ?, usd = MAX(usd, ?), progress = CASE"
                " WHEN json_extract(CAST(progress AS TEXT), '$.requests') > ? THEN progress ELSE ? END"
                " WHERE id = ? AND attempt = ? AND status = 'running'",
                (
                    self._clock() + self._lease_s,
                    progress.usd,
                    progress.requests,
                    msgspec.json.encode(progress),
                    task,
                    attempt,
                ),
            ).rowcount
            return bool(changed) and _get_left(db, run) > 0

    def _finish(self, task: str, attempt: int, result: TaskResult, attempts: int) -> None:
        with _transact(self._connect()) as db:
            found = db.execute(
                "SELECT wanted, losses FROM tasks WHERE id = ? AND attempt = ? AND status = 'running'", (task, attempt)
            ).fetchone()
            if found is None:
                return
            status = "done"
            can_repeat = result.stopped or (result.is_transient and found[1] + 1 < attempts)
            if result.is_transient and can_repeat and not found[0]:
                self._lose_in(db, task, attempt, attempts)
                return
            if can_repeat and found[0] != "cancel":
                status = "paused" if found[0] == "pause" else "waiting"
            elif can_repeat:
                result = msgspec.structs.replace(result, outcome="cancelled", reason="cancelled")
            db.execute(
                "UPDATE tasks SET status = ?, wanted = '', worker = '', result = ?, usd = MAX(usd, ?), ended = ?"
                " WHERE id = ?",
                (status, msgspec.json.encode(result) if status == "done" else None, result.usd, self._clock(), task),
            )

    def _lose(self, task: str, attempt: int, attempts: int) -> None:
        with _transact(self._connect()) as db:
            self._lose_in(db, task, attempt, attempts)

    def _lose_in(self, db: sqlite3.Connection, task: str, attempt: int, attempts: int) -> None:
        """Give a task whose worker died to the next one, later each time. What kills every worker ends as a failure."""
        db.execute(
            f"UPDATE tasks SET {_GIVE_BACK}, losses = losses + (wanted = ''), due = ? + losses * ?"
            " WHERE id = ? AND attempt = ? AND status = 'running'",
            (_CANCELLED, self._clock(), self._clock(), self._pause_s, task, attempt),
        )
        found = db.execute("SELECT losses, progress, usd FROM tasks WHERE id = ?", (task,)).fetchone()
        if found[0] >= attempts:
            progress = msgspec.json.decode(found[1], type=Progress) if found[1] else Progress()
            detail = f"Its process died {found[0]} times."
            result = TaskResult(
                "failed" if progress.requests else "not_run", "died", detail, requests=progress.requests, usd=found[2]
            )
            db.execute(
                "UPDATE tasks SET status = 'done', result = ?, ended = ? WHERE id = ? AND status = 'waiting'",
                (msgspec.json.encode(result), self._clock(), task),
            )

    def _give_back(self, worker: str) -> None:
        """Give back what the worker holds without performing it: it was stopped just when it took the task."""
        with _transact(self._connect()) as db:
            db.execute(
                f"UPDATE tasks SET {_GIVE_BACK} WHERE status = 'running' AND worker = ?",
                (_CANCELLED, self._clock(), worker),
            )

    def _list_wanted(self, worker: str) -> set[str]:
        rows = self._connect().execute(
            "SELECT id FROM tasks WHERE status = 'running' AND worker = ? AND wanted != ''", (worker,)
        )
        return {row[0] for row in rows}

    def _is_finished(self) -> bool:
        return not self._connect().execute("SELECT 1 FROM tasks WHERE status IN ('waiting', 'running')").fetchone()


def _get_left(db: sqlite3.Connection, run: FleetRun) -> float:
    """Return what is left of the budget of the run."""
    if not run.budget_usd:
        return math.inf
    return run.budget_usd - db.execute("SELECT COALESCE(SUM(usd + earlier_usd), 0) FROM tasks").fetchone()[0]


@contextmanager
def _transact(db: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has ended it by itself if the disk is full
            db.execute("ROLLBACK")
        raise
