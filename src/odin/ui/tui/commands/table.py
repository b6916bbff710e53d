"""All commands of the app by their names. What each does is with its kind."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from odin.core.attachment import Attachment
from odin.core.commands import built_in
from odin.ui.tui.commands.display import DisplayCommands
from odin.ui.tui.commands.looking import LookingCommands
from odin.ui.tui.commands.moving import MovingCommands
from odin.ui.tui.commands.permitting import PermittingCommands
from odin.ui.tui.commands.working import WorkingCommands
from odin.ui.tui.watching import Watcher

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

Do = Callable[[str], Awaitable[None]]
"""Does it, with what was written after the name."""


class Commands:
    """Those about words for the model also take what is attached to them."""

    def __init__(self, app: "OdinApp") -> None:
        self.moving = MovingCommands(app)
        self._permitting = PermittingCommands(app)
        working = WorkingCommands(app, self.moving)
        self._speaking = working.speaking()
        self._table: dict[str, Do] = {
            **working.table(),
            **self.moving.table(),
            **self._permitting.table(),
            **LookingCommands(app, self).table(),
            **DisplayCommands(app).table(),
        }

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self._table, *self._speaking))

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """Those that are told of what happens."""
        return self.moving, self._permitting

    async def run(self, name: str, rest: str = "", attached: Sequence[Attachment] = ()) -> bool:
        """False when there is no such command: then it is no business of ours, and the model may read it.

        Raises OdinError for what cannot be done; nothing else happens then.
        """
        found = built_in(name)
        if found is None:
            return False
        if found.name in self._speaking:
            await self._speaking[found.name](rest.strip(), attached)
            return True
        act = self._table.get(found.name)
        if act is not None:
            await act(rest.strip())
        return act is not None
