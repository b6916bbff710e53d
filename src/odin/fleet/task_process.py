"""The process of one task: it opens or resumes the session, waits for its end, judges it and stores the results.

It tells its worker how far it is through a pipe, and ends when that breaks. Whatever happens to it happens to no
other task, and the next process finds in the session's log where this one was.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from odin.app.debug_log import make_redactor
from odin.app.git import Git
from odin.app.sandbox import LazySandbox
from odin.app.shared_copy import copy_session
from odin.config import Options, load
from odin.config.paths import make_environment
from odin.core.call_events import ToolStarted, UsageRecorded
from odin.core.client import Client, QueuedPrompt
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError, RetryableError, SessionLocked
from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.core.message import Usage
from odin.core.op import ChangePrompt, Interrupt, Prompt
from odin.core.profile import PROJECT
from odin.core.text import to_valid_unicode
from odin.fleet.checkout import Checkout
from odin.fleet.engine import FleetRun, Outcome, Progress, TaskResult, name_session
from odin.fleet.result_store import open_store
from odin.fleet.task import FleetTask
from odin.host.manager import SessionManager
from odin.policy.modes import parse_mode
from odin.sandbox.runner import ProcessRunner
from odin.server.local import LocalListener
from odin.ui.exit import describe_ending

_REPORT_S = 2.0
_CHECK_S = 1800.0
_CLOSE_S = 10.0
_OUTPUT_CHARS = 2000
_LOCK_TRIES = 30
_RESUMED = "Odin was interrupted in the middle of this task. Look at what is done, and carry on with the rest."


class TaskOrder(Struct, frozen=True):
    """What a worker tells the process of a task. `folder` is that of the run on this machine, `env` the environment of
    the worker.
    """

    run: FleetRun
    task: FleetTask
    retries: int
    budget_usd: float
    folder: str
    state_dir: str
    log: str
    env: dict[str, str]


class TaskProgressed(Struct, frozen=True, tag=True):
    progress: Progress


class TaskEnded(Struct, frozen=True, tag=True):
    result: TaskResult


ProcessMessage = TaskProgressed | TaskEnded

STOP = b"stop"


def run_task_process(connection: Connection, order: bytes) -> None:
    """Run the task of an order. The main function of the process."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    given = msgspec.json.decode(order, type=TaskOrder)
    log = os.open(given.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    gc.freeze()
    asyncio.run(TaskRun(given, connection).run())


T = TypeVar("T")


class _Stopped(Exception):
    """The task is to stop: its time is over, or the worker says so."""


class TaskRun:
    """One attempt at a task."""

    def __init__(self, order: TaskOrder, connection: Connection) -> None:
        self._order = order
        self._task = order.task
        self._pipe = connection
        self._stop = asyncio.Event()
        self._timed_out = False
        self._progress = Progress()
        self._usage = Usage()
        self._began = time.monotonic()
        self._session = ""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._read_pipe)
        timer = loop.call_later(self._task.limits.minutes * 60, self._time_out)
        reporting = asyncio.create_task(self._report())
        try:
            result = await self._work()
        finally:
            timer.cancel()
            reporting.cancel()
            loop.remove_reader(self._pipe.fileno())
        self._send(TaskEnded(result))

    def _read_pipe(self) -> None:
        try:
            if self._pipe.recv_bytes() == STOP:
                self._stop.set()
        except (EOFError, OSError):  # the worker has died: another one resumes the session
            os.killpg(0, signal.SIGKILL)

    def _time_out(self) -> None:
        self._timed_out = True
        self._stop.set()

    async def _report(self) -> None:
        while True:
            self._send(TaskProgressed(self._progress))
            await asyncio.sleep(_REPORT_S)

    def _send(self, message: ProcessMessage) -> None:
        with suppress(OSError):
            self._pipe.send_bytes(msgspec.json.encode(message))

    async def _work(self) -> TaskResult:
        order, task = self._order, self._task
        folder = Path(order.folder)
        base = make_environment(order.env, order.folder, order.state_dir)
        config = load(order.folder, base.variables)
        runner = ProcessRunner(base, sandbox=LazySandbox(config, base).get)
        git = Git(runner, Path(base.state_dir), unsandboxed=order.run.unsandboxed)
        checkout = Checkout(folder, task, order.retries, git)
        try:
            try:
                await self._unless_stopped(checkout.prepare())
            except (OdinError, OSError) as error:
                return self._make_result("not_run", "repository", str(error))
            environment = make_environment(order.env, str(checkout.path), order.state_dir)
            options = self._make_options(checkout, config.sandbox.backend)
            sandbox = LazySandbox(load(options.cwd, base.variables, options.to_flags(), trust=task.trust), environment)
            if not order.run.unsandboxed and sandbox.find_level() == "none":
                why = sandbox.explain_level() or "No sandbox works here."
                return self._make_result("not_run", "sandbox", f"{why} --unsandboxed runs tasks without one.")
            result = await self._run_session(options)
            if result.stopped or result.outcome == "not_run":
                return result
            checks = ProcessRunner(environment, env_passthrough=task.secrets, sandbox=sandbox.get)
            try:
                if result.outcome == "passed":
                    result = await self._unless_stopped(self._run_checks(result, checks, environment))
            finally:
                await checks.close()
                sandbox.close()
            result = await self._store(result, checkout, environment)
        except _Stopped:
            return self._describe_stop("failed" if self._progress.requests else "not_run")
        except (OdinError, OSError) as error:
            return self._make_result("not_run", "store", str(error), is_transient=True)
        else:
            if result.outcome == "passed" and not order.run.keep:
                await checkout.remove()
            return result
        finally:
            await runner.close()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns. Raise _Stopped if the task is to stop before."""
        task, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Stopped
            return task.result()
        finally:
            stopping.cancel()
            task.cancel()
            await asyncio.wait({task})

    def _describe_stop(self, outcome: Outcome) -> TaskResult:
        if self._timed_out:
            return self._make_result(outcome, "time", f"It took longer than {self._task.limits.minutes:g} min.")
        return self._make_result(outcome, stopped=True)

    def _make_options(self, checkout: Checkout, backend: str) -> Options:
        """Return the options of the session. Commands need no approval: the sandbox confines them to the checkout.

        No setting of the user widens the sandbox, and file tools are refused elsewhere, because nobody can be asked.
        """
        task, run = self._task, self._order.run
        return Options(
            cwd=str(checkout.path),
            model=task.model,
            pool=task.pool,
            role=task.role,
            mode=task.mode,
            permission_mode="bypassPermissions" if run.unsandboxed else "auto",
            allowed_tools=("Bash",),
            max_turns=task.limits.calls or None,
            max_budget_usd=self._order.budget_usd or None,
            headless=True,
            trust=task.trust,
            state_dir=self._order.state_dir,
            env=self._order.env,
            settings={
                "sandbox": {"backend": "off" if run.unsandboxed else backend, "network": task.network},
                "env_passthrough": list(task.secrets),
            },
        )

    # --- the session ---

    async def _run_session(self, options: Options) -> TaskResult:
        name = name_session(self._order.run.name, self._task.id, self._order.retries)
        self._session = name
        manager = SessionManager()
        async with LocalListener(manager, options, Path(self._order.state_dir)):
            try:
                client = await self._open(manager, options, name)
            except OdinError as error:
                return self._make_result("not_run", "session", error.describe())
            try:
                return await self._follow(client)
            except OdinError as error:
                return self._make_result("failed", type(error).__name__, error.describe())
            finally:
                await client.close(_CLOSE_S)
                await manager.close(_CLOSE_S)

    async def _open(self, manager: SessionManager, options: Options, name: str) -> Client:
        from odin.app.workspace import make_workspace

        replace = msgspec.structs.replace
        for _ in range(_LOCK_TRIES):
            is_known = make_workspace(options).store.find_log(name) is not None
            try:
                return await manager.open(replace(options, **{"resume" if is_known else "session_id": name}))
            except SessionLocked:  # by the process of an earlier attempt, which is ending
                await asyncio.sleep(1)
        return await manager.open(replace(options, resume=name))

    async def _follow(self, client: Client) -> TaskResult:
        """Submit the prompt, unless the log has it, and wait for the end of the work."""
        shot = await client.snapshot()
        past_end = shot.seq
        events = client.stream_events(after=-1)
        ended: TurnEnded | None = None
        turns = 0
        submitted = shot.seq < 0
        if submitted:
            await self._submit(client, (), 0)
        stopping = asyncio.create_task(self._stop.wait())
        reading = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                if (
                    submitted
                    and ended is not None
                    and not await client.is_working()
                    and reading not in (await asyncio.wait({reading}, timeout=0.2))[0]
                ):
                    return self._judge(ended)
                done, _ = await asyncio.wait({reading, stopping}, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
                if stopping in done:
                    await client.submit(Interrupt())
                    await client.close(_CLOSE_S)
                    return self._describe_stop("failed")
                if reading not in done:
                    continue
                envelope = reading.result()
                if envelope is None:
                    return self._make_result("failed", "closed", "The session was closed.")
                self._note(envelope)
                event = envelope.event
                if not envelope.agent and isinstance(event, TurnStarted):
                    ended, turns = None, turns + 1
                elif not envelope.agent and isinstance(event, TurnEnded):
                    ended = event
                if not submitted and envelope.seq >= past_end:
                    submitted = True
                    if ended is None or ended.reason in ("aborted", "interrupted"):
                        ended = None
                        await self._submit(client, shot.queue, turns)
                reading = asyncio.ensure_future(anext(events, None))
        finally:
            stopping.cancel()
            reading.cancel()

    async def _submit(self, client: Client, queue: Sequence[QueuedPrompt], turns: int) -> None:
        """Submit the prompt, or have the session go on where an earlier attempt left it after so many turns."""
        if queue:
            await client.submit(ChangePrompt(queue[0].id, delivery="queue"))
            return
        text = _RESUMED if turns else to_valid_unicode(self._task.prompt)
        await client.submit(Prompt(f"task.{turns}", text, parse_mode(self._task.mode)))

    def _note(self, envelope: Envelope) -> None:
        event, now = envelope.event, self._progress
        if isinstance(event, UsageRecorded):
            self._usage += event.usage
            now = msgspec.structs.replace(
                now, requests=now.requests + 1, tokens=self._usage.total, usd=now.usd + event.cost_usd
            )
        elif isinstance(event, ToolStarted):
            now = msgspec.structs.replace(now, activity=event.name)
        self._progress = msgspec.structs.replace(now, event=max(now.event, envelope.seq))

    def _judge(self, ended: TurnEnded) -> TaskResult:
        if ended.reason == "end_turn":
            return self._make_result("passed")
        reason = (
            {"max_turns": "calls", "error_max_budget_usd": "cost"}.get(ended.reason) or ended.error_kind or ended.reason
        )
        from odin.core import errors

        kind = getattr(errors, ended.error_kind, OdinError) if ended.error_kind else OdinError
        never_ran = ended.reason == "error" and not self._progress.requests
        return self._make_result(
            "not_run" if never_ran else "failed",
            reason,
            describe_ending(ended),
            is_transient=ended.reason == "error" and issubclass(kind, RetryableError),
        )

    def _make_result(
        self, outcome: Outcome, reason: str = "", detail: str = "", *, stopped: bool = False, is_transient: bool = False
    ) -> TaskResult:
        written = self._usage.output + self._usage.reasoning
        return TaskResult(
            outcome,
            reason,
            detail,
            self._session,
            self._progress.requests,
            self._usage.total - written,
            written,
            self._progress.usd,
            round(time.monotonic() - self._began, 2),
            stopped=stopped,
            is_transient=is_transient,
        )

    # --- the end ---

    async def _run_checks(
        self, result: TaskResult, runner: ProcessRunner, environment: ExecutionEnvironment
    ) -> TaskResult:
        for command in self._task.checks:
            done = await runner.run(command, cwd=environment.cwd, timeout=_CHECK_S, profile=PROJECT)
            if done.code or done.timed_out:
                why = "took too long" if done.timed_out else f"exit code {done.code}"
                detail = f"`{command}`: {why}\n{done.output[-_OUTPUT_CHARS:]}"
                return msgspec.structs.replace(result, outcome="failed", reason="checks", detail=detail)
        return result

    async def _store(self, result: TaskResult, checkout: Checkout, environment: ExecutionEnvironment) -> TaskResult:
        """Store what the task is to return, and the result last: where that is, everything is."""
        store = open_store(self._order.run.store)
        redact = make_redactor(str(checkout.path), environment.variables)
        result = msgspec.structs.replace(result, detail=redact(result.detail).text)
        files: list[str] = []
        async for name, data in self._collect(checkout, environment):
            await asyncio.to_thread(store.write, f"{self._task.id}/{name}", data)
            files.append(name)
        result = msgspec.structs.replace(result, files=tuple(files))
        await asyncio.to_thread(store.write, f"{self._task.id}/result.json", msgspec.json.encode(result))
        return result

    async def _collect(self, checkout: Checkout, environment: ExecutionEnvironment) -> AsyncIterator[tuple[str, bytes]]:
        from odin.app.workspace import make_workspace

        wanted = self._task.outputs
        if "patch" in wanted:
            yield "patch.diff", await checkout.collect_patch()
        if "files" in wanted:
            for name, data in (await asyncio.to_thread(checkout.read_files, self._task.files)).items():
                yield f"files/{name}", data
        if "branch" in wanted and (bundle := await checkout.collect_branch()):
            yield "branch.bundle", bundle
        if "session" in wanted:
            options = Options(cwd=str(checkout.path), state_dir=self._order.state_dir, env=self._order.env)
            log = make_workspace(options).store.find_log(self._session)
            if log is not None:
                copy = await asyncio.to_thread(copy_session, log, environment)
                for name, data in copy.list_files():
                    yield f"session/{name}", data
