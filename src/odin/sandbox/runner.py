"""What the runner asks of a sandbox. Which one there is, is decided elsewhere.

The only place that starts processes for tools.

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
from typing import IO, Any, Protocol

from msgspec import Struct

from odin.core.tool import SandboxProfile
from odin.sandbox.environment import build_command_environment, build_git_settings
from odin.sandbox.orphans import Watchdog, find_marked, kill_marked, signal_group, signal_marked
from odin.sandbox.output import OUTPUT_LIMIT, ByteSink, HeadTailBuffer, OutputSink
from odin.sandbox.process import ChildProcess, LocalChild, RunningProcess


class SandboxUnavailable(OSError):
    """The sandbox that was asked for does not work, so a command was not run. The text says why and what to do."""

    def __str__(self) -> str:
        return str(self.args[-1])


class CommandSandbox(Protocol):
    def watch_groups(self, tell: Callable[[int, bool], None]) -> None:
        """Tell of process groups that begin and end, so that somebody can end them when Odin is killed."""
        ...

    def should_sandbox(self, command: str | Sequence[str], sandbox_profile: SandboxProfile) -> bool:
        """Whether a command is to run inside. Raises Unconfined when it must and cannot."""
        ...

    def build_environment(self, env: Mapping[str, str], sandbox_profile: SandboxProfile) -> dict[str, str]:
        """What a command inside gets to see of the environment."""
        ...

    def start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], out: int, err: int, sandbox_profile: SandboxProfile
    ) -> ChildProcess:
        """Start a command inside. Raises OSError when it cannot be started."""
        ...

    def stamp_protected_files(self, cwd: str, sandbox_profile: SandboxProfile) -> Any:
        """What is to be compared after a command."""
        ...

    def find_tampered_files(self, seen: Any, cwd: str) -> tuple[str, ...]:
        """Files that the command left or changed and that other programs obey."""
        ...

    def describe_denial(self, output: str, code: int, cwd: str, sandbox_profile: SandboxProfile) -> str:
        """What the sandbox seems to have kept a failed command from, or ""."""
        ...

    def kill(self) -> None:
        """End the sandbox with everything in it."""
        ...


_MARK_VARIABLE = "ODIN_COMMAND"


class CommandResult(Struct, frozen=True):
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
    has_survivors: bool = False
    spill_path: str = ""
    denial: str = ""
    tampered_files: tuple[str, ...] = ()


class CapturedOutput(Struct, frozen=True):
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
        sandbox: Callable[[], CommandSandbox] | None = None,
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
        self._run_mark = f"{os.getpid()}-{time.time_ns():x}"
        self._watchdog = Watchdog(f"{self._run_mark}.")
        self._count = 0
        self._make_sandbox = sandbox
        self._sandbox: CommandSandbox | None = None
        self._processes: dict[int, RunningProcess] = {}
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
        sandbox_profile: SandboxProfile | None = None,
    ) -> CommandResult:
        """Run a shell command (a string) or a program (a list) to its end, or until `timeout` seconds are over.

        Standard error is merged into the output. Raises OSError when it cannot be started. When the command is over but
        something it started still holds the pipe, this returns after a moment; that output goes on into the spill file.
        """
        sandbox = self._choose_sandbox(command, sandbox_profile)
        seen = sandbox.stamp_protected_files(cwd, sandbox_profile) if sandbox and sandbox_profile else None
        running, (out,) = self._start(command, cwd, env, pipes=1, sandbox_profile=sandbox_profile, sandbox=sandbox)
        sink = HeadTailBuffer(limit, self._make_spill_path)
        running.attach_pipe(out, sink, _relay_text(on_output))
        timed_out = await self._wait(running, timeout)
        writing = running.pipes[0].is_open
        background = not timed_out and (writing or running.has_survivors())
        if background and writing:
            sink.save()
        text, truncated = sink.render_text()
        if not background:
            self.forget(running)
        failed = running.code != 0 and not timed_out
        return CommandResult(
            running.code,
            text,
            running.pid,
            sink.total,
            truncated,
            timed_out,
            background,
            spill_path=sink.path,
            denial=sandbox.describe_denial(text, running.code, cwd, sandbox_profile)
            if sandbox and sandbox_profile and failed
            else "",
            tampered_files=sandbox.find_tampered_files(seen, cwd) if sandbox else (),
        )

    def _choose_sandbox(
        self, command: str | Sequence[str], sandbox_profile: SandboxProfile | None
    ) -> CommandSandbox | None:
        """The sandbox that a command runs in, or None when it runs outside."""
        if sandbox_profile is None or self._make_sandbox is None:
            return None
        if self._sandbox is None:
            self._sandbox = self._make_sandbox()
            self._sandbox.watch_groups(self._note_group)
        return self._sandbox if self._sandbox.should_sandbox(command, sandbox_profile) else None

    async def capture(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        timeout: float,
        stop_after: int,
        on_data: Callable[[bytes], None] | None = None,
    ) -> CapturedOutput:
        """Run a program whose output is read by a program. It is ended once it has printed `stop_after` bytes.

        With `on_data` the output goes there piece by piece as it comes, and none of it is kept.
        """
        running, (out, err) = self._start(argv, cwd, None, pipes=2)
        sink, errors = ByteSink(keep=on_data is None), HeadTailBuffer(OUTPUT_LIMIT)

        def enough(data: bytes) -> None:
            if on_data is not None:
                on_data(data)
            if sink.total >= stop_after and not running.exited:
                signal_group(running.pid, signal.SIGKILL)

        running.attach_pipe(out, sink, enough)
        running.attach_pipe(err, errors, _ignore)
        timed_out = await self._wait(running, timeout)
        self.forget(running)
        return CapturedOutput(
            running.code, bytes(sink.data), errors.render_text()[0], timed_out, sink.total >= stop_after
        )

    async def run_with_input(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        timeout: float,
        stdin: bytes,
        env: Mapping[str, str],
        stop_after: int,
    ) -> CapturedOutput:
        """Run a program of the user's own that reads `stdin` and answers. Nothing it started outlives it."""
        with _open_filled_file(stdin) as source:
            running, (out, err) = self._start(command, cwd, env, pipes=2, stdin=source.fileno())
        sink, errors = ByteSink(max_bytes=stop_after), HeadTailBuffer(OUTPUT_LIMIT)

        def enough(data: bytes) -> None:
            if sink.total >= stop_after and not running.exited:
                signal_group(running.pid, signal.SIGKILL)

        running.attach_pipe(out, sink, enough)
        running.attach_pipe(err, errors, _ignore)
        timed_out = await self._wait(running, timeout)
        if running.is_alive():
            await running.terminate(self._cancel_grace)
        self.forget(running)
        return CapturedOutput(
            running.code, bytes(sink.data), errors.render_text()[0], timed_out, sink.total >= stop_after
        )

    def start_detached(
        self, command: str, *, cwd: str, sink: OutputSink, sandbox_profile: SandboxProfile | None = None
    ) -> RunningProcess:
        """Start a shell command and come back at once. It is owned here until it is forgotten or the session ends."""
        sandbox = self._choose_sandbox(command, sandbox_profile)
        running, (out,) = self._start(command, cwd, None, pipes=1, sandbox_profile=sandbox_profile, sandbox=sandbox)
        running.attach_pipe(out, sink, _ignore)
        return running

    async def terminate(self, running: RunningProcess) -> None:
        """TERM to everything it started, KILL a moment later."""
        await running.terminate(self._term_grace)

    def forget(self, running: RunningProcess) -> None:
        """It is over and nothing of it is left."""
        running.close()
        self._processes.pop(running.pid, None)
        self._watchdog.remove(running.pid)

    async def close(self) -> None:
        """End everything that still runs, politely for a moment and then not."""
        if not self._count and self._sandbox is None:
            return
        for running in list(self._processes.values()):
            running.send_signal(signal.SIGTERM)
        signal_marked(self._run_mark, signal.SIGTERM)
        deadline = time.monotonic() + self._cancel_grace
        while self._has_survivors() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """End everything now. Safe to call when no loop runs any more."""
        for running in list(self._processes.values()):
            running.send_signal(signal.SIGKILL)
            running.reap()
            self.forget(running)
        if self._count:
            kill_marked(self._run_mark)
        if self._sandbox is not None:
            self._sandbox.kill()
        self._watchdog.close()

    def _has_survivors(self) -> bool:
        return any(running.is_alive() for running in self._processes.values()) or bool(find_marked(self._run_mark))

    async def _wait(self, running: RunningProcess, timeout: float) -> bool:
        """True when it had to be stopped because the time was over. A cancellation stops it too, and goes on."""
        try:
            try:
                async with asyncio.timeout(timeout):
                    await running.done
            except TimeoutError:
                await running.terminate(self._term_grace)
                return True
        except asyncio.CancelledError:
            try:
                await running.terminate(self._cancel_grace)
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
        sandbox_profile: SandboxProfile | None = None,
        sandbox: CommandSandbox | None = None,
    ) -> tuple[RunningProcess, list[int]]:
        self._count += 1
        self._forget_finished()
        self._watchdog.start()
        mark = f"{self._run_mark}.{self._count}."
        argv = [_find_shell(), "-c", command] if isinstance(command, str) else command
        environ = self._build_environment(mark, env, sandbox_profile)
        pairs = [os.pipe() for _ in range(pipes)]
        child: ChildProcess
        try:
            if sandbox is not None and sandbox_profile is not None:
                inside = sandbox.build_environment(environ, sandbox_profile)
                child = sandbox.start(argv, cwd, inside, pairs[0][1], pairs[-1][1], sandbox_profile)
            else:
                child = _start_child(argv, cwd, environ, stdin, pairs[0][1], pairs[-1][1])
        except BaseException:
            for reading, _ in pairs:
                os.close(reading)
            raise
        finally:
            for _, writing in pairs:
                os.close(writing)
        running = RunningProcess(child, mark, self._linger)
        self._processes[running.pid] = running
        self._watchdog.add(running.pid)
        running.watch()
        return running, [reading for reading, _ in pairs]

    def _note_group(self, group: int, alive: bool) -> None:
        if alive:
            self._watchdog.start()
            self._watchdog.add(group)
        else:
            self._watchdog.remove(group)

    def _forget_finished(self) -> None:
        """Children that outlived their command and have ended since; the number of their group may be given anew."""
        for running in list(self._processes.values()):
            if running.exited and not running.is_reading and not running.has_survivors():
                self.forget(running)

    def _build_environment(
        self, mark: str, extra: Mapping[str, str] | None, sandbox_profile: SandboxProfile | None
    ) -> dict[str, str]:
        """With the mark appended to that of an Odin above us, which must find our children too."""
        if self._base_env is None:
            environ = os.environ if self._environ is None else self._environ
            self._base_env = build_command_environment(environ, self._keep_env)
        git = build_git_settings(self._base_env, hooks=sandbox_profile.writes) if sandbox_profile is not None else {}
        return {**self._base_env, **git, **(extra or {}), _MARK_VARIABLE: self._base_env.get(_MARK_VARIABLE, "") + mark}

    def _make_spill_path(self) -> str:
        if self._spill_dir is None:
            raise OSError("there is no folder for it")
        self._spill_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return str(self._spill_dir / f"output-{time.time_ns():x}.txt")


def _ignore(data: bytes) -> None:
    return


def _relay_text(on_output: Callable[[str], None] | None) -> Callable[[bytes], None]:
    """Pass on the text as it comes, without splitting a character."""
    if on_output is None:
        return _ignore
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda data: on_output(decoder.decode(data))


def _open_filled_file(data: bytes) -> IO[bytes]:
    """A file without a name that holds this: what reads it never waits, and what does not read it blocks nobody."""
    from tempfile import TemporaryFile

    file = TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


def _start_child(argv: Sequence[str], cwd: str, env: Mapping[str, str], stdin: int, out: int, err: int) -> LocalChild:
    return LocalChild(
        subprocess.Popen(argv, cwd=cwd, env=env, stdin=stdin, stdout=out, stderr=err, start_new_session=True)
    )


def _find_shell() -> str:
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
