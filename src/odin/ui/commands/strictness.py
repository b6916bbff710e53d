"""How much a person is asked: what /permissions and /yolo do and say."""

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.op import SetPermissionMode

BYPASS = "bypassPermissions"
MODES = "default, acceptEdits, plan, dontAsk, bypassPermissions"


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

    def changed(self, mode: str) -> None:
        """Somebody chose this mode."""
        if mode != BYPASS:
            self._before = mode
        self.mode = mode

    async def command(self, name: str, rest: str) -> str:
        """Do what was typed and say what holds now."""
        if name == "/yolo":
            return await self._yolo(rest.strip().casefold())
        if not rest.strip():
            return f"Permission mode: {self.mode} (of {MODES})"
        await self._set(rest.strip())
        return f"Permission mode: {self.mode}"

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
        self.changed(mode)
