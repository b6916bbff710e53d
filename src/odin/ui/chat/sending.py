"""Prompts on their way from the keyboard to the session."""

import asyncio

from odin.core.client import Client, QueuedPrompt
from odin.core.errors import OdinError
from odin.core.op import ChangePrompt, Prompt
from odin.ui.chat.keyboard import Keyboard


class Sending:
    """`coming` says that a turn was asked for and has not ended. What waits from before rests until the next prompt."""

    def __init__(self, keyboard: Keyboard) -> None:
        self.coming = False
        self._keyboard = keyboard
        self._heard: Client | None = None
        self._hears = asyncio.Event()
        self._resting: list[ChangePrompt] = []

    def expect(self) -> None:
        self.coming = True

    def failed(self) -> None:
        """What was asked for does not come; what ran before may still run."""
        self.coming = self._keyboard.busy

    def follows(self, client: Client) -> None:
        """Somebody hears what happens in that session from now on."""
        self._heard = client
        self._hears.set()

    def rest(self, waiting: tuple[QueuedPrompt, ...]) -> None:
        self._resting = [ChangePrompt(item.id, lane=item.lane) for item in waiting]

    async def heard(self, client: Client) -> None:
        """Nothing is asked of a session before somebody hears its answer."""
        while self._heard is not client:
            self._hears.clear()
            await self._hears.wait()

    async def send(self, client: Client, prompt: Prompt) -> int:
        """Its place among those that wait, from 1; 0 when it is its turn at once."""
        self.expect()
        try:
            await client.submit(prompt)
        except OdinError:
            self.failed()
            raise
        resting, self._resting = self._resting, []
        for sent in resting:
            await client.submit(sent)
        waiting = [item.id for item in (await client.snapshot()).queue]
        return waiting.index(prompt.id) + 1 if prompt.id in waiting else 0
