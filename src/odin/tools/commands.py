"""ExecuteCommand, Spawn, SpawnStatus and SpawnStop: run shell commands in the foreground and in the background."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from odin.core.errors import CommandTimedOut
from odin.core.format import pluralize
from odin.core.text import join_some
from odin.core.tool import Args, SideEffect, Target, Tool, ToolContext, ToolOutput, fail
from odin.sandbox.background import MAX_SECONDS, BackgroundProcess, BackgroundProcesses, SpawnRefused, SpawnRequest
from odin.sandbox.output import decode_output, strip_ansi
from odin.sandbox.process import describe_exit
from odin.sandbox.runner import CommandReleased, CommandResult, ProcessRunner, SandboxUnavailable, ViewUnavailable
from odin.tools.files import to_printable

_MAX_WIDTH = 200
_MAX_KEPT = 4 * _MAX_WIDTH
DEFAULT_MS = 120_000
MAX_MS = 600_000

_MAX_NAMED = 5
"""Maximum number of files named in a message."""
_MANY_LINES = 1_000
"""From so many lines of output on, users are told how many; the result may have only some of them."""


class SpawnArgs(Args, frozen=True):
    command: str
    description: str = ""
    timeout: Annotated[float | None, Meta(description="Milliseconds; none: until stopped")] = None
    notify: str = ""


class SpawnTool(Tool[SpawnArgs]):
    """Run a command in the background; you are told when it ends, and of lines with `notify`."""

    name = "Spawn"
    kind = "execute"
    short = "Start a command in the background."
    args = SpawnArgs

    def __init__(self, background: BackgroundProcesses) -> None:
        self._background = background

    def get_target(self, args: SpawnArgs) -> Target:
        return Target(command=args.command)

    def validate(self, args: SpawnArgs) -> str:
        return explain_not_runnable(args.command)

    async def run(self, args: SpawnArgs, ctx: ToolContext) -> ToolOutput:
        return await spawn_process(self._background, args, ctx)


async def spawn_process(background: BackgroundProcesses, args: SpawnArgs, ctx: ToolContext) -> ToolOutput:
    """Start a background process. Return its id, or the error."""
    reason = explain_not_runnable(args.command)
    if reason:
        return fail(reason)
    seconds = max(args.timeout or 0.0, 0.0) / 1000
    request = SpawnRequest(
        command=args.command,
        cwd=ctx.cwd,
        description=args.description,
        seconds=min(seconds, MAX_SECONDS),
        agent=ctx.agent,
        mode=ctx.mode,
        call_id=ctx.call_id,
        profile=ctx.profile,
        notify=args.notify.strip(),
    )
    try:
        spawned = await background.start(request)
    except SpawnRefused as error:
        return fail(f"Not run: {error}")
    except OSError as error:
        return fail(describe_start_error(error, ctx.cwd))
    text = _describe_started(spawned)
    if seconds > MAX_SECONDS:
        text += f"\n(the timeout was limited to {MAX_SECONDS:g} s)"
    return ToolOutput(text=to_printable(text), note=to_printable(f"Started {spawned.name}"), asynchronous=True)


def _describe_started(spawned: BackgroundProcess) -> str:
    seconds = spawned.request.seconds
    limit = f"{seconds:g} s" if seconds else "none, until it is stopped or the session ends"
    return f"id: {spawned.id}\nstatus: {spawned.status}\nmax_runtime: {limit}\nlog: {spawned.log.path}"


def explain_not_runnable(command: str) -> str:
    """Return why a command cannot sensibly run, or ""."""
    if not command.strip() or "\0" in command:
        return "command is empty or contains a NUL byte."
    from odin.tools.interactive_commands import explain_interactive

    reason = explain_interactive(command)
    return f"Not run: {reason}" if reason else ""


def describe_start_error(error: OSError, cwd: str) -> str:
    if isinstance(error, SandboxUnavailable):
        return f"Not run: {error}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"Not run: the working directory {cwd} no longer exists."
    return f"Not run: {error.strerror or error}."


class SpawnStatusArgs(Args, frozen=True):
    id: str = ""


class SpawnStatusTool(Tool[SpawnStatusArgs]):
    """State and new output of one or all background processes."""

    name = "SpawnStatus"
    kind = "read"
    short = "Show the state and output of a background process."
    args = SpawnStatusArgs

    def __init__(self, background: BackgroundProcesses) -> None:
        self._background = background

    def is_offered(self) -> bool:
        return bool(self._background.list_all())

    def get_title(self, args: SpawnStatusArgs) -> str:
        return args.id

    async def run(self, args: SpawnStatusArgs, ctx: ToolContext) -> ToolOutput:
        if not args.id:
            lines = [
                f"{_format_status(spawned)}, {spawned.log.total} bytes printed"
                for spawned in self._background.list_all()
            ]
            return ToolOutput(text=to_printable("\n".join(lines) or "No background processes."))
        await self._background.look_for_ports()
        spawned = self._background.get(args.id)
        if spawned is None:
            return fail(describe_unknown_id(args.id, self._background))
        return ToolOutput(
            text=to_printable(f"{_format_status(spawned)}\n{_format_new_output(spawned)}"),
            note=to_printable(_format_status(spawned)),
        )


def describe_unknown_id(id: str, background: BackgroundProcesses) -> str:
    """Return why the id is unknown, and the known ids."""
    number = id.removeprefix("spawn-")
    if number.isdecimal() and len(number) < 10 and 0 < int(number) <= background.used_ids:
        return f"{id} was started before this session was resumed and has been stopped."
    ids = ", ".join(f"{spawned.id} ({spawned.status})" for spawned in background.list_all())
    return f"Unknown background process {id!r}. Known: {ids or 'none'}."


def _format_status(spawned: BackgroundProcess) -> str:
    state = spawned.status if spawned.status == "running" else f"{spawned.status}, {describe_exit(spawned.code)}"
    limit = f" of at most {spawned.request.seconds:g} s" if spawned.request.seconds else ""
    return f"{spawned.name}: {state}, {spawned.seconds:.1f} s{limit}"


def _format_new_output(spawned: BackgroundProcess) -> str:
    text = spawned.log.take_new_output().rstrip("\n")
    lines = [f"new output:\n{text}" if text else "(no new output)", f"log: {spawned.log.path}"]
    if spawned.log.error:
        lines.append(f"(the log could not be written: {spawned.log.error})")
    for port, url in spawned.urls.items():
        closed = f"commands reach it; `/ps {spawned.id} open` in the app opens it to the user's browser"
        lines.append(f"(it listens on port {port}: {f'the user reaches it at {url}' if url else closed})")
    if spawned.has_survivors():
        lines.append("(a process it started still runs; SpawnStop ends it)")
    return "\n".join(lines)


class SpawnStopArgs(Args, frozen=True):
    id: str


class SpawnStopTool(Tool[SpawnStopArgs]):
    """Stop a background process."""

    name = "SpawnStop"
    kind = "interactive"  # it only undoes what Spawn was allowed to do, so it needs no permission
    short = "Stop a spawned process."
    args = SpawnStopArgs
    exclusive = True

    def __init__(self, background: BackgroundProcesses) -> None:
        self._background = background

    def is_offered(self) -> bool:
        return bool(self._background.list_all())

    @property
    def side_effect(self) -> SideEffect:
        return "blocking"

    def get_title(self, args: SpawnStopArgs) -> str:
        return args.id

    async def run(self, args: SpawnStopArgs, ctx: ToolContext) -> ToolOutput:
        spawned = self._background.get(args.id)
        if spawned is None:
            return fail(describe_unknown_id(args.id, self._background))
        if not spawned.is_left:
            return ToolOutput(text=to_printable(f"{spawned.name} has already ended: {describe_exit(spawned.code)}."))
        was_running = spawned.status == "running"
        await self._background.stop(spawned)
        subject = spawned.name if was_running else f"What {spawned.name} had left running"
        last = spawned.log.take_new_output().rstrip("\n")
        text = f"{subject} was stopped after {spawned.seconds:.1f} s." + (f"\nnew output:\n{last}" if last else "")
        return ToolOutput(text=to_printable(text), note=to_printable(f"Stopped {spawned.name}"))


class CommandProgress:
    """Shows the newest non-blank line of the output, at most once per interval, also if no more output follows."""

    def __init__(self, show: Callable[[str], None], interval_s: float) -> None:
        self._show = show
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._shown_at = time.monotonic()
        self._text = ""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, text: str) -> None:
        self._text = (self._text + text)[-_MAX_KEPT:] if len(text) < _MAX_KEPT else text[-_MAX_KEPT:]
        if self._timer is not None:
            return
        wait = self._shown_at + self._interval_s - time.monotonic()
        if wait > 0:
            self._timer = self._loop.call_later(wait, self._show_line)
        else:
            self._show_line()

    def _show_line(self) -> None:
        self._timer = None
        lines = decode_output(strip_ansi(self._text.encode("utf-8", "replace"))).rstrip().split("\n")
        line = lines[-1].rstrip("\r")[-_MAX_WIDTH:]
        self._text = ""
        if line.strip():
            self._shown_at = time.monotonic()
            self._show(line)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ExecuteArgs(Args, frozen=True):
    command: str
    timeout: Annotated[float | None, Meta(description=f"Milliseconds; default {DEFAULT_MS}, max {MAX_MS}")] = None
    description: str = ""
    run_in_background: bool = False


class ExecuteCommandTool(Tool[ExecuteArgs]):
    """Run a bash command: tests, builds, git. No terminal, no input; cd does not last."""

    name = "ExecuteCommand"
    kind = "execute"
    short = "Run a bash command."
    args = ExecuteArgs
    has_view = True

    def __init__(self, runner: ProcessRunner, background: BackgroundProcesses | None = None) -> None:
        self._runner = runner
        self._background = background

    def redirect(self, raw: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        try:
            is_spawned = self._background is not None and self.parse(raw).run_in_background
        except Exception:  # evaluating the call reports it
            is_spawned = False
        if not is_spawned:
            return None
        return SpawnTool.name, {name: raw[name] for name in ("command", "description", "timeout") if name in raw}

    def get_target(self, args: ExecuteArgs) -> Target:
        return Target(command=args.command)

    def can_speculate(self, args: ExecuteArgs) -> bool:
        return not args.run_in_background

    def validate(self, args: ExecuteArgs) -> str:
        return explain_not_runnable(args.command)

    async def run(self, args: ExecuteArgs, ctx: ToolContext) -> ToolOutput:
        reason = explain_not_runnable(args.command)
        if reason:
            return fail(reason)
        if args.run_in_background:
            return await self._spawn(args, ctx)
        timeout_ms = DEFAULT_MS if args.timeout is None or args.timeout <= 0 else args.timeout
        seconds = min(timeout_ms, MAX_MS) / 1000
        progress = CommandProgress(ctx.progress, ctx.environment.timing.command_output_s)
        offer = self._background.offer(ctx.agent) if self._background is not None else nullcontext()
        try:
            with offer as released:
                finished = await self._runner.run(
                    args.command,
                    cwd=ctx.cwd,
                    timeout=seconds,
                    on_output=progress.feed,
                    on_cancelled=lambda stopped: ctx.keep_partial(_make_partial(args, stopped)),
                    profile=ctx.profile,
                    released=released,
                )
        except CommandReleased as command:
            return self._send_to_background(args, ctx, command)
        except ViewUnavailable:
            raise  # the user is asked whether it may run without one
        except OSError as error:
            return fail(describe_start_error(error, ctx.cwd))
        finally:
            progress.close()
        remarks = _list_remarks(finished, seconds)
        if timeout_ms > MAX_MS:
            remarks.append(f"(the timeout of {timeout_ms:.0f} ms was limited to {MAX_MS} ms)")
        return _make_output(args, finished, remarks, _format_exit(finished))

    def _send_to_background(self, args: ExecuteArgs, ctx: ToolContext, command: CommandReleased) -> ToolOutput:
        assert self._background is not None
        request = SpawnRequest(
            args.command, ctx.cwd, args.description, agent=ctx.agent, mode=ctx.mode, call_id=ctx.call_id
        )
        spawned = self._background.adopt(request, command, self._runner)
        text = "The user sent it to the background, where it goes on. You are told when it ends.\n"
        if command.running.view is not None:
            text += "What it changes is in a private view until then.\n"
        text += _describe_started(spawned)
        printed = spawned.log.take_new_output().rstrip("\n")
        text += f"\noutput so far:\n{printed}" if printed else ""
        note = to_printable(f"Sent to the background: {spawned.name}")
        return ToolOutput(text=to_printable(text), note=note, asynchronous=True)

    async def _spawn(self, args: ExecuteArgs, ctx: ToolContext) -> ToolOutput:
        if self._background is None:
            return fail("Not run: background processes are not available here. End the command with & instead.")
        return await spawn_process(self._background, SpawnArgs(args.command, args.description, args.timeout), ctx)


def _make_partial(args: ExecuteArgs, stopped: CommandResult) -> ToolOutput:
    """Return the output of an interrupted command. Its text is empty if it had printed nothing."""
    output = _make_output(args, stopped, [], " (interrupted)")
    return output if stopped.output.strip("\n") else replace(output, text="")


def _make_output(args: ExecuteArgs, finished: CommandResult, remarks: list[str], ending: str) -> ToolOutput:
    text = "\n".join([finished.output.rstrip("\n") or "(no output)", *remarks])
    first = args.command.strip().partition("\n")[0]
    if finished.truncated or finished.line_count >= _MANY_LINES:
        ending = f": {pluralize(finished.line_count, 'line')}{ending}"
    return ToolOutput(
        text=to_printable(text),
        is_error=finished.timed_out or finished.code != 0,
        note=to_printable(f"{args.description or 'Ran'}: {first[:200]}{ending}"),
        for_user=to_printable(_warn_about_tampering(finished)),
        blocked=to_printable(finished.denial),
        error_kind=CommandTimedOut.__name__ if finished.timed_out else "",
        layer=finished.view,
    )


def _list_remarks(finished: CommandResult, seconds: float) -> list[str]:
    remarks: list[str] = []
    if finished.timed_out:
        remarks.append(
            f"(timed out after {seconds:g}s and was stopped with everything it had started. It had no input: if it "
            "waited for an answer, use a flag that avoids the question; for a server, use Spawn)"
        )
    elif finished.code:
        remarks.append(f"({describe_exit(finished.code)})")
    if finished.has_survivors:
        later = f"; its further output goes to {finished.spill_path}" if finished.spill_path else ""
        remarks.append(f"(a process it started still runs in the background until the session ends{later})")
    if finished.excess:
        remarks.append(f"({finished.excess})")
    if finished.denial:
        remarks.append(f"(the sandbox kept it from {finished.denial})")
    if finished.tampered_files:
        names = join_some(finished.tampered_files, _MAX_NAMED)
        remarks.append(f"(it created or changed {names}, which other programs execute or obey; the user was warned)")
    return remarks


_CHECK_IT = "Other programs execute or obey such files: check the change."


def _warn_about_tampering(finished: CommandResult) -> str:
    """Return the warning about protected files that the command changed, which builds and tests do not do; else ""."""
    if not finished.tampered_files:
        return ""
    names = join_some(finished.tampered_files, _MAX_NAMED)
    return f"The command created or changed {names}. {_CHECK_IT}"


def warn_about_late_changes(names: Sequence[str]) -> str:
    """Return the warning about protected files that changed while only a background process ran, or ""."""
    if not names:
        return ""
    changed = join_some(names, _MAX_NAMED)
    return to_printable(f"While a process ran in the background, {changed} was created or changed. {_CHECK_IT}")


def _format_exit(finished: CommandResult) -> str:
    if finished.timed_out:
        return " (timed out)"
    return f" (exit code {finished.code})" if finished.code else ""
