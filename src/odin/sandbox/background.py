"""Background processes, which outlive the tool call that started them: jobs with a time limit and services without."""

import asyncio
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from odin.core.event_values import Mode
from odin.core.profile import PROJECT, ProcessProfile
from odin.sandbox.output import BackgroundLog
from odin.sandbox.process import RunningProcess
from odin.sandbox.runner import ProcessRunner

MAX_AT_ONCE = 50
MAX_SECONDS = 600.0

_MAX_FINISHED = 100
"""Maximum number of finished processes that are remembered for SpawnStatus."""

_KILL_SECONDS = 1.0
"""Seconds to wait for a killed process to disappear."""

BackgroundStatus = Literal["running", "finished", "failed", "timed_out", "stopped"]


class SpawnRequest(Struct, frozen=True):
    """A process to start, and the tool call that asked for it. `seconds` is 0 for a service without a time limit."""

    command: str
    cwd: str
    description: str = ""
    seconds: float = 0.0
    agent: str = ""
    mode: Mode = "edit_mode"
    call_id: str = ""
    profile: ProcessProfile = PROJECT


class SpawnRefused(Exception):
    """A background process was not started. The message says why."""


class BackgroundProcess:
    """One background process, running or ended."""

    def __init__(
        self, id: str, request: SpawnRequest, log: BackgroundLog, running: RunningProcess, runner: ProcessRunner
    ) -> None:
        self.id = id
        self.runner = runner
        self.request = request
        self.log = log
        self.status: BackgroundStatus = "running"
        self.code = 0
        self.running = running
        self.is_stop_requested = False
        self._began = time.monotonic()
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran until it ended."""
        return (self._ended or time.monotonic()) - self._began

    @property
    def name(self) -> str:
        """The id with the description, for messages."""
        return f"{self.id} ({self.request.description or self.request.command.strip().partition(chr(10))[0][:80]})"

    def has_survivors(self) -> bool:
        """True if it has ended but a process it started still runs."""
        return self.status != "running" and (self.running.is_reading or self.running.has_survivors())

    def finish(self, status: BackgroundStatus) -> None:
        self.status = status
        self.code = self.running.code
        self._ended = time.monotonic()


class BackgroundListener(Protocol):
    """Notified when background processes start and end."""

    def on_started(self, spawned: BackgroundProcess) -> None: ...

    def on_ended(self, spawned: BackgroundProcess) -> None: ...


class BackgroundProcesses:
    """The background processes of one session.

    `folder` receives their logs and is created with the first one. `used_ids` is the number of ids used by earlier runs
    of the session.
    """

    def __init__(
        self, runner: ProcessRunner, folder: Path, *, used_ids: int = 0, listener: BackgroundListener | None = None
    ) -> None:
        self.listener = listener
        self.used_ids = used_ids
        self._runner = runner
        self._runners: dict[str, ProcessRunner] = {}
        self._folder = folder
        self._count = used_ids
        self._processes: dict[str, BackgroundProcess] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def add_runner(self, agent: str, runner: ProcessRunner) -> None:
        """Start the processes of this agent with its own runner."""
        self._runners[agent] = runner

    def start(self, request: SpawnRequest) -> BackgroundProcess:
        """Start a process. Raise SpawnRefused if it is not allowed now, OSError if it cannot be started."""
        if self._closed:
            raise SpawnRefused("the session is closing.")
        if len(self._tasks) >= MAX_AT_ONCE:
            raise SpawnRefused(
                f"{MAX_AT_ONCE} background processes are already running. Stop one with SpawnStop first."
            )
        name, log = self._create_log()
        runner = self._runners.get(request.agent, self._runner)
        try:
            running = runner.start_detached(request.command, cwd=request.cwd, sink=log, profile=request.profile)
        except BaseException:
            log.close()
            Path(log.path).unlink(missing_ok=True)
            raise
        spawned = self._processes[name] = BackgroundProcess(name, request, log, running, runner)
        self._tasks[name] = asyncio.get_running_loop().create_task(self._watch(spawned))
        try:
            if self.listener is not None:
                self.listener.on_started(spawned)
        except BaseException:
            spawned.is_stop_requested = True
            running.send_signal(signal.SIGKILL)
            raise
        return spawned

    def _create_log(self) -> tuple[str, BackgroundLog]:
        """Return an unused id and its log. Skips a log that a killed run left behind."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            self._count += 1
            name = f"spawn-{self._count}"
            with suppress(FileExistsError):
                return name, BackgroundLog(self._folder / f"{name}.log")

    def get(self, id: str) -> BackgroundProcess | None:
        return self._processes.get(id)

    def list_running_calls(self) -> list[str]:
        """Return the ids of the calls whose processes still run."""
        return [item.request.call_id for item in self.list_all() if item.status == "running"]

    def list_all(self) -> tuple[BackgroundProcess, ...]:
        return tuple(self._processes.values())

    async def stop(self, spawned: BackgroundProcess) -> None:
        """Terminate a process (TERM, then KILL). The agent that started it is not notified."""
        spawned.is_stop_requested = True
        await spawned.runner.terminate(spawned.running)
        watch = self._tasks.get(spawned.id)
        if watch is not None:
            await asyncio.wait([watch], timeout=_KILL_SECONDS)
            watch.cancel()
            self._finish(spawned, "stopped")

    def stop_accepting(self) -> None:
        """Refuse new processes because the session is ending; processes that end now count as stopped."""
        self._closed = True

    async def close(self) -> None:
        """Stop all background processes."""
        self.stop_accepting()
        if self._count == self.used_ids:
            return
        for runner in (self._runner, *self._runners.values()):
            await runner.close()
        for name, watch in list(self._tasks.items()):
            watch.cancel()
            await asyncio.wait([watch])
            self._finish(self._processes[name], "stopped")

    async def _watch(self, spawned: BackgroundProcess) -> None:
        status: BackgroundStatus = "finished"
        try:
            async with asyncio.timeout(spawned.request.seconds or None):
                await spawned.running.done
        except TimeoutError:
            status = "timed_out"
            await spawned.runner.terminate(spawned.running)
        if spawned.is_stop_requested or self._closed:
            status = "stopped"
        elif status == "finished" and spawned.running.code:
            status = "failed"
        self._finish(spawned, status)

    def _finish(self, spawned: BackgroundProcess, status: BackgroundStatus) -> None:
        if self._tasks.pop(spawned.id, None) is None:
            return
        spawned.finish(status)
        if not spawned.has_survivors():
            spawned.runner.forget(spawned.running)
        over = [name for name in self._processes if name not in self._tasks]
        for name in over[:-_MAX_FINISHED]:
            del self._processes[name]
        if self.listener is not None:
            self.listener.on_ended(spawned)
