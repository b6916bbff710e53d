"""`/loop` in a conversation: Odin goes on by itself until a goal is reached, and says how that is getting on."""

from typing import TextIO

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import Event, LoopChanged, Mode
from odin.core.op import SetLoop
from odin.ui.commands.loop import LOOP_ENDS, describe_loop_end, describe_loop_status
from odin.ui.terminal import write_line

LOOP_COMMANDS = ("/loop",)
LOOP_HELP = (
    "/loop on [GOAL] keeps Odin at work until the goal is reached; /loop off ends that, /loop says how far it is."
)


class LoopView:
    """What a person wants of loop mode, and what became of it."""

    def __init__(self, err: TextIO) -> None:
        self._err = err

    async def run_command(self, client: Client, rest: str, mode: Mode) -> None:
        """Do what was typed and say what holds now."""
        verb, _, target = rest.strip().partition(" ")
        if verb == "on":
            await client.submit(SetLoop(True, target.strip(), mode))
            write_line(self._err, describe_loop_status(await client.get_loop_status()))
        elif verb == "off":
            if not await client.submit(SetLoop(False)):
                write_line(self._err, "Loop mode is off already.")
        elif verb:
            raise UsageError(f"/loop does not know {verb!r}.", "Write /loop on [GOAL], /loop off, or /loop alone.")
        else:
            write_line(self._err, describe_loop_status(await client.get_loop_status()))

    def wants(self, event: Event) -> bool:
        return isinstance(event, LoopChanged) and event.state in LOOP_ENDS

    def show(self, event: Event) -> None:
        if isinstance(event, LoopChanged):
            write_line(self._err, describe_loop_end(LOOP_ENDS[event.state], event.reason))
