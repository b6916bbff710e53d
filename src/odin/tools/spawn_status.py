"""SpawnStatus: how the background processes are, and what they have printed."""

from odin.core.tool import Args, Tool, ToolContext, ToolOutput, failed
from odin.policy.process.background import Background, Spawned
from odin.policy.process.outcome import outcome
from odin.tools.files.path import printable


class SpawnStatusArgs(Args, frozen=True):
    id: str = ""


class SpawnStatus(Tool[SpawnStatusArgs]):
    """State and new output of one or all background processes."""

    name = "SpawnStatus"
    kind = "read"
    short = "Look at a background process."
    args = SpawnStatusArgs

    def __init__(self, background: Background) -> None:
        self._background = background

    def title(self, args: SpawnStatusArgs) -> str:
        return args.id

    async def run(self, args: SpawnStatusArgs, ctx: ToolContext) -> ToolOutput:
        if not args.id:
            lines = [f"{_line(spawned)}, {spawned.log.total} bytes printed" for spawned in self._background.all()]
            return ToolOutput(text=printable("\n".join(lines) or "There are no background processes."))
        spawned = self._background.get(args.id)
        if spawned is None:
            return failed(unknown(args.id, self._background))
        return ToolOutput(text=printable(f"{_line(spawned)}\n{_news(spawned)}"), note=printable(_line(spawned)))


def unknown(id: str, background: Background) -> str:
    """Why there is no such process, and which there are."""
    number = id.removeprefix("spawn-")
    if number.isdecimal() and len(number) < 10 and 0 < int(number) <= background.taken:
        return f"{id} was started before this session was resumed and has been stopped."
    known = ", ".join(f"{spawned.id} ({spawned.status})" for spawned in background.all())
    return f"There is no background process {id!r}. Known are: {known or 'none'}."


def _line(spawned: Spawned) -> str:
    state = spawned.status if spawned.status == "running" else f"{spawned.status}, {outcome(spawned.code)}"
    limit = f" of at most {spawned.order.seconds:g} s" if spawned.order.seconds else ""
    return f"{spawned.name}: {state}, {spawned.seconds:.1f} s{limit}"


def _news(spawned: Spawned) -> str:
    text = spawned.log.look().rstrip("\n")
    lines = [f"new output:\n{text}" if text else "(no new output)", f"log: {spawned.log.path}"]
    if spawned.log.fault:
        lines.append(f"(the log could not be written: {spawned.log.fault})")
    if spawned.leaves_something():
        lines.append("(something it started still runs; SpawnStop ends it)")
    return "\n".join(lines)
