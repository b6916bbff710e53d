"""Groups of words of which one each is chosen; a click chooses another."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from odin.ui.tui.dialogs.colours import palette_of


class TabLabel(NamedTuple):
    name: str
    is_selected: bool


class TabBar(Static):
    """A click runs `action_do` of the dialog with the word."""

    DEFAULT_CSS = """
    TabBar { height: auto; width: 100%; link-style: none; link-color: $foreground 70%; margin-bottom: 1; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)

    def show(self, groups: Sequence[Sequence[TabLabel]]) -> None:
        """What is chosen stands in brackets, so that it is seen without colours, too."""
        colours = palette_of(self)
        line = Text()
        for place, group in enumerate(groups):
            line.append("   " if place else "")
            for tab in group:
                click = Style.from_meta({"@click": f"screen.do({tab.name!r})"})
                word = f"[{tab.name}]" if tab.is_selected else f" {tab.name} "
                line.append(word, colours.accent + Style(bold=True) if tab.is_selected else colours.dim + click)
        self.update(line)
