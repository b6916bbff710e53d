"""Groups of words of which one each is chosen; a click chooses another."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from odin.ui.tui.dialogs.colours import colours_of


class Tab(NamedTuple):
    name: str
    chosen: bool


class Tabs(Static):
    """A click runs `action_do` of the dialog with the word."""

    DEFAULT_CSS = """
    Tabs { height: auto; width: 100%; link-style: none; link-color: $foreground 70%; margin-bottom: 1; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)

    def show(self, groups: Sequence[Sequence[Tab]]) -> None:
        """What is chosen stands in brackets, so that it is seen without colours, too."""
        colours = colours_of(self)
        line = Text()
        for place, group in enumerate(groups):
            line.append("   " if place else "")
            for tab in group:
                click = Style.from_meta({"@click": f"screen.do({tab.name!r})"})
                word = f"[{tab.name}]" if tab.chosen else f" {tab.name} "
                line.append(word, colours.accent + Style(bold=True) if tab.chosen else colours.dim + click)
        self.update(line)
