"""Spawn: start a process that goes on after the call.

SpawnStatus: how the background processes are, and what they have printed.

SpawnStop: end a background process.
"""

from typing import Annotated

from msgspec import Meta

from odin.core.tool import Args, SideEffect, Subject, Tool, ToolContext, ToolOutput, fail
from odin.sandbox.background import MAX_SECONDS, BackgroundProcess, BackgroundProcesses, SpawnRefused, SpawnRequest
from odin.sandbox.process import describe_exit
from odin.sandbox.runner import SandboxUnavailable
from odin.tools.files import to_printable
from odin.tools.tty_commands import explain_interactive


class SpawnArgs(Args, frozen=True):
    command: str
    description: str = ""
    timeout: Annotated[float | None, Meta(description="Milliseconds, max 600000; none: until stopped")] = None


class SpawnTool(Tool[SpawnArgs]):
    """Start a long job or a server in the background; you are told when it ends."""

    name = "Spawn"
    kind = "execute"
    short = "Start a command in the background."
    args = SpawnArgs

    def __init__(self, background: BackgroundProcesses) -> None:
        self._background = background

    def subject_of(self, args: SpawnArgs) -> Subject:
        return Subject(command=args.command)

    def refusal_of(self, args: SpawnArgs) -> str:
        return explain_not_runnable(args.command)

    async def run(self, args: SpawnArgs, ctx: ToolContext) -> ToolOutput:
        return spawn_process(self._background, args, ctx)


def spawn_process(background: BackgroundProcesses, args: SpawnArgs, ctx: ToolContext) -> ToolOutput:
    """Start it, or say why not."""
    reason = explain_not_runnable(args.command)
    if reason:
        return fail(reason)
    asked = max(args.timeout or 0.0, 0.0) / 1000
    order = SpawnRequest(
        command=args.command,
        cwd=ctx.cwd,
        description=args.description,
        seconds=min(asked, MAX_SECONDS),
        agent=ctx.agent,
        mode=ctx.mode,
        call_id=ctx.call_id,
        sandbox_profile=ctx.sandbox_profile,
    )
    try:
        spawned = background.start(order)
    except SpawnRefused as error:
        return fail(f"Not run: {error}")
    except OSError as error:
        return fail(describe_start_error(error, ctx.cwd))
    text = _describe_started(spawned)
    if asked > MAX_SECONDS:
        text += f"\n(the timeout was limited to {MAX_SECONDS:g} s)"
    return ToolOutput(text=to_printable(text), note=to_printable(f"Started {spawned.name}"), asynchronous=True)


def _describe_started(spawned: BackgroundProcess) -> str:
    seconds = spawned.request.seconds
    limit = f"{seconds:g} s" if seconds else "none, until it is stopped or the session ends"
    return f"id: {spawned.id}\nstatus: {spawned.status}\nmax_runtime: {limit}\nlog: {spawned.log.path}"


def explain_not_runnable(command: str) -> str:
    """Why a command makes no sense to run, or ""."""
    if not command.strip() or "\0" in command:
        return "command is empty or contains a NUL byte."
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
    short = "Look at a background process."
    args = SpawnStatusArgs

    def __init__(self, background: BackgroundProcesses) -> None:
        self._background = background

    def title_of(self, args: SpawnStatusArgs) -> str:
        return args.id

    async def run(self, args: SpawnStatusArgs, ctx: ToolContext) -> ToolOutput:
        if not args.id:
            lines = [
                f"{_format_status(spawned)}, {spawned.log.total} bytes printed"
                for spawned in self._background.list_all()
            ]
            return ToolOutput(text=to_printable("\n".join(lines) or "There are no background processes."))
        spawned = self._background.get(args.id)
        if spawned is None:
            return fail(describe_unknown_id(args.id, self._background))
        return ToolOutput(
            text=to_printable(f"{_format_status(spawned)}\n{_format_new_output(spawned)}"),
            note=to_printable(_format_status(spawned)),
        )


def describe_unknown_id(id: str, background: BackgroundProcesses) -> str:
    """Why there is no such process, and which there are."""
    number = id.removeprefix("spawn-")
    if number.isdecimal() and len(number) < 10 and 0 < int(number) <= background.used_ids:
        return f"{id} was started before this session was resumed and has been stopped."
    known = ", ".join(f"{spawned.id} ({spawned.status})" for spawned in background.list_all())
    return f"There is no background process {id!r}. Known are: {known or 'none'}."


def _format_status(spawned: BackgroundProcess) -> str:
    state = spawned.status if spawned.status == "running" else f"{spawned.status}, {describe_exit(spawned.code)}"
    limit = f" of at most {spawned.request.seconds:g} s" if spawned.request.seconds else ""
    return f"{spawned.name}: {state}, {spawned.seconds:.1f} s{limit}"


def _format_new_output(spawned: BackgroundProcess) -> str:
    text = spawned.log.take_new_output().rstrip("\n")
    lines = [f"new output:\n{text}" if text else "(no new output)", f"log: {spawned.log.path}"]
    if spawned.log.error:
        lines.append(f"(the log could not be written: {spawned.log.error})")
    if spawned.has_survivors():
        lines.append("(something it started still runs; SpawnStop ends it)")
    return "\n".join(lines)


class SpawnStopArgs(Args, frozen=True):
    id: str


class SpawnStopTool(Tool[SpawnStopArgs]):
    """Stop a background process."""

    name = "SpawnStop"
    kind = "talk"  # it only takes back what Spawn was allowed to start, so nobody is asked again
    short = "Stop a spawned process."
    args = SpawnStopArgs
    exclusive = True

    def __init__(self, background: BackgroundProcesses) -> None:
        self._background = background

    @property
    def side_effect(self) -> SideEffect:
        return "blocking"

    def title_of(self, args: SpawnStopArgs) -> str:
        return args.id

    async def run(self, args: SpawnStopArgs, ctx: ToolContext) -> ToolOutput:
        spawned = self._background.get(args.id)
        if spawned is None:
            return fail(describe_unknown_id(args.id, self._background))
        if spawned.status != "running" and not spawned.has_survivors():
            return ToolOutput(text=to_printable(f"{spawned.name} is over already: {describe_exit(spawned.code)}."))
        was_running = spawned.status == "running"
        await self._background.stop(spawned)
        what = spawned.name if was_running else f"What {spawned.name} left running"
        last = spawned.log.take_new_output().rstrip("\n")
        text = f"{what} was stopped after {spawned.seconds:.1f} s." + (f"\nnew output:\n{last}" if last else "")
        return ToolOutput(text=to_printable(text), note=to_printable(f"Stopped {spawned.name}"))
