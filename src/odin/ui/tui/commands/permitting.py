"""Commands about what is allowed, and how much is asked."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odin.core.client import Client, SessionInfo
from odin.core.errors import UsageError
from odin.core.event import Envelope, PermissionModeChanged
from odin.core.op import RemoveRule
from odin.ui.commands.rules import HOW, numbered, wanted
from odin.ui.commands.strictness import Strictness

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


class PermittingCommands:
    """Also told of what happens: the mode may be changed by somebody else."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app
        self._strictness: Strictness | None = None

    def table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "permissions": lambda rest: self._say("/permissions", rest),
            "yolo": lambda rest: self._say("/yolo", rest),
            "rules": self._rules,
        }

    # --- as a watcher ---

    def enter(self, client: Client, info: SessionInfo) -> None:
        self._strictness = Strictness(client, info.permission_mode)

    def see(self, envelope: Envelope, live: bool) -> None:
        """What was changed in an earlier run holds no longer."""
        event = envelope.event
        if live and isinstance(event, PermissionModeChanged) and not envelope.agent and self._strictness is not None:
            self._strictness.changed(event.mode)

    def frame(self) -> None:
        return None

    # --- how much is asked ---

    async def _say(self, command: str, rest: str) -> None:
        if self._strictness is not None:
            self._app.tell(await self._strictness.command(command, rest))

    # --- rules ---

    async def _rules(self, rest: str) -> None:
        verb, _, more = rest.partition(" ")
        if not verb:
            from odin.ui.tui.dialogs.rules import RulesDialog

            self._app.push_screen(RulesDialog())
        elif verb == "add":
            await self._app.client.submit(wanted(more))
        elif verb == "remove":
            found = numbered(await self._app.client.rules(), more.strip())
            await self._app.client.submit(RemoveRule(found.number))
        else:
            raise UsageError(f"/rules does not know {verb!r}.", HOW)
