"""The only place that starts processes for tools.

A command gets no input, no terminal, a process group of its own and an environment in which nothing waits for a person.
Whatever it prints is bounded in memory; whatever it leaves behind is found and ended, also when Odin itself is killed.
"""

import asyncio
import codecs
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

from odin.core.tool import Confinement
from odin.policy.process.child import Child, OwnChild
from odin.policy.process.environment import git_settings, quiet_environment
from odin.policy.process.guard import Guard
from odin.policy.process.leftover import kill_marked, marked, signal_group, signal_marked
from odin.policy.process.output import OUTPUT_LIMIT, Everything, HeadAndTail, Sink
from odin.policy.process.running import Running
from odin.policy.process.watchdog import Watchdog

_MARK = "ODIN_COMMAND"


class Finished(Struct, frozen=True):
    """How a command ended. `output` is what fits the limit; `spill` is the file that holds all of it.

    `background` says that something it started outlived it. `blocked` is what the sandbox seems to have kept it from;
    `planted` are files it left or changed that other programs obey.
    """

    code: int
    output: str
    pid: int = 0
    total: int = 0
    truncated: bool = False
    timed_out: bool = False
    background: bool = False
    spill: str = ""
    blocked: str = ""
    planted: tuple[str, ...] = ()


class Captured(Struct, frozen=True):
    """What a program printed, for a program to read. `stopped` says that it was ended because it printed too much."""

    code: int
    data: bytes
    errors: str = ""
    timed_out: bool = False
    stopped: bool = False


