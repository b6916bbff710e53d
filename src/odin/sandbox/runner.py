"""Runs programs. Every process that Odin starts, except those of the sandbox itself, is started here or in
`odin.sandbox.terminal`, with a profile that says what it may reach (`odin.core.profile`).

A command gets no input, no terminal, its own process group and a non-interactive environment. Its output is bounded in
memory, and processes it leaves behind are killed, even if Odin itself is killed. `CommandSandbox` is the interface to
the sandbox; `odin.sandbox.sandbox` implements it.
"""

import asyncio
import codecs
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from odin.core import debug
from odin.core.effects import ViewLayer
from odin.core.environment import ExecutionEnvironment
from odin.core.path_names import contains
from odin.core.profile import PROJECT, ProcessProfile
from odin.sandbox.output import OUTPUT_LIMIT, ByteSink, HeadTailBuffer, InputPipe, OutputSink, ignore_data
from odin.sandbox.process import (
    ChildProcess,
    LocalChild,
    RunningProcess,
    Watchdog,
    build_command_environment,
    build_git_environment,
    build_git_settings,
    build_own_environment,
    find_marked,
    kill_marked,
    open_filled_file,
    signal_group,
    signal_marked,
    start_in_folder,
)

_MARK_VARIABLE = "ODIN_COMMAND"

_EXIT_SECONDS = 1.0
"""How long the exit of a process that was killed may take to be noticed."""


class SandboxUnavailable(OSError):
    """The configured sandbox does not work, so the command was not run. The message says why and what to do."""

    def __str__(self) -> str:
        return str(self.args[-1])


class ViewUnavailable(SandboxUnavailable):
    """The command cannot have a view, so it was not run. The message is the reason, as a clause."""


class CommandReleased(Exception):
    """The command that was waited for goes on in the background. `printed` is its output so far."""

    def __init__(self, running: RunningProcess, printed: str) -> None:
        super().__init__()
        self.running = running
        self.printed = printed


CONFINED_HINT = "What a project brings runs only in a sandbox. Put it into your own settings to run it without one."


class CommandSandbox(Protocol):
    def watch_groups(self, on_change: Callable[[int, bool], None]) -> None:
        """Call `on_change(group, alive)` when a process group starts or ends, for the watchdog."""
        ...

    async def should_sandbox(self, command: str | Sequence[str], profile: ProcessProfile) -> bool:
        """True if the command must run sandboxed. Raise SandboxUnavailable if it must and cannot."""
        ...

    async def start(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        out: int,
        err: int,
        profile: ProcessProfile,
        stdin: int = -1,
    ) -> ChildProcess:
        """Start a sandboxed command, without input unless `stdin` is given. Raise OSError if it cannot be started.

        `env` is its environment without a sandbox.
        """
        ...

    async def watch_protected_files(self, cwd: str, profile: ProcessProfile, *, is_alone: bool) -> None:
        """Note the state of the protected files before a command.

        `is_alone`: no other process could have changed them since the last look.
        """
        ...

    async def find_tampered_files(self, cwd: str, profile: ProcessProfile) -> tuple[str, ...]:
        """Return the protected files (git hooks, editor tasks …) that the command created or changed."""
        ...

    def take_late_changes(self, *, look: bool) -> tuple[str, ...]:
        """Return the protected files that changed while no command ran but a process in the background did.

        With `look`, check the files now, because a background process may have changed them.
        """
        ...

    def describe_denial(self, output: str, code: int, cwd: str, profile: ProcessProfile) -> str:
        """Return what the sandbox probably denied a failed command, or ""."""
        ...

    async def close(self) -> None:
        """Kill the sandbox and everything in it, and wait until nothing is left of it."""
        ...


