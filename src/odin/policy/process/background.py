"""Owns the processes that outlive the call that started them: jobs with a time limit, services without one."""

import asyncio
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from odin.core.event import Mode
from odin.core.tool import Confinement
from odin.policy.process.runner import ProcessRunner
from odin.policy.process.running import Running
from odin.policy.process.spawnlog import SpawnLog

MAX_AT_ONCE = 50
MAX_SECONDS = 600.0
_REMEMBERED = 100
"""How many that are over can still be asked about."""

_PATIENCE = 1.0
"""Seconds that one which was killed has to be gone."""

Status = Literal["running", "finished", "failed", "timed_out", "stopped"]


class Order(Struct, frozen=True):
    """What to start and for whom. `seconds` is 0 for a service that runs until it is stopped."""

    command: str
    cwd: str
    description: str = ""
    seconds: float = 0.0
    agent: str = ""
    mode: Mode = "edit_mode"
    call_id: str = ""
    confinement: Confinement | None = None


class NotStarted(Exception):
    """Why a background process was not started, in one sentence."""


class Spawned:
    """One background process, running or over."""

    def __init__(self, id: str, order: Order, log: SpawnLog, running: Running) -> None:
        self.id = id
        self.order = order
        self.log = log
        self.status: Status = "running"
        self.code = 0
        self.running = running
        self.unwanted = False
        self._began = time.monotonic()
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return (self._ended or time.monotonic()) - self._began

    @property
    def name(self) -> str:
        """Its id, with a word for people."""
        return f"{self.id} ({self.order.description or self.order.command.strip().partition(chr(10))[0][:80]})"

    def leaves_something(self) -> bool:
        """Whether it is over and something it started is not."""
        return self.status != "running" and (self.running.reading or self.running.group_alive())

    def conclude(self, status: Status) -> None:
        self.status = status
        self.code = self.running.code
        self._ended = time.monotonic()


class Listener(Protocol):
    """Who is told of beginnings and ends."""

    def started(self, spawned: Spawned) -> None: ...

    def ended(self, spawned: Spawned) -> None: ...


class Background:
    """The background processes of one session.

    `folder` is where their logs go, made with the first one. `taken` is how many ids earlier runs of the session used.
    """

    def __init__(
        self, runner: ProcessRunner, folder: Path, *, taken: int = 0, listener: Listener | None = None
    ) -> None:
        self.listener = listener
        self.taken = taken
        self._runner = runner
        self._folder = folder
        self._count = taken
        self._known: dict[str, Spawned] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def start(self, order: Order) -> Spawned:
        """Start it. Raises NotStarted when it may not be, and OSError when it cannot."""
        if self._closed:
            raise NotStarted("the session is being closed.")
        if len(self._watches) >= MAX_AT_ONCE:
            raise NotStarted(f"{MAX_AT_ONCE} background processes run already. Stop one with SpawnStop first.")
        name, log = self._new_log()
        try:
            running = self._runner.begin(order.command, cwd=order.cwd, sink=log, confinement=order.confinement)
        except BaseException:
            log.close()
            Path(log.path).unlink(missing_ok=True)
            raise
        spawned = self._known[name] = Spawned(name, order, log, running)
        self._watches[name] = asyncio.get_running_loop().create_task(self._watch(spawned))
        try:
            if self.listener is not None:
                self.listener.started(spawned)
        except BaseException:
            spawned.unwanted = True
            running.signal(signal.SIGKILL)
            raise
        return spawned

    def _new_log(self) -> tuple[str, SpawnLog]:
        """A name and its file, both never used before: a run that was killed may have left a file and no event."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            self._count += 1
            name = f"spawn-{self._count}"
            with suppress(FileExistsError):
                return name, SpawnLog(self._folder / f"{name}.log")

    def get(self, id: str) -> Spawned | None:
        return self._known.get(id)

    def all(self) -> tuple[Spawned, ...]:
        return tuple(self._known.values())

    async def stop(self, spawned: Spawned) -> None:
        """TERM to all of it, then KILL. Whoever asks for this need not be told of the end."""
        spawned.unwanted = True
        await self._runner.end(spawned.running)
        watch = self._watches.get(spawned.id)
        if watch is not None:
            await asyncio.wait([watch], timeout=_PATIENCE)
            watch.cancel()
            self._conclude(spawned, "stopped")

    def quiet(self) -> None:
        """The session is about to end: nothing more is started, and what ends now is nobody's news."""
        self._closed = True

    async def close(self) -> None:
        """End them all."""
        self.quiet()
        if self._count == self.taken:
            return
        await self._runner.close()
        for name, watch in list(self._watches.items()):
            watch.cancel()
            await asyncio.wait([watch])
            self._conclude(self._known[name], "stopped")

    async def _watch(self, spawned: Spawned) -> None:
        status: Status = "finished"
        try:
            async with asyncio.timeout(spawned.order.seconds or None):
                await spawned.running.done
        except TimeoutError:
            status = "timed_out"
            await self._runner.end(spawned.running)
        if spawned.unwanted or self._closed:
            status = "stopped"
        elif status == "finished" and spawned.running.code:
            status = "failed"
        self._conclude(spawned, status)

    def _conclude(self, spawned: Spawned, status: Status) -> None:
        if self._watches.pop(spawned.id, None) is None:
            return
        spawned.conclude(status)
        if not spawned.leaves_something():
            self._runner.forget(spawned.running)
        self._forget_the_oldest()
        if self.listener is not None:
            self.listener.ended(spawned)

    def _forget_the_oldest(self) -> None:
        over = [name for name in self._known if name not in self._watches]
        for name in over[:-_REMEMBERED]:
            del self._known[name]
