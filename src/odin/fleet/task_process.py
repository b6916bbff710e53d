"""The process of one task: it opens or resumes the session, waits for its end, judges it and stores the results.

It tells its worker how far it is through a pipe, and ends when that breaks. Whatever happens to it happens to no
other task, and the next process finds in the session's log where this one was.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from odin.app.debug_log import make_redactor
from odin.app.git import Git
from odin.app.sandbox import LazySandbox
from odin.app.shared_copy import copy_session
from odin.config import Options, load
from odin.config.paths import make_environment
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError
from odin.fleet.checkout import Checkout, CheckoutUnusable
from odin.fleet.engine import FleetRun, Progress, TaskResult, name_session
from odin.fleet.eval_suite import EVAL_PREFIX, find_eval_task
from odin.fleet.result_store import open_store
from odin.fleet.session_run import RunStopped, SessionRun, find_failed_check
from odin.fleet.task import FleetTask
from odin.host.manager import SessionManager
from odin.policy.modes import parse_mode
from odin.sandbox.runner import ProcessRunner
from odin.server.local import LocalListener

_REPORT_S = 2.0
_CLOSE_S = 10.0


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


class ProcessPipe(Protocol):
    """The pipe to the worker, as `multiprocessing` makes it."""

    def fileno(self) -> int: ...

    def send_bytes(self, buf: bytes) -> None: ...

    def recv_bytes(self) -> bytes: ...


def run_task_process(pipe: ProcessPipe, order: bytes) -> None:
    """Run the task of an order. The main function of the process."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    given = msgspec.json.decode(order, type=TaskOrder)
    log = os.open(given.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    gc.freeze()

    async def run() -> None:
        await TaskRun(given, pipe).run()

    asyncio.run(run())


class TaskRun:
    """One attempt at a task. Make it in the event loop."""

    def __init__(self, order: TaskOrder, pipe: ProcessPipe) -> None:
        self._order = order
        self._task = order.task
        self._name = name_session(order.run, order.task.id, order.retries)
        self._pipe = pipe
        self._session = SessionRun(order.task.prompt, order.task.limits.minutes, parse_mode(order.task.mode))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._read_pipe)
        reporting = asyncio.create_task(self._report())
        try:
            result = self._redact(await self._work(), self._order.folder)
        finally:
            reporting.cancel()
            loop.remove_reader(self._pipe.fileno())
        self._send(TaskEnded(result))

    def _redact(self, result: TaskResult, folder: str) -> TaskResult:
        """Return the result without the secrets of the user, of the task and of the files in a folder."""
        if not result.detail:
            return result
        redact = make_redactor(folder, self._order.env, self._task.secrets)
        return msgspec.structs.replace(result, detail=redact(result.detail).text)

    def _read_pipe(self) -> None:
        try:
            if self._pipe.recv_bytes() == STOP:
                self._session.stop.set()
        except (EOFError, OSError):  # the worker has died: another one resumes the session
            os.killpg(0, signal.SIGKILL)

    async def _report(self) -> None:
        while True:
            self._send(TaskProgressed(self._session.progress))
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
        checkout = Checkout(folder, order.run, task, order.retries, git)
        try:
            if (found := await asyncio.to_thread(self._find_stored)) is not None:
                if found.outcome == "passed" and not order.run.keep:
                    await checkout.remove()
                return found
            try:
                await self._session.unless_stopped(checkout.prepare())
            except (OdinError, OSError) as error:
                return self._session.make_result("not_run", "repository", str(error))
            environment = make_environment(order.env, str(checkout.path), order.state_dir)
            options = self._make_options(checkout, config.sandbox.backend)
            sandbox = LazySandbox(load(options.cwd, base.variables, options.to_flags(), trust=task.trust), environment)
            if not order.run.unsandboxed and not await sandbox.can_confine():
                why = sandbox.explain_level() or "No sandbox works here."
                return self._session.make_result("not_run", "sandbox", f"{why} --unsandboxed runs tasks without one.")
            result = await self._run_session(options)
            if result.stopped or result.outcome == "not_run":
                return result
            checks = ProcessRunner(environment, env_passthrough=task.secrets, sandbox=sandbox.get)
            try:
                if result.outcome == "passed":
                    result = await self._session.unless_stopped(self._check(result, checks, checkout))
            except RunStopped:
                result = self._session.describe_stop("failed")
                if result.stopped:
                    return result
            finally:
                await checks.close()
                await sandbox.close()
            result = await self._store(result, checkout, environment)
        except RunStopped:
            return self._session.describe_stop("failed" if self._session.progress.requests else "not_run")
        except (OdinError, OSError) as error:
            return self._session.make_result("not_run", "store", str(error), is_transient=True)
        else:
            if result.outcome == "passed" and not order.run.keep:
                await checkout.remove()
            return result
        finally:
            await runner.close()

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

    async def _run_session(self, options: Options) -> TaskResult:
        manager = SessionManager()
        async with LocalListener(manager, options, Path(self._order.state_dir)):
            try:
                return await self._session.run(manager, options, self._name)
            finally:
                await manager.close(_CLOSE_S)

    # --- the end ---

    def _find_stored(self) -> TaskResult | None:
        """Return the result that an earlier attempt has stored before its worker died, if there is one."""
        try:
            data = open_store(self._order.run.store).read(f"{self._task.id}/result.json")
            found = msgspec.json.decode(data, type=TaskResult)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        is_end = found.outcome in ("passed", "failed") and not found.stopped and not found.is_transient
        return found if is_end and found.session == self._name else None

    async def _check(self, result: TaskResult, runner: ProcessRunner, checkout: Checkout) -> TaskResult:
        """Return the result as the checks of the task see it."""
        fault = ""
        if self._task.repository.startswith(EVAL_PREFIX):
            answer = self._session.ended.text if self._session.ended else ""
            fault = await find_eval_task(self._task.repository).find_fault(checkout.path, answer, runner)
        fault = fault or await find_failed_check(self._task.checks, str(checkout.path), runner)
        return msgspec.structs.replace(result, outcome="failed", reason="checks", detail=fault) if fault else result

    async def _store(self, result: TaskResult, checkout: Checkout, environment: ExecutionEnvironment) -> TaskResult:
        """Store what the task is to return, and the result last: where that is, everything is."""
        store = open_store(self._order.run.store)
        files: list[str] = []
        try:
            async for name, data in self._collect(checkout, environment):
                await asyncio.to_thread(store.write, f"{self._task.id}/{name}", data)
                files.append(name)
        except CheckoutUnusable as error:
            if result.outcome == "passed":
                result = msgspec.structs.replace(result, outcome="failed", reason="outputs", detail=str(error))
        result = self._redact(msgspec.structs.replace(result, files=tuple(files)), str(checkout.path))
        await asyncio.to_thread(store.write, f"{self._task.id}/result.json", msgspec.json.encode(result))
        return result

    async def _collect(self, checkout: Checkout, environment: ExecutionEnvironment) -> AsyncIterator[tuple[str, bytes]]:
        from odin.app.workspace import make_workspace

        wanted = self._task.outputs
        if "session" in wanted:
            options = Options(cwd=str(checkout.path), state_dir=self._order.state_dir, env=self._order.env)
            log = make_workspace(options).store.find_log(self._session.session)
            if log is not None:
                copy = await asyncio.to_thread(copy_session, log, environment, secrets=self._task.secrets)
                for name, data in copy.list_files():
                    yield f"session/{name}", data
        if "patch" in wanted:
            yield "patch.diff", await checkout.collect_patch()
        if "files" in wanted:
            for name, data in (await asyncio.to_thread(checkout.read_files, self._task.files)).items():
                yield f"files/{name}", data
        if "branch" in wanted and (bundle := await checkout.collect_branch()):
            yield "branch.bundle", bundle
