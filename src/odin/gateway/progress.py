"""Shows in a chat that a turn is running: a typing indicator, and for a long one a message that is kept up to date."""

import asyncio
import time
from contextlib import suppress

from odin.core.call_events import ActivityChanged, ToolStarted
from odin.core.event_values import Event
from odin.core.format import clip, format_seconds
from odin.gateway.channel import Channel, OutboundPart
from odin.ui.progress import describe_activity

FIRST_MESSAGE_S = 15.0
UPDATE_S = 5.0


class ProgressMessage:
    """What is shown of one turn. It is not part of the answer: what cannot be sent is left out."""

    def __init__(self, channel: Channel, chat: str, turn: str, *, first_s: float = FIRST_MESSAGE_S) -> None:
        self._channel = channel
        self._chat = chat
        self._turn = turn
        self._first_s = first_s
        self._doing = "thinking"
        self._shown: str = ""
        self._message = ""
        self._started = time.monotonic()
        self._task = asyncio.create_task(self._update())

    def handle_event(self, event: Event) -> None:
        if isinstance(event, ToolStarted):
            self._doing = event.description or event.name
        elif isinstance(event, ActivityChanged) and event.activity != "executing":
            self._doing = describe_activity(event) or self._doing

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._message:
            with suppress(Exception):
                async with asyncio.timeout(UPDATE_S):
                    await self._channel.edit(self._chat, self._message, f"Worked for {self._format_time()}.")

    def _format_time(self) -> str:
        return format_seconds(round(time.monotonic() - self._started))

    async def _update(self) -> None:
        abilities = self._channel.abilities
        while abilities.typing or abilities.edits:
            with suppress(Exception):  # foreign code, and nothing that anybody waits for
                if abilities.typing:
                    await self._channel.show_typing(self._chat)
                if abilities.edits and time.monotonic() - self._started >= self._first_s:
                    await self._show(f"Working for {self._format_time()}: {clip(self._doing, 200)}")
            await asyncio.sleep(min(UPDATE_S, self._first_s))

    async def _show(self, text: str) -> None:
        if self._message and text != self._shown:
            await self._channel.edit(self._chat, self._message, text)
        elif not self._message:
            self._message = await self._channel.send(OutboundPart(f"progress.{self._turn}", self._chat, text))
        self._shown = text
