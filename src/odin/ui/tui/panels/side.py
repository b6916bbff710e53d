"""The panel at the side: the model, the window, the money, the tasks, the files, the agents and what runs on."""

from textual import events

from odin.ui.tui.panels.panel import Panel, PanelRow
from odin.ui.tui.panels.sections import SideSections

DOCKED_WIDTH = 130
"""Columns from which on the panel stands beside the conversation; with fewer it lies over it."""


class SidePanel(Panel):
    """`chosen` is what the person wants; None shows it where there is room, if the settings say so."""

    DEFAULT_CSS = """
    SidePanel {
        width: 40; max-width: 90%; height: 100%; dock: right; padding: 0 1;
        border-left: solid $primary 30%;
    }
    SidePanel.-over { layer: above; background: $surface; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.user_choice: bool | None = None

    @property
    def is_wanted(self) -> bool:
        return self.user_choice if self.user_choice is not None else self.odin.settings.side_panel and self._has_room

    @property
    def is_docked(self) -> bool:
        """Whether it stands beside the conversation, always in sight."""
        return self.is_wanted and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.odin.size.width >= DOCKED_WIDTH

    def toggle(self) -> None:
        self.user_choice = not self.is_wanted
        self.update_placement()

    def update_placement(self) -> None:
        """Be where there is room now: beside the conversation, over it, or nowhere."""
        self.display = self.is_wanted
        self.set_class(not self._has_room, "-over")
        self.sync()

    def on_resize(self, event: events.Resize) -> None:
        self.update_placement()

    def build_rows(self, width: int) -> list[PanelRow]:
        return SideSections(self.facts, self.palette, width, self.odin.agent, self.odin.clock()).build_rows()
