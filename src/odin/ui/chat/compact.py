"""`/compact` in a conversation: the older part becomes a summary, now."""

from collections.abc import AsyncIterator
from typing import TextIO

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import Compacted, CompactionChanged, Envelope
from odin.core.op import CancelCompaction, Compact
from odin.ui.terminal import say

COMMANDS = ("/compact",)
HELP = "/compact [what matters] summarises the conversation so far; /compact cancel stops that."


async def compact_command(client: Client, rest: str, err: TextIO) -> None:
    """Do it and say what came of it."""
    events = client.events()
    try:
        if rest.strip() == "cancel":
            stopped = await client.submit(CancelCompaction())
            say(err, "The summary was given up." if stopped else "No summary is being made.")
        elif await client.submit(Compact(rest.strip())):
            say(err, "Summarising…")
            await _follow(events, err)
        else:
            say(err, "There is nothing to summarise yet, or it is being done already.")
    except OdinError as error:
        say(err, error.sentence())
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


async def _follow(events: AsyncIterator[Envelope], err: TextIO) -> None:
    """To the end of the summary. When the model fails, what is known takes its place, and it goes on."""
    async for envelope in events:
        event = envelope.event
        if envelope.agent:
            continue
        if isinstance(event, Compacted):
            say(err, f"About {event.tokens_before:,} tokens became {event.tokens_after:,}.")
            if event.archive:
                say(err, f"The whole is in {event.archive}.")
            return
        if isinstance(event, CompactionChanged) and event.status in ("failed", "cancelled"):
            say(err, event.detail or "The summary was given up.")
            if event.final:
                return
