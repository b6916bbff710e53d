"""Spawn: start a process that goes on after the call."""

from typing import Annotated

from msgspec import Meta

from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput, failed
from odin.policy.process.background import MAX_SECONDS, Background, NotStarted, Order, Spawned
from odin.policy.process.guard import Unconfined
from odin.tools.files.path import printable
from odin.tools.running.interactive import refusal


class SpawnArgs(Args, frozen=True):
    command: str
    description: str = ""
    timeout: Annotated[float | None, Meta(description="Milliseconds, max 600000; none: until stopped")] = None


class Spawn(Tool[SpawnArgs]):
    """Start a long job or a server in the background; you are told when it ends."""

    name = "Spawn"
    kind = "execute"
    short = "Start a command in the background."
    args = SpawnArgs

    def __init__(self, background: Background) -> None:
        self._background = background

    def subject(self, args: SpawnArgs) -> Subject:
        return Subject(command=args.command)

    def refusal(self, args: SpawnArgs) -> str:
        return not_runnable(args.command)

    async def run(self, args: SpawnArgs, ctx: ToolContext) -> ToolOutput:
        return start(self._background, args, ctx)


def start(background: Background, args: SpawnArgs, ctx: ToolContext) -> ToolOutput:
    """Start it, or say why not."""
    reason = not_runnable(args.command)
    if reason:
        return failed(reason)
    asked = max(args.timeout or 0.0, 0.0) / 1000
    order = Order(
        command=args.command,
        cwd=ctx.cwd,
        description=args.description,
        seconds=min(asked, MAX_SECONDS),
        agent=ctx.agent,
        mode=ctx.mode,
        call_id=ctx.call_id,
        confinement=ctx.confinement,
    )
    try:
        spawned = background.start(order)
    except NotStarted as error:
        return failed(f"Not run: {error}")
    except OSError as error:
        return failed(cannot_start(error, ctx.cwd))
    text = _told(spawned)
    if asked > MAX_SECONDS:
        text += f"\n(the timeout was limited to {MAX_SECONDS:g} s)"
    return ToolOutput(text=printable(text), note=printable(f"Started {spawned.name}"), asynchronous=True)


def _told(spawned: Spawned) -> str:
    seconds = spawned.order.seconds
    limit = f"{seconds:g} s" if seconds else "none, until it is stopped or the session ends"
    return f"id: {spawned.id}\nstatus: {spawned.status}\nmax_runtime: {limit}\nlog: {spawned.log.path}"


def not_runnable(command: str) -> str:
    """Why a command makes no sense to run, or ""."""
    if not command.strip() or "\0" in command:
        return "command is empty or contains a NUL byte."
    reason = refusal(command)
    return f"Not run: {reason}" if reason else ""


def cannot_start(error: OSError, cwd: str) -> str:
    if isinstance(error, Unconfined):
        return f"Not run: {error}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"Not run: the working directory {cwd} no longer exists."
    return f"Not run: {error.strerror or error}."
