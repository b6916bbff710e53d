"""The only place that starts processes for tools.

A command gets no input, no terminal, a process group of its own and an environment in which nothing waits for a person.
Whatever it prints is bounded in memory; whatever it leaves behind is found and ended.
"""

import asyncio
import codecs
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from odin.policy.leftover import (
    any_alive,
    group_alive,
    kill_marked,
    marked,
    members,
    signal_group,
    signal_marked,
)
from odin.policy.output import OUTPUT_LIMIT, Everything, HeadAndTail, Sink

_MARK = "ODIN_COMMAND"
_CHUNK = 65_536

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "EDITOR": "false",
    "VISUAL": "false",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "npm_config_yes": "true",
    "CI": "1",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Editors, pagers and prompts that would wait for ever end at once instead.

`GIT_EDITOR=true` accepts the message git has prepared, so `git rebase --continue` works and a commit without a message
still fails by itself; every other editor fails.
"""

_SECRET = (
    r"(?:^|_)(?:API_?KEYS?|TOKENS?|SECRETS?|SECRET_\w+|PASSWORD|PASSWD|CREDENTIALS?|PRIVATE_KEY|ACCESS_KEY(?:_ID)?)$"
)


def quiet_environment(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """The environment of a command: nothing that prompts, and no secret the configuration does not name."""
    secret = re.compile(_SECRET, re.IGNORECASE)
    kept = {name: value for name, value in environ.items() if name in keep or not secret.search(name)}
    return {**kept, **_QUIET}


class Finished(Struct, frozen=True):
    """How a command ended. `output` is what fits the limit; `spill` is the file that holds all of it.

    `background` says that something it started outlived it.
    """

    code: int
    output: str
    pid: int = 0
    total: int = 0
    truncated: bool = False
    timed_out: bool = False
    background: bool = False
    spill: str = ""


class Captured(Struct, frozen=True):
    """What a program printed, for a program to read. `stopped` says that it was ended because it printed too much."""

    code: int
    data: bytes
    errors: str = ""
    timed_out: bool = False
    stopped: bool = False


class _Pipe:
    """One pipe of a process, read whenever the loop says there is something to read."""

    def __init__(self, fd: int, sink: Sink, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self.sink = sink
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)

    @property
    def open(self) -> bool:
        return self._fd >= 0

    def drain(self) -> None:
        """Take what the pipe still holds; a child that prints for ever must not keep us here."""
        for _ in range(32):
            if not self.open or not self._read():
                return

    def _read(self) -> bool:
        """Take one piece. False when there is nothing more at the moment."""
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.sink.add(data)
            self._on_data(data)
            return True
        self.close()
        self._on_end()
        return False

    def close(self) -> None:
        if self.open:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self.sink.close()


class _Running:
    """A started process: its pipes, the moment it ended, and what it left running in its group."""

    def __init__(self, popen: "subprocess.Popen[bytes]", mark: str, linger: float) -> None:
        self.popen = popen
        self.mark = mark
        self.pipes: list[_Pipe] = []
        self.exited = False
        self.left_behind: dict[int, int] = {}
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self._pidfd = -1
        self.done: asyncio.Future[None] = self._loop.create_future()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def code(self) -> int:
        return self.popen.returncode if self.exited else -signal.SIGKILL

    def read(self, fd: int, sink: Sink, on_data: Callable[[bytes], None]) -> None:
        self.pipes.append(_Pipe(fd, sink, on_data, self._on_pipe_end))

    def watch(self) -> None:
        """Learn of the end through a pidfd, or from a thread where the system has none."""
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _wait_in_thread(self) -> None:
        self.popen.wait()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        self._unwatch()
        self.popen.wait()
        self.exited = True
        self.left_behind = members(self.pid) if group_alive(self.pid) else {}
        for pipe in self.pipes:
            pipe.drain()
        if any(pipe.open for pipe in self.pipes):
            self._loop.call_later(self._linger, self._settle)
        else:
            self._settle()

    def _on_pipe_end(self) -> None:
        if self.exited and not any(pipe.open for pipe in self.pipes):
            self._settle()

    def _settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def signal(self, number: int) -> None:
        """To the whole group, and to everything that carries our mark wherever it moved."""
        if not self.exited or self.group_alive():
            signal_group(self.pid, number)
        signal_marked(self.mark, number)

    def group_alive(self) -> bool:
        """Whether members outlived the leader. The group's number alone proves nothing: strangers may get it later."""
        return any_alive(self.left_behind)

    def alive(self) -> bool:
        return not self.exited or self.group_alive() or bool(marked(self.mark))

    async def gone(self, seconds: float) -> bool:
        """Wait until nothing of it is left, but not longer than this."""
        deadline = time.monotonic() + seconds
        pause = 0.002
        while self.alive():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
        return True

    async def end(self, grace: float) -> None:
        """TERM, then KILL after the grace. A cancellation meanwhile goes straight to KILL."""
        try:
            self.signal(signal.SIGTERM)
            await self.gone(grace)
        finally:
            self.signal(signal.SIGKILL)
            kill_marked(self.mark)
        await self.gone(1.0)

    def reap(self) -> None:
        """Collect a process that was just killed, without a loop."""
        self._unwatch()
        try:
            self.popen.wait(1.0)
        except subprocess.TimeoutExpired:
            return
        self.exited = True

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()