class CommandResult(Struct, frozen=True):
    """The result of a command. `output` is cut to the limit; `spill_path` is the file with all of it.

    `has_survivors`: a process it started still runs. `denial`: what the sandbox probably denied. `tampered_files`:
    protected files it created or changed, which other programs execute or obey. `view`: where its writes went, if its
    profile asked for one; the caller clears it (`remove_layer`). `excess`: why it was killed, if it exceeded a limit.
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
    view: ViewLayer | None = None
    excess: str = ""
    line_count: int = 0


class CapturedOutput(Struct, frozen=True):
    """The output of a program that Odin parses. `stopped`: it was killed because it printed too much."""

    code: int
    data: bytes
    errors: str = ""
    timed_out: bool = False
    stopped: bool = False


class ProcessRunner:
    """Starts commands, bounds their time and output, and kills the processes they leave behind.

    `spill_dir` is created for the first long output. `env_passthrough` names secret variables that commands may see.
    `sandbox` creates the sandbox for the profiles that need one. `watchdog` is that of the process; without one the
    runner has its own. `beside` runs other programs that may change the same project.
    """

    def __init__(
        self,
        environment: ExecutionEnvironment,
        spill_dir: str | Path | None = None,
        *,
        env_passthrough: Collection[str] = (),
        sandbox: Callable[[], CommandSandbox] | None = None,
        watchdog: Watchdog | None = None,
        beside: "ProcessRunner | None" = None,
        term_grace: float = 3.0,
        cancel_grace: float = 0.3,
        linger: float = 0.2,
    ) -> None:
        self._spill_dir = Path(spill_dir) if spill_dir is not None else None
        self._environment = environment
        self._env_passthrough = frozenset(env_passthrough)
        self._term_grace = term_grace
        self._cancel_grace = cancel_grace
        self._linger = linger
        self._has_own_watchdog = watchdog is None
        self._watchdog = watchdog or Watchdog()
        self._beside = beside
        self._run_mark = self._watchdog.make_run_mark()
        self._count = 0
        self._make_sandbox = sandbox
        self._sandbox: CommandSandbox | None = None
        self._processes: dict[int, RunningProcess] = {}
        self._base_envs: dict[bool, dict[str, str]] = {}  # by "is a server"
        self._had_background = False
        self._has_marked = False  # processes of forgotten commands may still run
        self._safe: set[int] = set()  # those that cannot write to the project, and the user's own hooks and servers

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        timeout: float,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
        on_cancelled: Callable[[CommandResult], None] | None = None,
        limit: int = OUTPUT_LIMIT,
        profile: ProcessProfile,
        released: "asyncio.Future[None] | None" = None,
    ) -> CommandResult:
        """Run a shell command (a string) or a program (a list) until it exits, at most `timeout` seconds.

        Standard error is merged into the output. Raise OSError if it cannot be started. If the command has exited but a
        process it started still holds the pipe, return after a moment; later output goes to the spill file. If the
        caller is cancelled, the command is stopped and `on_cancelled` gets what it had printed by then. Once `released`
        is done, it is no longer waited for: raise CommandReleased.
        """
        sandbox = await self._choose_sandbox(command, profile)
        running, (out,) = await self._start(command, cwd, env, pipes=1, profile=profile, sandbox=sandbox)
        sink = HeadTailBuffer(limit, self._make_spill_path)
        running.attach_pipe(out, sink, _relay_text(on_output))
        try:
            timed_out = await self._wait(running, timeout, released)
        except asyncio.CancelledError:
            if on_cancelled is not None:
                tampered: tuple[str, ...] = ()
                try:
                    tampered = await sandbox.find_tampered_files(cwd, profile) if sandbox else ()
                finally:
                    on_cancelled(replace(_make_result(running, sink), tampered_files=tampered))
            raise
        if not timed_out and not running.done.done():
            self._had_background = True
            raise CommandReleased(running, sink.render_text()[0])
        is_open = running.pipes[0].is_open
        has_survivors = not timed_out and (is_open or running.has_survivors())
        if has_survivors and is_open:
            sink.save()
        result = _make_result(running, sink, timed_out=timed_out, has_survivors=has_survivors)
        if not has_survivors:
            self.forget(running)
        if sandbox is None:
            return result
        self._had_background = running.left_processes or self.has_background()
        failed = running.code != 0 and not timed_out
        denial = sandbox.describe_denial(result.output, running.code, cwd, profile) if failed else ""
        return replace(result, denial=denial, tampered_files=await sandbox.find_tampered_files(cwd, profile))

    async def _choose_sandbox(self, command: str | Sequence[str], profile: ProcessProfile) -> CommandSandbox | None:
        """Return the sandbox for a program, or None if it runs unsandboxed."""
        if self._make_sandbox is None and profile.needs_sandbox:
            raise SandboxUnavailable(0, "There is no sandbox to run it in.")
        if profile.is_outside or self._make_sandbox is None:
            return None
        sandbox = await self._open_sandbox(self._make_sandbox)
        return sandbox if await sandbox.should_sandbox(command, profile) else None

    async def _open_sandbox(self, make: Callable[[], CommandSandbox]) -> CommandSandbox:
        made = self._sandbox or await asyncio.to_thread(make)
        if self._sandbox is None:
            self._sandbox = made
            self._sandbox.watch_groups(self._note_group)
        return self._sandbox

    async def watch_beside(self, cwd: str) -> None:
        """Note the state of the protected files before a program that is started beside can change them."""
        if self._make_sandbox is not None:
            sandbox = await self._open_sandbox(self._make_sandbox)
            await sandbox.watch_protected_files(cwd, PROJECT, is_alone=False)

    async def capture(
        self,
        argv: Sequence[str],
        *,
        cwd: str | int,
        timeout: float,
        stop_after: int,
        profile: ProcessProfile,
        env: Mapping[str, str] | None = None,
        on_data: Callable[[bytes], None] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> CapturedOutput:
        """Run a program and return its output for parsing. It is killed once it has printed `stop_after` bytes.

        `cwd` may be the descriptor of a folder, outside the sandbox. With `on_data`, output is passed on chunk by chunk
        and not kept. Processes that it leaves behind are killed.
        """
        sandbox = await self._choose_sandbox(argv, profile)
        running, pipes = await self._start(argv, cwd, env, pipes=2, stdin=stdin, profile=profile, sandbox=sandbox)
        sink = ByteSink(keep=on_data is None)
        timed_out, errors = await self._read_pipes(running, pipes, sink, timeout, stop_after, on_data or ignore_data)
        try:
            if await running.is_alive():
                await running.end()
        finally:
            self.forget(running)
        text = errors.render_text()[0]
        return CapturedOutput(running.code, bytes(sink.data), text, timed_out, sink.total >= stop_after)

    async def run_with_input(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        timeout: float,
        stdin: bytes,
        env: Mapping[str, str],
        stop_after: int,
        profile: ProcessProfile,
    ) -> CapturedOutput:
        """Run a program with `stdin`, such as a hook, and return its output. Its leftover processes are terminated."""
        sandbox = await self._choose_sandbox(command, profile)
        with open_filled_file(stdin) as source:
            running, pipes = await self._start(
                command, cwd, env, pipes=2, stdin=source.fileno(), profile=profile, sandbox=sandbox
            )
        if not profile.writes:
            self._safe.add(running.pid)
        sink = ByteSink(max_bytes=stop_after)
        timed_out, errors = await self._read_pipes(running, pipes, sink, timeout, stop_after, ignore_data)
        self._had_background = self._had_background or profile.writes  # the next look reports what it changed
        try:
            if await running.is_alive():
                await running.terminate(self._cancel_grace)
        finally:
            self.forget(running)
        text = errors.render_text()[0]
        return CapturedOutput(running.code, bytes(sink.data), text, timed_out, sink.total >= stop_after)

    async def _read_pipes(
        self,
        running: RunningProcess,
        pipes: Sequence[int],
        sink: ByteSink,
        timeout: float,
        stop_after: int,
        on_data: Callable[[bytes], None],
    ) -> tuple[bool, HeadTailBuffer]:
        """Read stdout into `sink` until the process exits. Return True if it timed out, and the buffer of stderr."""
        errors = HeadTailBuffer(OUTPUT_LIMIT)

        def stop_if_enough(data: bytes) -> None:
            on_data(data)
            if sink.total >= stop_after and not running.exited:
                signal_group(running.pid, signal.SIGKILL)

        running.attach_pipe(pipes[0], sink, stop_if_enough)
        running.attach_pipe(pipes[1], errors, ignore_data)
        timed_out = await self._wait(running, timeout)
        return timed_out, errors

    async def start_detached(
        self, command: str, *, cwd: str, sink: OutputSink, profile: ProcessProfile
    ) -> RunningProcess:
        """Start a shell command without waiting for it. The runner owns it until `forget` or the end of the session."""
        sandbox = await self._choose_sandbox(command, profile)
        running, (out,) = await self._start(command, cwd, None, pipes=1, profile=profile, sandbox=sandbox)
        self._had_background = True
        running.attach_pipe(out, sink, ignore_data)
        return running

    async def start_connected(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        on_output: Callable[[bytes], None],
        on_end: Callable[[], None] = lambda: None,
        errors: OutputSink,
        profile: ProcessProfile,
    ) -> tuple[RunningProcess, InputPipe]:
        """Start a program that Odin talks to, such as a server; its output goes to `on_output` until `on_end`.

        The runner owns it until `forget` or the end of the session. The caller closes the pipe.
        """
        sandbox = await self._choose_sandbox(argv, profile)
        read_end, write_end = os.pipe()
        try:
            running, pipes = await self._start(
                argv, cwd, env, pipes=2, stdin=read_end, profile=profile, sandbox=sandbox
            )
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        scope = profile.scope if sandbox is not None else None
        is_elsewhere = scope is not None and not any(contains(path, cwd) or contains(cwd, path) for path in scope)
        if is_elsewhere or profile.is_outside:
            self._safe.add(running.pid)
        else:
            self._had_background = True
        running.attach_pipe(pipes[0], ByteSink(keep=False, on_end=on_end), on_output)
        running.attach_pipe(pipes[1], errors, ignore_data)
        return running, InputPipe(write_end)

    def take_late_changes(self) -> tuple[str, ...]:
        """Return the protected files that changed while no command ran but a process in the background did."""
        if self._sandbox is None:
            return ()
        return self._sandbox.take_late_changes(look=self._had_background or self.has_background())

    async def terminate(self, running: RunningProcess) -> None:
        """Send TERM to all its processes, then KILL."""
        await running.terminate(self._term_grace)

    def kill_process(self, running: RunningProcess) -> None:
        """Kill all processes of one that was started with `start_connected`, without waiting for them."""
        running.signal_group(signal.SIGKILL)
        if running.may_be_marked:
            asyncio.get_running_loop().run_in_executor(None, kill_marked, running.mark)
        running.done.add_done_callback(lambda _: self.forget(running))

    def forget(self, running: RunningProcess) -> None:
        """Stop tracking a process that has ended."""
        running.close()
        self._has_marked = self._has_marked or running.may_be_marked
        self._processes.pop(running.pid, None)
        self._safe.discard(running.pid)
        self._watchdog.remove(running.pid)

    async def close(self) -> None:
        """End all running processes: TERM, then KILL after the grace period."""
        if not self._count and self._sandbox is None:
            return
        running = list(self._processes.values())
        spared = [one.mark for one in running if one.was_asked_to_end or one.view is not None]
        groups = [one.pid for one in running if one.ask_to_end()]
        if self._has_marked or running:
            signals = (signal.SIGTERM, signal.SIGCONT)
            await asyncio.to_thread(signal_marked, self._run_mark, *signals, groups=groups, marks=spared)
        deadline = time.monotonic() + self._cancel_grace
        while await self._has_survivors() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        left = list(self._processes.values())
        try:
            for one in left:
                one.signal_group(signal.SIGKILL)
            if self._has_marked:
                await asyncio.to_thread(kill_marked, self._run_mark)
                self._has_marked = False
        finally:
            if self._sandbox is not None:
                await self._sandbox.close()
            if left:
                await asyncio.wait([one.done for one in left], timeout=_EXIT_SECONDS)
            for one in left:
                one.detach()
                self.forget(one)
            if self._has_own_watchdog:
                await self._watchdog.close()

    def has_background(self) -> bool:
        """True if a process runs that may change the project."""
        own = any(pid not in self._safe for pid in self._processes)
        return own or (self._beside is not None and self._beside.has_background())

    async def _has_survivors(self) -> bool:
        for running in list(self._processes.values()):
            if await running.is_alive():
                return True
        return self._has_marked and bool(await asyncio.to_thread(find_marked, self._run_mark))

    async def _wait(
        self, running: RunningProcess, timeout: float, released: "asyncio.Future[None] | None" = None
    ) -> bool:
        """Wait for the process; True if it timed out and was terminated. Cancellation terminates it as well."""
        ends = [running.done] if released is None else [running.done, released]
        try:
            try:
                async with asyncio.timeout(timeout):
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            except TimeoutError:
                await running.terminate(self._term_grace)
                return True
        except asyncio.CancelledError:
            self._had_background = True
            try:
                await running.terminate(self._cancel_grace)
            finally:
                self.forget(running)
            raise
        return False

    async def _start(
        self,
        command: str | Sequence[str],
        cwd: str | int,
        env: Mapping[str, str] | None,
        *,
        pipes: int,
        profile: ProcessProfile,
        sandbox: CommandSandbox | None,
        stdin: int = subprocess.DEVNULL,
    ) -> tuple[RunningProcess, list[int]]:
        self._count += 1
        # Forget commands whose surviving children have ended since; their group id may be reused.
        for running in list(self._processes.values()):
            if running.exited and not running.is_reading and not running.has_survivors():
                self.forget(running)
        self._watchdog.start()
        mark = f"{self._run_mark}{self._count}."
        argv = [self._environment.shell, "-c", command] if isinstance(command, str) else command
        # The environment of a command. Our mark is appended to the outer Odin's mark, if any, so that it can find our
        # children too.
        is_server = profile.name == "server"  # it gets only the secrets that its settings name
        base = self._base_envs.get(is_server)
        if base is None:
            variables = {**self._environment.variables, **self._environment.added}
            base = build_command_environment(variables, () if is_server else self._env_passthrough)
            self._base_envs[is_server] = base
        own: dict[str, str] = {}
        outer = base.get(_MARK_VARIABLE, "")
        if profile.name in ("git", "git-remote"):
            base = build_git_environment(base)
        elif profile.name == "own":
            base = build_own_environment(base)
        elif profile.name != "none":
            own = build_git_settings(base, hooks=profile.writes)
            if sandbox is not None:
                own = {**self._environment.sandbox_added, **own}
        environ = {**base, **own, **(env or {}), _MARK_VARIABLE: outer + mark}
        pairs = [os.pipe() for _ in range(pipes)]
        child: ChildProcess
        try:
            if sandbox is not None:
                assert isinstance(cwd, str)
                self._had_background = self._had_background or self.has_background()
                await sandbox.watch_protected_files(cwd, profile, is_alone=not self._had_background)
                given = -1 if stdin == subprocess.DEVNULL else stdin
                starting = sandbox.start(argv, cwd, environ, pairs[0][1], pairs[-1][1], profile, given)
                child = await self._finish_start(starting)
            else:
                out, err = pairs[0][1], pairs[-1][1]
                child = LocalChild(start_in_folder(argv, cwd, env=environ, stdin=stdin, stdout=out, stderr=err))
        except BaseException:
            for read_end, _ in pairs:
                os.close(read_end)
            raise
        finally:
            for _, write_end in pairs:
                os.close(write_end)
        running = RunningProcess(child, mark, self._linger)
        if debug.write is not None:
            fields = {"pid": running.pid, "argv": list(argv), "cwd": str(cwd), "profile": profile.name}
            debug.write("process", {**fields, "sandboxed": sandbox is not None})
        self._processes[running.pid] = running
        if profile.name in ("read", "git", "git-remote", "own"):
            self._safe.add(running.pid)
        self._watchdog.add(running.pid)
        running.watch()
        return running, [read_end for read_end, _ in pairs]

    async def _finish_start(self, start: Coroutine[Any, Any, ChildProcess]) -> ChildProcess:
        """Return the started process. A caller that is cancelled meanwhile gets it, too, and is cancelled after that.

        So it ends like one that was cancelled a moment later, with what it has printed. If it does not start soon, the
        start is given up.
        """
        starting = asyncio.ensure_future(start)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting], timeout=self._cancel_grace)
            starting.cancel()
            await asyncio.wait([starting])
            task = asyncio.current_task()
            if task is None or starting.cancelled() or starting.exception() is not None:
                raise
            task.uncancel()
            task.cancel()
            return starting.result()

    def _note_group(self, group: int, alive: bool) -> None:
        if alive:
            self._watchdog.start()
            self._watchdog.add(group, is_sandbox=True)
        else:
            self._watchdog.remove(group)

    def _make_spill_path(self) -> str:
        if self._spill_dir is None:
            raise OSError("no folder for long outputs")
        self._spill_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return str(self._spill_dir / f"output-{time.time_ns():x}.txt")


def _make_result(
    running: RunningProcess, sink: HeadTailBuffer, *, timed_out: bool = False, has_survivors: bool = False
) -> CommandResult:
    text, truncated = sink.render_text()
    return CommandResult(
        running.code,
        text,
        running.pid,
        sink.total,
        truncated,
        timed_out,
        has_survivors,
        spill_path=sink.path,
        view=running.view,
        excess=running.excess,
        line_count=sink.line_count,
    )


def _relay_text(on_output: Callable[[str], None] | None) -> Callable[[bytes], None]:
    """Return a callback that decodes chunks without splitting characters."""
    if on_output is None:
        return ignore_data
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda data: on_output(decoder.decode(data))
