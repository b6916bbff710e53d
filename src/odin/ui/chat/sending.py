"""Prompts on their way from the keyboard to the session."""

import asyncio

from odin.core.client import Client, QueuedPrompt
from odin.core.errors import OdinError
from odin.core.op import ChangePrompt, Prompt
from odin.ui.chat.keyboard import Keyboard


class PromptSender:
    """`coming` says that a turn was asked for and has not ended. What waits from before rests until the next prompt."""

    def __init__(self, keyboard: Keyboard) -> None:
        self.expects_turn = False
        self._keyboard = keyboard
        self._followed_client: Client | None = None
        self._following = asyncio.Event()
        self._paused: list[ChangePrompt] = []

    def expect(self) -> None:
        self.expects_turn = True

    def cancel_expected(self) -> None:
        """What was asked for does not come; what ran before may still run."""
        self.expects_turn = self._keyboard.is_busy

    def set_followed(self, client: Client) -> None:
        """Somebody hears what happens in that session from now on."""
        self._followed_client = client
        self._following.set()

    def remember_paused(self, waiting: tuple[QueuedPrompt, ...]) -> None:
        self._paused = [ChangePrompt(item.id, delivery=item.delivery) for item in waiting]

    async def wait_until_followed(self, client: Client) -> None:
        """Nothing is asked of a session before somebody hears its answer."""
        while self._followed_client is not client:
            self._following.clear()
            await self._following.wait()

    async def send(self, client: Client, prompt: Prompt) -> int:
        """Its place among those that wait, from 1; 0 when it is its turn at once."""
        self.expect()
        try:
            await client.submit(prompt)
        except OdinError:
            self.cancel_expected()
            raise
        resting, self._paused = self._paused, []
        for sent in resting:
            await client.submit(sent)
        waiting = [item.id for item in (await client.snapshot()).queue]
        return waiting.index(prompt.id) + 1 if prompt.id in waiting else 0
