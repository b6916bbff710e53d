"""The panel at the side: the model, the window, the money, the tasks, the files, the agents and what runs on."""

from textual import events

from odin.ui.tui.panels.panel import Panel, Row
from odin.ui.tui.panels.sections import Sections

ROOM_BESIDE = 130
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
        self.chosen: bool | None = None

    @property
    def wanted(self) -> bool:
        return self.chosen if self.chosen is not None else self.odin.settings.side_panel and self._room

    @property
    def stands(self) -> bool:
        """Whether it stands beside the conversation, always in sight."""
        return self.wanted and self._room

    @property
    def _room(self) -> bool:
        return self.odin.size.width >= ROOM_BESIDE

    def toggle(self) -> None:
        self.chosen = not self.wanted
        self.find_place()

    def find_place(self) -> None:
        """Be where there is room now: beside the conversation, over it, or nowhere."""
        self.display = self.wanted
        self.set_class(not self._room, "-over")
        self.sync()

    def on_resize(self, event: events.Resize) -> None:
        self.find_place()

    def rows(self, width: int) -> list[Row]:
        return Sections(self.facts, self.palette, width, self.odin.agent, self.odin.clock()).rows()
