"""How much a person is asked: what /permissions and /yolo do and say."""

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.op import SetPermissionMode

BYPASS = "bypassPermissions"
PERMISSION_MODES = "default, acceptEdits, plan, dontAsk, bypassPermissions"


class PermissionModeSwitch:
    """The permission mode of the conversation, and the one to go back to when a bypass ends."""

    def __init__(self, client: Client, mode: str) -> None:
        self._client = client
        self.mode = mode
        self._previous_mode = "default" if mode == BYPASS else mode

    @property
    def warning(self) -> str:
        """What stands in the prompt while nothing is asked."""
        return " (yolo: nothing is asked)" if self.mode == BYPASS else ""

    def record_mode(self, mode: str) -> None:
        """Somebody chose this mode."""
        if mode != BYPASS:
            self._previous_mode = mode
        self.mode = mode

    async def run_command(self, name: str, rest: str) -> str:
        """Do what was typed and say what holds now."""
        if name == "/yolo":
            return await self._switch_yolo(rest.strip().casefold())
        if not rest.strip():
            return f"Permission mode: {self.mode} (of {PERMISSION_MODES})"
        await self._submit_mode(rest.strip())
        return f"Permission mode: {self.mode}"

    async def _switch_yolo(self, word: str) -> str:
        if word == "on":
            await self._submit_mode(BYPASS)
            return "Nothing is asked any more. What rules deny, and what never runs, still does not. /yolo off ends it."
        if word == "off":
            await self._submit_mode(self._previous_mode)
            return f"Questions are asked again. Permission mode: {self.mode}"
        if word:
            raise UsageError(f"/yolo does not know {word!r}.", "Write /yolo on or /yolo off.")
        return f"/yolo is {'on' if self.mode == BYPASS else 'off'}. Permission mode: {self.mode}"

    async def _submit_mode(self, mode: str) -> None:
        await self._client.submit(SetPermissionMode(mode))
        self.record_mode(mode)
