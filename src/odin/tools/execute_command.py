"""ExecuteCommand: run a shell command and show what it printed."""

from typing import Annotated

from msgspec import Meta

from odin.core.some import some_of
from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput, failed
from odin.policy.process.background import Background
from odin.policy.process.outcome import outcome
from odin.policy.process.runner import Finished, ProcessRunner
from odin.tools.files.path import printable
from odin.tools.running.last_line import LastLine
from odin.tools.spawn import SpawnArgs, cannot_start, not_runnable, start

DEFAULT_MS = 120_000
MAX_MS = 600_000
_NAMED = 5
"""Files that are named at most."""


class ExecuteArgs(Args, frozen=True):
    command: str
    timeout: Annotated[float | None, Meta(description="Milliseconds; default 120000, max 600000")] = None
    description: str = ""
    run_in_background: bool = False


class ExecuteCommand(Tool[ExecuteArgs]):
    """Run a bash command: tests, builds, git. No terminal, no input; cd does not last."""

    name = "ExecuteCommand"
    kind = "execute"
    short = "Run a bash command."
    args = ExecuteArgs

    def __init__(self, runner: ProcessRunner, background: Background | None = None) -> None:
        self._runner = runner
        self._background = background

    def subject(self, args: ExecuteArgs) -> Subject:
        return Subject(command=args.command)

    def early(self, args: ExecuteArgs) -> bool:
        return not args.run_in_background

    def refusal(self, args: ExecuteArgs) -> str:
        return not_runnable(args.command)

    async def run(self, args: ExecuteArgs, ctx: ToolContext) -> ToolOutput:
        reason = not_runnable(args.command)
        if reason:
            return failed(reason)
        if args.run_in_background:
            return self._spawn(args, ctx)
        asked = DEFAULT_MS if args.timeout is None or args.timeout <= 0 else args.timeout
        seconds = min(asked, MAX_MS) / 1000
        newest = LastLine(ctx.progress)
        try:
            finished = await self._runner.run(
                args.command, cwd=ctx.cwd, timeout=seconds, on_output=newest.see, confinement=ctx.confinement
            )
        except OSError as error:
            return failed(cannot_start(error, ctx.cwd))
        finally:
            newest.close()
        remarks = _remarks(finished, seconds)
        if asked > MAX_MS:
            remarks.append(f"(the timeout of {asked:.0f} ms was limited to {MAX_MS} ms)")
        text = "\n".join([finished.output.rstrip("\n") or "(no output)", *remarks])
        first = args.command.strip().partition("\n")[0]
        return ToolOutput(
            text=printable(text),
            is_error=finished.timed_out or finished.code != 0,
            note=printable(f"{args.description or 'Ran'}: {first[:200]}" + _outcome(finished)),
            for_user=printable(_planted(finished)),
            blocked=printable(finished.blocked),
        )

    def _spawn(self, args: ExecuteArgs, ctx: ToolContext) -> ToolOutput:
        if self._background is None:
            return failed("Not run: there are no background processes here. End the command with & instead.")
        return start(self._background, SpawnArgs(args.command, args.description, args.timeout), ctx)


def _remarks(finished: Finished, seconds: float) -> list[str]:
    if finished.timed_out:
        return [
            f"(timed out after {seconds:g}s and was stopped with everything it had started. It had no input: if it "
            "waited for an answer, use a flag that avoids the question; for a server, use Spawn)"
        ]
    remarks: list[str] = []
    if finished.code:
        remarks.append(f"({outcome(finished.code)})")
    if finished.background:
        later = f"; its further output goes to {finished.spill}" if finished.spill else ""
        remarks.append(f"(something it started still runs in the background until the session ends{later})")
    if finished.blocked:
        remarks.append(f"(the sandbox kept it from {finished.blocked})")
    if finished.planted:
        remarks.append(f"({_planted(finished)})")
    return remarks


def _planted(finished: Finished) -> str:
    """What a person should look at: a command that builds or tests does not do this."""
    if not finished.planted:
        return ""
    names = some_of(finished.planted, _NAMED)
    return f"the command left or changed {names}, which other programs obey: the user should look at it"


def _outcome(finished: Finished) -> str:
    if finished.timed_out:
        return " (timed out)"
    return f" (exit code {finished.code})" if finished.code else ""
