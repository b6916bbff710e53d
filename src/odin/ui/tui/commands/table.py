"""All commands of the app by their names. What each does is with its kind."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from odin.core.attachment import Attachment
from odin.core.commands import find_slash_command
from odin.ui.tui.commands.display import DisplayCommands
from odin.ui.tui.commands.looking import ReportCommands
from odin.ui.tui.commands.moving import NavigationCommands
from odin.ui.tui.commands.permitting import PermissionCommands
from odin.ui.tui.commands.working import TurnCommands
from odin.ui.tui.watching import SessionObserver

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

CommandHandler = Callable[[str], Awaitable[None]]
"""Does it, with what was written after the name."""


class CommandTable:
    """Those about words for the model also take what is attached to them."""

    def __init__(self, app: "OdinApp") -> None:
        self.navigation = NavigationCommands(app)
        self._permissions = PermissionCommands(app)
        working = TurnCommands(app, self.navigation)
        self._prompt_table = working.build_prompt_table()
        self._table: dict[str, CommandHandler] = {
            **working.build_table(),
            **self.navigation.build_table(),
            **self._permissions.build_table(),
            **ReportCommands(app, self).build_table(),
            **DisplayCommands(app).build_table(),
        }

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self._table, *self._prompt_table))

    @property
    def observers(self) -> tuple[SessionObserver, ...]:
        """Those that are told of what happens."""
        return self.navigation, self._permissions

    async def run(self, name: str, rest: str = "", attached: Sequence[Attachment] = ()) -> bool:
        """False when there is no such command: then it is no business of ours, and the model may read it.

        Raises OdinError for what cannot be done; nothing else happens then.
        """
        found = find_slash_command(name)
        if found is None:
            return False
        if found.name in self._prompt_table:
            await self._prompt_table[found.name](rest.strip(), attached)
            return True
        act = self._table.get(found.name)
        if act is not None:
            await act(rest.strip())
        return act is not None