class ProcessRunner:
    """Starts commands, bounds them, and ends whatever is left of them.

    `spill_dir` is made when the first long output needs it. `keep_env` names secrets that commands may see. `sandbox`
    makes what commands run in that come with a confinement; Odin's own programs come without.
    """

    def __init__(
        self,
        spill_dir: str | Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        keep_env: Collection[str] = (),
        sandbox: Callable[[], Guard] | None = None,
        term_grace: float = 3.0,
        cancel_grace: float = 0.5,
        linger: float = 0.2,
    ) -> None:
        self._spill_dir = Path(spill_dir) if spill_dir is not None else None
        self._environ = environ
        self._keep_env = frozenset(keep_env)
        self._term_grace = term_grace
        self._cancel_grace = cancel_grace
        self._linger = linger
        self._identity = f"{os.getpid()}-{time.time_ns():x}"
        self._watchdog = Watchdog(f"{self._identity}.")
        self._count = 0
        self._make_sandbox = sandbox
        self._sandbox: Guard | None = None
        self._live: dict[int, Running] = {}
        self._base_env: dict[str, str] | None = None

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        timeout: float,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
        limit: int = OUTPUT_LIMIT,
        confinement: Confinement | None = None,
    ) -> Finished:
        """Run a shell command (a string) or a program (a list) to its end, or until `timeout` seconds are over.

        Standard error is merged into the output. Raises OSError when it cannot be started. When the command is over but
        something it started still holds the pipe, this returns after a moment; that output goes on into the spill file.
        """
        sandbox = self._around(command, confinement)
        seen = sandbox.before(cwd, confinement) if sandbox and confinement else None
        running, (out,) = self._start(command, cwd, env, pipes=1, confinement=confinement, sandbox=sandbox)
        sink = HeadAndTail(limit, self._spill_path)
        running.read(out, sink, _relay(on_output))
        timed_out = await self._wait(running, timeout)
        writing = running.pipes[0].open
        background = not timed_out and (writing or running.group_alive())
        if background and writing:
            sink.save()
        text, truncated = sink.text()
        if not background:
            self.forget(running)
        failed = running.code != 0 and not timed_out
        return Finished(
            running.code,
            text,
            running.pid,
            sink.total,
            truncated,
            timed_out,
            background,
            spill=sink.path,
            blocked=sandbox.blocked(text, running.code, cwd, confinement) if sandbox and confinement and failed else "",
            planted=sandbox.after(seen, cwd) if sandbox else (),
        )

    def _around(self, command: str | Sequence[str], confinement: Confinement | None) -> Guard | None:
        """The sandbox that a command runs in, or None when it runs outside."""
        if confinement is None or self._make_sandbox is None:
            return None
        if self._sandbox is None:
            self._sandbox = self._make_sandbox()
            self._sandbox.watch(self._note_group)
        return self._sandbox if self._sandbox.confines(command, confinement) else None

    async def capture(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        timeout: float,
        stop_after: int,
        on_data: Callable[[bytes], None] | None = None,
    ) -> Captured:
        """Run a program whose output is read by a program. It is ended once it has printed `stop_after` bytes.

        With `on_data` the output goes there piece by piece as it comes, and none of it is kept.
        """
        running, (out, err) = self._start(argv, cwd, None, pipes=2)
        sink, errors = Everything(keep=on_data is None), HeadAndTail(OUTPUT_LIMIT)

        def enough(data: bytes) -> None:
            if on_data is not None:
                on_data(data)
            if sink.total >= stop_after and not running.exited:
                signal_group(running.pid, signal.SIGKILL)

        running.read(out, sink, enough)
        running.read(err, errors, _ignore)
        timed_out = await self._wait(running, timeout)
        self.forget(running)
        return Captured(running.code, bytes(sink.data), errors.text()[0], timed_out, sink.total >= stop_after)

    async def consult(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        timeout: float,
        stdin: bytes,
        env: Mapping[str, str],
        stop_after: int,
    ) -> Captured:
        """Run a program of the user's own that reads `stdin` and answers. Nothing it started outlives it."""
        with _filled(stdin) as source:
            running, (out, err) = self._start(command, cwd, env, pipes=2, stdin=source.fileno())
        sink, errors = Everything(most=stop_after), HeadAndTail(OUTPUT_LIMIT)

        def enough(data: bytes) -> None:
            if sink.total >= stop_after and not running.exited:
                signal_group(running.pid, signal.SIGKILL)

        running.read(out, sink, enough)
        running.read(err, errors, _ignore)
        timed_out = await self._wait(running, timeout)
        if running.alive():
            await running.end(self._cancel_grace)
        self.forget(running)
        return Captured(running.code, bytes(sink.data), errors.text()[0], timed_out, sink.total >= stop_after)

    def begin(self, command: str, *, cwd: str, sink: Sink, confinement: Confinement | None = None) -> Running:
        """Start a shell command and come back at once. It is owned here until it is forgotten or the session ends."""
        sandbox = self._around(command, confinement)
        running, (out,) = self._start(command, cwd, None, pipes=1, confinement=confinement, sandbox=sandbox)
        running.read(out, sink, _ignore)
        return running

    async def end(self, running: Running) -> None:
        """TERM to everything it started, KILL a moment later."""
        await running.end(self._term_grace)

    def forget(self, running: Running) -> None:
        """It is over and nothing of it is left."""
        running.close()
        self._live.pop(running.pid, None)
        self._watchdog.remove(running.pid)

    async def close(self) -> None:
        """End everything that still runs, politely for a moment and then not."""
        if not self._count and self._sandbox is None:
            return
        for running in list(self._live.values()):
            running.signal(signal.SIGTERM)
        signal_marked(self._identity, signal.SIGTERM)
        deadline = time.monotonic() + self._cancel_grace
        while self._anything_left() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """End everything now. Safe to call when no loop runs any more."""
        for running in list(self._live.values()):
            running.signal(signal.SIGKILL)
            running.reap()
            self.forget(running)
        if self._count:
            kill_marked(self._identity)
        if self._sandbox is not None:
            self._sandbox.kill()
        self._watchdog.close()

    def _anything_left(self) -> bool:
        return any(running.alive() for running in self._live.values()) or bool(marked(self._identity))

    async def _wait(self, running: Running, timeout: float) -> bool:
        """True when it had to be stopped because the time was over. A cancellation stops it too, and goes on."""
        try:
            try:
                async with asyncio.timeout(timeout):
                    await running.done
            except TimeoutError:
                await running.end(self._term_grace)
                return True
        except asyncio.CancelledError:
            try:
                await running.end(self._cancel_grace)
            finally:
                self.forget(running)
            raise
        return False

    def _start(
        self,
        command: str | Sequence[str],
        cwd: str,
        env: Mapping[str, str] | None,
        pipes: int,
        stdin: int = subprocess.DEVNULL,
        confinement: Confinement | None = None,
        sandbox: Guard | None = None,
    ) -> tuple[Running, list[int]]:
        self._count += 1
        self._forget_what_is_gone()
        self._watchdog.start()
        mark = f"{self._identity}.{self._count}."
        argv = [_shell(), "-c", command] if isinstance(command, str) else command
        environ = self._environment(mark, env, confinement)
        pairs = [os.pipe() for _ in range(pipes)]
        child: Child
        try:
            if sandbox is not None and confinement is not None:
                inside = sandbox.environment(environ, confinement)
                child = sandbox.start(argv, cwd, inside, pairs[0][1], pairs[-1][1], confinement)
            else:
                child = _started(argv, cwd, environ, stdin, pairs[0][1], pairs[-1][1])
        except BaseException:
            for reading, _ in pairs:
                os.close(reading)
            raise
        finally:
            for _, writing in pairs:
                os.close(writing)
        running = Running(child, mark, self._linger)
        self._live[running.pid] = running
        self._watchdog.add(running.pid)
        running.watch()
        return running, [reading for reading, _ in pairs]

    def _note_group(self, group: int, alive: bool) -> None:
        if alive:
            self._watchdog.start()
            self._watchdog.add(group)
        else:
            self._watchdog.remove(group)

    def _forget_what_is_gone(self) -> None:
        """Children that outlived their command and have ended since; the number of their group may be given anew."""
        for running in list(self._live.values()):
            if running.exited and not running.reading and not running.group_alive():
                self.forget(running)

    def _environment(
        self, mark: str, extra: Mapping[str, str] | None, confinement: Confinement | None
    ) -> dict[str, str]:
        """With the mark appended to that of an Odin above us, which must find our children too."""
        if self._base_env is None:
            environ = os.environ if self._environ is None else self._environ
            self._base_env = quiet_environment(environ, self._keep_env)
        git = git_settings(self._base_env, hooks=confinement.writes) if confinement is not None else {}
        return {**self._base_env, **git, **(extra or {}), _MARK: self._base_env.get(_MARK, "") + mark}

    def _spill_path(self) -> str:
        if self._spill_dir is None:
            raise OSError("there is no folder for it")
        self._spill_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return str(self._spill_dir / f"output-{time.time_ns():x}.txt")


def _ignore(data: bytes) -> None:
    return


def _relay(on_output: Callable[[str], None] | None) -> Callable[[bytes], None]:
    """Pass on the text as it comes, without splitting a character."""
    if on_output is None:
        return _ignore
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda data: on_output(decoder.decode(data))


def _filled(data: bytes) -> IO[bytes]:
    """A file without a name that holds this: what reads it never waits, and what does not read it blocks nobody."""
    from tempfile import TemporaryFile

    file = TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


def _started(argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: int, out: int, err: int) -> OwnChild:
    return OwnChild(
        subprocess.Popen(argv, cwd=cwd, env=env, stdin=stdin, stdout=out, stderr=err, start_new_session=True)
    )


def _shell() -> str:
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
