"""ExecuteCommand: run a shell command and show what it printed."""

import signal
import time
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput, failed
from odin.policy.sandbox import Finished, ProcessRunner
from odin.tools.interactive import refusal
from odin.tools.path import printable

DEFAULT_MS = 120_000
MAX_MS = 600_000
_PROGRESS_SECONDS = 0.5


class ExecuteArgs(Args, frozen=True):
    command: str
    timeout: Annotated[float | None, Meta(description="Milliseconds; default 120000, max 600000")] = None
    description: Annotated[str, Meta(description="What it does")] = ""


class ExecuteCommand(Tool[ExecuteArgs]):
    """Run a bash command: tests, builds, git. No terminal, no input; cd does not last. Prefer Read, Grep and Glob to
    cat, grep and find."""

    name = "ExecuteCommand"
    kind = "execute"
    short = "Run a bash command."
    args = ExecuteArgs

    def __init__(self, runner: ProcessRunner) -> None:
        self._runner = runner

    def subject(self, args: ExecuteArgs) -> Subject:
        return Subject(command=args.command)

    async def run(self, args: ExecuteArgs, ctx: ToolContext) -> ToolOutput:
        if not args.command.strip() or "\0" in args.command:
            return failed("command is empty or contains a NUL byte.")
        reason = refusal(args.command)
        if reason:
            return failed(f"Not run: {reason}")
        asked = DEFAULT_MS if args.timeout is None or args.timeout <= 0 else args.timeout
        seconds = min(asked, MAX_MS) / 1000
        try:
            finished = await self._runner.run(
                args.command, cwd=ctx.cwd, timeout=seconds, on_output=_last_line_to(ctx.progress)
            )
        except OSError as error:
            return failed(_cannot_start(error, ctx.cwd))
        remarks = _remarks(finished, seconds)
        if asked > MAX_MS:
            remarks.append(f"(the timeout of {asked:.0f} ms was limited to {MAX_MS} ms)")
        text = "\n".join([finished.output.rstrip("\n") or "(no output)", *remarks])
        first = args.command.strip().partition("\n")[0]
        return ToolOutput(
            text=printable(text),
            is_error=finished.timed_out or finished.code != 0,
            note=printable(f"{args.description or 'Ran'}: {first[:200]}" + _outcome(finished)),
        )


def _last_line_to(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Show the newest line now and then, once a command has run for a moment."""
    shown = time.monotonic()

    def pass_on(text: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _PROGRESS_SECONDS and text.strip():
            shown = now
            progress(printable(text.rstrip().rpartition("\n")[2][-200:]))

    return pass_on


def _remarks(finished: Finished, seconds: float) -> list[str]:
    if finished.timed_out:
        return [
            f"(timed out after {seconds:g}s and was stopped with everything it had started. It had no input: if it "
            "waited for an answer, use a flag that avoids the question; for a server, end the command with &)"
        ]
    remarks: list[str] = []
    if finished.code < 0:
        remarks.append(f"(killed by signal {_signal_name(-finished.code)})")
    elif finished.code:
        remarks.append(f"(exit code {finished.code})")
    if finished.background:
        later = f"; its further output goes to {finished.spill}" if finished.spill else ""
        remarks.append(f"(something it started still runs in the background until the session ends{later})")
    return remarks


def _outcome(finished: Finished) -> str:
    if finished.timed_out:
        return " (timed out)"
    return f" (exit code {finished.code})" if finished.code else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _cannot_start(error: OSError, cwd: str) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"Not run: the working directory {cwd} no longer exists."
    return f"Not run: {error.strerror or error}."
