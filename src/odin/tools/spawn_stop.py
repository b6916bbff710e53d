"""SpawnStop: end a background process."""

from odin.core.tool import Args, SideEffect, Tool, ToolContext, ToolOutput, failed
from odin.policy.process.background import Background
from odin.policy.process.outcome import outcome
from odin.tools.files.path import printable
from odin.tools.spawn_status import unknown


class SpawnStopArgs(Args, frozen=True):
    id: str


class SpawnStop(Tool[SpawnStopArgs]):
    """Stop a background process."""

    name = "SpawnStop"
    kind = "talk"  # it only takes back what Spawn was allowed to start, so nobody is asked again
    short = "Stop a spawned process."
    args = SpawnStopArgs
    exclusive = True

    def __init__(self, background: Background) -> None:
        self._background = background

    @property
    def side_effect(self) -> SideEffect:
        return "blocking"

    def title(self, args: SpawnStopArgs) -> str:
        return args.id

    async def run(self, args: SpawnStopArgs, ctx: ToolContext) -> ToolOutput:
        spawned = self._background.get(args.id)
        if spawned is None:
            return failed(unknown(args.id, self._background))
        if spawned.status != "running" and not spawned.leaves_something():
            return ToolOutput(text=printable(f"{spawned.name} is over already: {outcome(spawned.code)}."))
        was_running = spawned.status == "running"
        await self._background.stop(spawned)
        what = spawned.name if was_running else f"What {spawned.name} left running"
        last = spawned.log.look().rstrip("\n")
        text = f"{what} was stopped after {spawned.seconds:.1f} s." + (f"\nnew output:\n{last}" if last else "")
        return ToolOutput(text=printable(text), note=printable(f"Stopped {spawned.name}"))
