"""How much a person is asked: `/permissions` and `/yolo` in a conversation."""

from typing import TextIO

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.core.op import SetPermissionMode
from odin.ui.terminal import say

BYPASS = "bypassPermissions"
COMMANDS = ("/yolo", "/permissions")
HELP = "/permissions MODE chooses how much is asked; /yolo on asks nothing at all."
_MODES = "default, acceptEdits, plan, dontAsk, bypassPermissions"


class Strictness:
    """The permission mode of the conversation, and the one to go back to when a bypass ends."""

    def __init__(self, client: Client, mode: str) -> None:
        self._client = client
        self.mode = mode
        self._before = "default" if mode == BYPASS else mode

    @property
    def warning(self) -> str:
        """What stands in the prompt while nothing is asked."""
        return " (yolo: nothing is asked)" if self.mode == BYPASS else ""

    async def command(self, name: str, rest: str, err: TextIO) -> None:
        """Do what was typed and say what holds now."""
        try:
            if name == "/yolo":
                say(err, await self._yolo(rest.strip().casefold()))
            elif rest.strip():
                await self._set(rest.strip())
                say(err, f"Permission mode: {self.mode}")
            else:
                say(err, f"Permission mode: {self.mode} (of {_MODES})")
        except OdinError as error:
            say(err, error.sentence())

    async def _yolo(self, word: str) -> str:
        if word == "on":
            await self._set(BYPASS)
            return "Nothing is asked any more. What rules deny, and what never runs, still does not. /yolo off ends it."
        if word == "off":
            await self._set(self._before)
            return f"Questions are asked again. Permission mode: {self.mode}"
        if word:
            raise UsageError(f"/yolo does not know {word!r}.", "Write /yolo on or /yolo off.")
        return f"/yolo is {'on' if self.mode == BYPASS else 'off'}. Permission mode: {self.mode}"

    async def _set(self, mode: str) -> None:
        await self._client.submit(SetPermissionMode(mode))
        if mode != BYPASS:
            self._before = mode
        self.mode = mode
