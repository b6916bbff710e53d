"""SpawnStatus: how the background processes are, and what they have printed."""

from odin.core.tool import Args, Tool, ToolContext, ToolOutput, fail
from odin.policy.process.background import BackgroundProcess, BackgroundProcesses
from odin.policy.process.outcome import describe_exit
from odin.tools.files.path import to_printable


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
