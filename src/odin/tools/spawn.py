"""Spawn: start a process that goes on after the call."""

from typing import Annotated

from msgspec import Meta

from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput, fail
from odin.policy.process.background import (
    MAX_SECONDS,
    BackgroundProcess,
    BackgroundProcesses,
    SpawnRefused,
    SpawnRequest,
)
from odin.policy.process.guard import SandboxUnavailable
from odin.tools.files.path import to_printable
from odin.tools.running.interactive import explain_interactive


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
