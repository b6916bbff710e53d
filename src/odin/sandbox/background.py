"""Background processes, which outlive the tool call that started them: jobs with a time limit and services without.

Odin looks for the ports that they listen on. A port in the sandbox's network is opened to the host only if the user
says so.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from odin.core.errors import UsageError
from odin.core.event_values import Mode
from odin.core.profile import PROJECT, ProcessProfile
from odin.core.tool import ToolOutput
from odin.sandbox.output import BackgroundLog, LineMatcher
from odin.sandbox.ports import Address, PortForward, has_own_network, list_listeners, list_sockets
from odin.sandbox.process import RunningProcess, find_marked, list_group_members
from odin.sandbox.runner import CommandReleased, ProcessRunner

MAX_AT_ONCE = 50
MAX_SECONDS = 600.0

_MAX_FINISHED = 100
"""Maximum number of finished processes that are remembered for SpawnStatus."""

_KILL_SECONDS = 1.0
"""Seconds to wait for a killed process to disappear."""

_LOOK_S, _MAX_LOOK_S = 0.5, 5.0
"""How long after its start, and then how often at the least, a process is looked at for new ports."""

BackgroundStatus = Literal["running", "finished", "failed", "timed_out", "stopped"]


Settle = Callable[[str], Awaitable[ToolOutput]]


class SpawnRequest(Struct, frozen=True):
    """A process to start, and the tool call that asked for it. `seconds` is 0 for a service without a time limit.

    Lines of its output that contain the text `notify` are reported.
    """

    command: str
    cwd: str
    description: str = ""
    seconds: float = 0.0
    agent: str = ""
    mode: Mode = "edit_mode"
    call_id: str = ""
    profile: ProcessProfile = PROJECT
    notify: str = ""


class SpawnRefused(Exception):
    """A background process was not started. The message says why."""


class BackgroundProcess:
    """One background process, running or ended.

    `urls` has the ports it listens on, and where the host reaches them, or "" for one that is not open to the host.
    `tasks` end with it. `settler` is for one that runs in a view: the function that decides about what it wrote when it
    has ended. Its argument says why that is not complete, or is "".
    """

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
        self.is_stopped_by_user = False
        self.urls: dict[int, str] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.settler: asyncio.Future[Settle] | None = None
        self._addresses: dict[int, Address] = {}
        self._forwards: list[PortForward] = []
        self._seen: dict[str, Address] = {}
        self._looking = asyncio.Lock()
        self.started = time.time()
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

    @property
    def is_left(self) -> bool:
        """True if it or a process it started still runs."""
        return self.status == "running" or self.has_survivors()

    def has_survivors(self) -> bool:
        """True if it has ended but a process it started still runs."""
        return self.status != "running" and (self.running.is_reading or self.running.has_survivors())

    async def find_new_ports(self) -> list[int]:
        """Return the ports that it listens on since the last look."""
        async with self._looking:
            try:
                is_apart = has_own_network(self.running.pid)
            except OSError:  # it has ended, or this system has no /proc
                return []
            listeners = list_listeners(self.running.pid)
            new = listeners.keys() - self._seen.keys()
            self._seen = listeners
            own = await asyncio.to_thread(self._list_own_sockets) if new else set[str]()
        if not new or self.status != "running":
            return []
        found = {listeners[number][1]: listeners[number] for number in new & own}
        ports = [port for port in found if port not in self.urls]
        self._addresses |= found
        self.urls |= {port: "" if is_apart else f"http://127.0.0.1:{port}" for port in ports}
        return sorted(ports)

    def _list_own_sockets(self) -> set[str]:
        return list_sockets({*list_group_members(self.running.pid), *find_marked(self.running.mark)})

    async def open_port(self, port: int) -> str:
        """Forward a port of the host to one that it listens on. Return its URL, "" if it has ended. Raise OSError."""
        forward = PortForward(self._addresses[port], self.running.open_socket)
        await forward.open()
        if self.urls.get(port, forward.url):  # it has ended, or the port was opened meanwhile
            forward.close()
            return self.urls.get(port, "")
        self._forwards.append(forward)
        self.urls[port] = forward.url
        return forward.url

    def finish(self, status: BackgroundStatus) -> None:
        for task in self.tasks:
            task.cancel()
        for forward in self._forwards:
            forward.close()
        self.urls.clear()
        self.status = status
        self.code = self.running.code
        self._ended = time.monotonic()


class BackgroundListener(Protocol):
    """Notified when background processes start and end."""

    def on_started(self, spawned: BackgroundProcess) -> None: ...

    def on_listening(self, spawned: BackgroundProcess, port: int) -> None: ...

    def on_lines(self, spawned: BackgroundProcess, lines: list[str], *, is_last: bool) -> None: ...

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
        self._starting = 0
        self._processes: dict[str, BackgroundProcess] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[asyncio.Future[None], str] = {}
        self._closed = False

    def add_runner(self, agent: str, runner: ProcessRunner) -> None:
        """Start the processes of this agent with its own runner."""
        self._runners[agent] = runner

    async def start(self, request: SpawnRequest) -> BackgroundProcess:
        """Start a process. Raise SpawnRefused if it is not allowed now, OSError if it cannot be started."""
        if self._closed:
            raise SpawnRefused("the session is closing.")
        if len(self._tasks) + self._starting >= MAX_AT_ONCE:
            raise SpawnRefused(
                f"{MAX_AT_ONCE} background processes are already running. Stop one with SpawnStop first."
            )
        name, log = self._create_log()
        runner = self._runners.get(request.agent, self._runner)
        self._starting += 1
        try:
            running = await runner.start_detached(request.command, cwd=request.cwd, sink=log, profile=request.profile)
        except BaseException:
            log.close()
            Path(log.path).unlink(missing_ok=True)
            raise
        finally:
            self._starting -= 1
        spawned = BackgroundProcess(name, request, log, running, runner)
        if request.notify:
            log.matcher = LineMatcher(request.notify, partial(self._report_lines, spawned))
        return self._add(spawned)

    def _report_lines(self, spawned: BackgroundProcess, lines: list[str], is_last: bool) -> None:
        if self.listener is not None and not self._closed and not spawned.is_stop_requested:
            self.listener.on_lines(spawned, lines, is_last=is_last)

    def _add(self, spawned: BackgroundProcess) -> BackgroundProcess:
        running, loop = spawned.running, asyncio.get_running_loop()
        self._processes[spawned.id] = spawned
        self._tasks[spawned.id] = loop.create_task(self._watch(spawned))
        if sys.platform == "linux":
            spawned.tasks.add(loop.create_task(self._watch_ports(spawned)))
        try:
            if self.listener is not None:
                self.listener.on_started(spawned)
        except BaseException:
            spawned.is_stop_requested = True
            running.kill()
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

    def find(self, id: str) -> BackgroundProcess:
        """Return the process with this id, or number. Raise UsageError if there is none."""
        found = self.get(id) or self.get(f"spawn-{id}")
        if found is None:
            known = ", ".join(item.id for item in self.list_all())
            raise UsageError(f"There is no background process {id!r}.", f"Known: {known or 'none'}.")
        return found

    def list_running_calls(self) -> list[str]:
        """Return the ids of the calls whose processes still run and may change the project."""
        running = (item for item in self.list_all() if item.status == "running" and item.running.view is None)
        return [item.request.call_id for item in running]

    def list_all(self) -> tuple[BackgroundProcess, ...]:
        return tuple(self._processes.values())

    @contextmanager
    def offer(self, agent: str) -> Generator["asyncio.Future[None]"]:
        """Yield what is done when the user sends the command that this agent waits for to the background."""
        released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[released] = agent
        try:
            yield released
        finally:
            del self._waiting[released]

    def release(self, agent: str) -> bool:
        """Let the commands that this agent waits for go on in the background. Return False if there are none.

        Raise UsageError if too many run there.
        """
        found = [released for released, name in self._waiting.items() if name == agent and not released.done()]
        if len(self._tasks) + len(found) > MAX_AT_ONCE:
            raise UsageError(f"{MAX_AT_ONCE} background processes are already running.", "Stop one with /ps first.")
        for released in found:
            released.set_result(None)
        return bool(found)

    def adopt(self, request: SpawnRequest, command: CommandReleased, runner: ProcessRunner) -> BackgroundProcess:
        """Go on with a command that was sent to the background. Raise OSError if its log cannot be written."""
        name, log = self._create_log()
        log.add(command.printed.encode("utf-8", "surrogateescape"))
        command.running.pipes[0].redirect(log)
        spawned = BackgroundProcess(name, request, log, command.running, runner)
        if command.running.view is not None:
            spawned.settler = asyncio.get_running_loop().create_future()
        return self._add(spawned)

    def find_moved(self, call_id: str) -> BackgroundProcess | None:
        """Return the process of a call if it still needs its settler."""
        left = (item for item in self.list_all() if item.settler is not None and not item.settler.done())
        return next((item for item in left if item.request.call_id == call_id), None)

    async def look_for_ports(self) -> None:
        """Look now for the ports of all running processes."""
        for spawned in self.list_all():
            await self._look_for_ports_of(spawned)

    async def _look_for_ports_of(self, spawned: BackgroundProcess) -> None:
        for port in await spawned.find_new_ports() if spawned.status == "running" else ():
            if self.listener is not None:
                self.listener.on_listening(spawned, port)

    async def _watch_ports(self, spawned: BackgroundProcess) -> None:
        pause = _LOOK_S
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_LOOK_S)
            await self._look_for_ports_of(spawned)

    async def stop(self, spawned: BackgroundProcess, *, by_user: bool = False) -> None:
        """Terminate a process (TERM, then KILL). The agent that started it is notified only if the user stops it."""
        spawned.is_stop_requested = True
        spawned.is_stopped_by_user = by_user
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
        if spawned.log.matcher is not None:
            spawned.log.matcher.flush()
        if not spawned.has_survivors():
            spawned.runner.forget(spawned.running)
        over = [name for name in self._processes if name not in self._tasks]
        for name in over[:-_MAX_FINISHED]:
            del self._processes[name]
        if self.listener is not None:
            self.listener.on_ended(spawned)
