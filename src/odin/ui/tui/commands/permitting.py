"""Commands about what is allowed, and how much is asked."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odin.core.client import Client, SessionInfo
from odin.core.errors import UsageError
from odin.core.event import Envelope, PermissionModeChanged
from odin.core.op import RemoveRule
from odin.ui.commands.rules import RULES_USAGE, find_rule, parse_rule
from odin.ui.commands.strictness import PermissionModeSwitch

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


class PermissionCommands:
    """Also told of what happens: the mode may be changed by somebody else."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app
        self._mode_switch: PermissionModeSwitch | None = None

    def build_table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "permissions": lambda rest: self._switch_mode("/permissions", rest),
            "yolo": lambda rest: self._switch_mode("/yolo", rest),
            "rules": self._handle_rules,
        }

    # --- as a watcher ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._mode_switch = PermissionModeSwitch(client, info.permission_mode)

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        """What was changed in an earlier run holds no longer."""
        event = envelope.event
        if live and isinstance(event, PermissionModeChanged) and not envelope.agent and self._mode_switch is not None:
            self._mode_switch.record_mode(event.mode)

    def draw_frame(self) -> None:
        return None

    # --- how much is asked ---

    async def _switch_mode(self, command: str, rest: str) -> None:
        if self._mode_switch is not None:
            self._app.show_toast(await self._mode_switch.run_command(command, rest))

    # --- rules ---

    async def _handle_rules(self, rest: str) -> None:
        verb, _, more = rest.partition(" ")
        if not verb:
            from odin.ui.tui.dialogs.rules import RulesDialog

            self._app.push_screen(RulesDialog())
        elif verb == "add":
            await self._app.client.submit(parse_rule(more))
        elif verb == "remove":
            found = find_rule(await self._app.client.list_rules(), more.strip())
            await self._app.client.submit(RemoveRule(found.number))
        else:
            raise UsageError(f"/rules does not know {verb!r}.", RULES_USAGE)
