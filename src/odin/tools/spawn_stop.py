"""SpawnStop: end a background process."""

from odin.core.tool import Args, SideEffect, Tool, ToolContext, ToolOutput, fail
from odin.policy.process.background import BackgroundProcesses
from odin.policy.process.outcome import describe_exit
from odin.tools.files.path import to_printable
from odin.tools.spawn_status import describe_unknown_id


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
