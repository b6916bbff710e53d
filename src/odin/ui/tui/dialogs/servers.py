"""The MCP servers: their states, and enabling or disabling the manual ones."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.core.event import ServersChanged
from odin.core.event_values import ServerStatus
from odin.core.op import ControlServers
from odin.ui.slash_commands.extensions import SERVER_MARKS, describe_server_state
from odin.ui.terminal import escape_hidden, shorten_home
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import RowContent


class ServersDialog(PickerDialog[ServerStatus]):
    """Enter enables or disables a server. Those that are always on are read-only."""

    KEY_SCOPES = ("servers", "list", "dialog")
    HEADING = "MCP servers"
    EMPTY_TEXT = "No MCP servers. Add one with `odin mcp add NAME COMMAND`, or in .mcp.json."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "switch"
    RELOAD_ON = (ServersChanged,)
    ACTIONS: ClassVar[dict[str, str]] = {
        "enable_server": "enable",
        "disable_server": "disable",
        "reconnect_server": "reconnect",
    }

    # --- the list ---

    async def load(self) -> Sequence[ServerStatus]:
        return (await self.odin.client.get_info()).servers

    def get_filter_text(self, item: ServerStatus) -> str:
        return f"{item.name} {item.transport} {item.state}".casefold()

    def draw(self, item: ServerStatus) -> RowContent:
        colors = self.palette
        styles = {"ready": colors.good, "failed": colors.bad, "connecting": colors.warn}
        line = Text().append(f"{SERVER_MARKS[item.state]} ", styles.get(item.state, colors.dim))
        line.append(escape_hidden(item.name), colors.text)
        return line, ("manual" if item.manual else "auto", escape_hidden(describe_server_state(item)))

    async def describe(self, item: ServerStatus) -> Text:
        colors = self.palette
        text = Text().append(f"{escape_hidden(item.name)}\n\n", colors.strong)
        text.append(f"{escape_hidden(describe_server_state(item))}\n", colors.text)
        facts = {"Server": item.version, "Transport": item.transport, "From": shorten_home(item.source)}
        for label, value in facts.items():
            if value:
                text.append(f"\n{label}\n", colors.dim)
                text.append(f"{escape_hidden(value)}\n", colors.text)
        if not item.manual:
            text.append("\nAlways on. With `manual` in its settings it can be switched here.", colors.dim)
        return text

    async def choose(self, item: ServerStatus) -> None:
        await self._control(ControlServers("enable" if item.state == "disabled" else "disable", (item.name,)))

    async def act(self, name: str, item: ServerStatus | None) -> None:
        if item is not None:
            actions = {"enable_server": "enable", "disable_server": "disable"}
            await self._control(ControlServers(actions.get(name, "reconnect"), (item.name,)))  # pyright: ignore[reportArgumentType]

    async def _control(self, op: ControlServers) -> None:
        await self.odin.client.submit(op)
        await self.reload(self.rows.mark)
