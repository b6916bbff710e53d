"""`/compact` in a conversation: the older part becomes a summary, while the keyboard stays free."""

from typing import TextIO

from odin.core.client import Client
from odin.core.event import Compacted, CompactionChanged, Event
from odin.core.op import CancelCompaction, Compact
from odin.ui.terminal import write_line

COMPACT_COMMANDS = ("/compact",)
COMPACT_HELP = "/compact [what matters] summarises the conversation so far; Ctrl-C or /compact cancel stops that."
_NO_SUMMARY = "No summary is made: there is too little to summarise, one is being made already, or a hook said no."


class CompactionView:
    """The summary that a person asked for: whether it is being made, and what came of it."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self.is_running = False

    async def run_command(self, client: Client, rest: str) -> None:
        if rest.strip() == "cancel":
            await self.cancel(client)
        elif not await client.submit(Compact(rest.strip())):
            write_line(self._err, _NO_SUMMARY)

    async def cancel(self, client: Client) -> None:
        """Give it up. What becomes of one that a person asked for is told by its events."""
        told, self.is_running = self.is_running, False
        if not await client.submit(CancelCompaction()):
            write_line(self._err, "No summary is being made.")
        elif not told:
            write_line(self._err, "The summary was given up.")

    def wants(self, event: Event) -> bool:
        if isinstance(event, CompactionChanged):
            return event.trigger == "manual" and event.status != "succeeded"
        return isinstance(event, Compacted) and event.trigger == "manual"

    def show(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.is_running = False
            write_line(self._err, f"About {event.tokens_before:,} tokens became {event.tokens_after:,}.")
            if event.archive:
                write_line(self._err, f"The whole is in {event.archive}.")
        elif isinstance(event, CompactionChanged):
            self.is_running = event.status == "started" or not event.final
            own = "" if event.final else " Odin writes one from what it knows."
            given_up = event.detail or "The summary was given up."
            write_line(self._err, "Summarising…" if event.status == "started" else f"{given_up}{own}")
