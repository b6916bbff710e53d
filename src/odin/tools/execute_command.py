"""Progress of a running command: its newest line, now and then.

ExecuteCommand: run a shell command and show what it printed.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from odin.core.text import join_some
from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput, fail
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.output import decode_output, strip_ansi
from odin.sandbox.process import describe_exit
from odin.sandbox.runner import CommandResult, ProcessRunner
from odin.tools.files import to_printable
from odin.tools.spawn import SpawnArgs, describe_start_error, explain_not_runnable, spawn_process

INTERVAL = 0.5
"""Seconds between two lines, however much is printed."""

_MAX_WIDTH = 200
_MAX_KEPT = 4 * _MAX_WIDTH


class CommandProgress:
    """Shows the newest line that is not blank, at most once in an interval, also when nothing comes after it."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._shown_at = time.monotonic()
        self._text = ""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, text: str) -> None:
        self._text = (self._text + text)[-_MAX_KEPT:] if len(text) < _MAX_KEPT else text[-_MAX_KEPT:]
        if self._timer is not None:
            return
        wait = self._shown_at + INTERVAL - time.monotonic()
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


DEFAULT_MS = 120_000
MAX_MS = 600_000
_MAX_NAMED = 5
"""Files that are named at most."""


class ExecuteArgs(Args, frozen=True):
    command: str
    timeout: Annotated[float | None, Meta(description="Milliseconds; default 120000, max 600000")] = None
    description: str = ""
    run_in_background: bool = False


class ExecuteCommandTool(Tool[ExecuteArgs]):
    """Run a bash command: tests, builds, git. No terminal, no input; cd does not last."""

    name = "ExecuteCommand"
    kind = "execute"
    short = "Run a bash command."
    args = ExecuteArgs

    def __init__(self, runner: ProcessRunner, background: BackgroundProcesses | None = None) -> None:
        self._runner = runner
        self._background = background

    def subject_of(self, args: ExecuteArgs) -> Subject:
        return Subject(command=args.command)

    def can_speculate(self, args: ExecuteArgs) -> bool:
        return not args.run_in_background

    def refusal_of(self, args: ExecuteArgs) -> str:
        return explain_not_runnable(args.command)

    async def run(self, args: ExecuteArgs, ctx: ToolContext) -> ToolOutput:
        reason = explain_not_runnable(args.command)
        if reason:
            return fail(reason)
        if args.run_in_background:
            return self._spawn(args, ctx)
        asked = DEFAULT_MS if args.timeout is None or args.timeout <= 0 else args.timeout
        seconds = min(asked, MAX_MS) / 1000
        newest = CommandProgress(ctx.progress)
        try:
            finished = await self._runner.run(
                args.command, cwd=ctx.cwd, timeout=seconds, on_output=newest.feed, sandbox_profile=ctx.sandbox_profile
            )
        except OSError as error:
            return fail(describe_start_error(error, ctx.cwd))
        finally:
            newest.close()
        remarks = _list_remarks(finished, seconds)
        if asked > MAX_MS:
            remarks.append(f"(the timeout of {asked:.0f} ms was limited to {MAX_MS} ms)")
        text = "\n".join([finished.output.rstrip("\n") or "(no output)", *remarks])
        first = args.command.strip().partition("\n")[0]
        return ToolOutput(
            text=to_printable(text),
            is_error=finished.timed_out or finished.code != 0,
            note=to_printable(f"{args.description or 'Ran'}: {first[:200]}" + _format_exit(finished)),
            for_user=to_printable(_describe_tampering(finished)),
            blocked=to_printable(finished.denial),
        )

    def _spawn(self, args: ExecuteArgs, ctx: ToolContext) -> ToolOutput:
        if self._background is None:
            return fail("Not run: there are no background processes here. End the command with & instead.")
        return spawn_process(self._background, SpawnArgs(args.command, args.description, args.timeout), ctx)


def _list_remarks(finished: CommandResult, seconds: float) -> list[str]:
    if finished.timed_out:
        return [
            f"(timed out after {seconds:g}s and was stopped with everything it had started. It had no input: if it "
            "waited for an answer, use a flag that avoids the question; for a server, use Spawn)"
        ]
    remarks: list[str] = []
    if finished.code:
        remarks.append(f"({describe_exit(finished.code)})")
    if finished.has_survivors:
        later = f"; its further output goes to {finished.spill_path}" if finished.spill_path else ""
        remarks.append(f"(something it started still runs in the background until the session ends{later})")
    if finished.denial:
        remarks.append(f"(the sandbox kept it from {finished.denial})")
    if finished.tampered_files:
        remarks.append(f"({_describe_tampering(finished)})")
    return remarks


def _describe_tampering(finished: CommandResult) -> str:
    """What a person should look at: a command that builds or tests does not do this."""
    if not finished.tampered_files:
        return ""
    names = join_some(finished.tampered_files, _MAX_NAMED)
    return f"the command left or changed {names}, which other programs obey: the user should look at it"


def _format_exit(finished: CommandResult) -> str:
    if finished.timed_out:
        return " (timed out)"
    return f" (exit code {finished.code})" if finished.code else ""