class ProcessRunner:
    """Starts commands, bounds them, and ends whatever is left of them.

    `spill_dir` is made when the first long output needs it. `keep_env` names secrets that commands may see.
    """

    def __init__(
        self,
        spill_dir: str | Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        keep_env: Collection[str] = (),
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
        self._count = 0
        self._live: dict[int, _Running] = {}
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
    ) -> Finished:
        """Run a shell command (a string) or a program (a list) to its end, or until `timeout` seconds are over.

        Standard error is merged into the output. Raises OSError when it cannot be started. When the command is over but
        something it started still holds the pipe, this returns after a moment; that output goes on into the spill file.
        """
        running, (out,) = self._start(command, cwd, env, pipes=1)
        sink = HeadAndTail(limit, self._spill_path)
        running.read(out, sink, _relay(on_output))
        timed_out = await self._wait(running, timeout)
        writing = running.pipes[0].open
        background = not timed_out and (writing or running.group_alive())
        if background and writing:
            sink.save()
        text, truncated = sink.text()
        if not background:
            self._forget(running)
        return Finished(running.code, text, running.pid, sink.total, truncated, timed_out, background, spill=sink.path)

    async def capture(self, argv: Sequence[str], *, cwd: str, timeout: float, stop_after: int) -> Captured:
        """Run a program whose output is read by a program. It is ended once it has printed `stop_after` bytes."""
        running, (out, err) = self._start(argv, cwd, None, pipes=2)
        sink, errors = Everything(), HeadAndTail(OUTPUT_LIMIT)

        def enough(data: bytes) -> None:
            if sink.total >= stop_after and not running.exited:
                signal_group(running.pid, signal.SIGKILL)

        running.read(out, sink, enough)
        running.read(err, errors, _ignore)
        timed_out = await self._wait(running, timeout)
        self._forget(running)
        return Captured(running.code, bytes(sink.data), errors.text()[0], timed_out, sink.total >= stop_after)

    async def close(self) -> None:
        """End everything that still runs, politely for a moment and then not."""
        if not self._count:
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
            self._forget(running)
        if self._count:
            kill_marked(self._identity)

    def _anything_left(self) -> bool:
        return any(running.alive() for running in self._live.values()) or bool(marked(self._identity))

    async def _wait(self, running: _Running, timeout: float) -> bool:
        """True when it had to be stopped because the time was over. A cancellation stops it too, and goes on."""
        running.watch()
        self._live[running.pid] = running
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
                self._forget(running)
            raise
        return False

    def _start(
        self, command: str | Sequence[str], cwd: str, env: Mapping[str, str] | None, pipes: int
    ) -> tuple[_Running, list[int]]:
        self._count += 1
        mark = f"{self._identity}.{self._count}."
        pairs = [os.pipe() for _ in range(pipes)]
        try:
            popen = subprocess.Popen(
                [_shell(), "-c", command] if isinstance(command, str) else command,
                cwd=cwd,
                env=self._environment(mark, env),
                stdin=subprocess.DEVNULL,
                stdout=pairs[0][1],
                stderr=pairs[-1][1],
                start_new_session=True,
            )
        except BaseException:
            for reading, _ in pairs:
                os.close(reading)
            raise
        finally:
            for _, writing in pairs:
                os.close(writing)
        return _Running(popen, mark, self._linger), [reading for reading, _ in pairs]

    def _environment(self, mark: str, extra: Mapping[str, str] | None) -> dict[str, str]:
        """With the mark appended to that of an Odin above us, which must find our children too."""
        if self._base_env is None:
            environ = os.environ if self._environ is None else self._environ
            self._base_env = quiet_environment(environ, self._keep_env)
        return {**self._base_env, **(extra or {}), _MARK: self._base_env.get(_MARK, "") + mark}

    def _spill_path(self) -> str:
        if self._spill_dir is None:
            raise OSError("there is no folder for it")
        self._spill_dir.mkdir(parents=True, exist_ok=True)
        return str(self._spill_dir / f"output-{time.time_ns():x}.txt")

    def _forget(self, running: _Running) -> None:
        running.close()
        self._live.pop(running.pid, None)


def _ignore(data: bytes) -> None:
    return


def _relay(on_output: Callable[[str], None] | None) -> Callable[[bytes], None]:
    """Pass on the text as it comes, without splitting a character."""
    if on_output is None:
        return _ignore
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda data: on_output(decoder.decode(data))


def _shell() -> str:
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
