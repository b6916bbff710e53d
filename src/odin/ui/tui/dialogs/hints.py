"""The line below a dialog: which key does what. A click does the same."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from odin.ui.tui.dialogs.colours import colours_of


class Act(NamedTuple):
    """Something that can be done in a dialog. `keys` work everywhere in it, `letters` where nothing is being typed."""

    name: str
    label: str
    keys: tuple[str, ...] = ()
    letters: tuple[str, ...] = ()

    def answers(self, key: str, *, typing: bool) -> bool:
        return key in self.keys or (not typing and key in self.letters)


class Hints(Static):
    """Labels that can be clicked; they run `action_do` of the dialog with the name of the act."""

    DEFAULT_CSS = """
    Hints { height: auto; max-height: 2; width: 100%; link-style: none; link-color: $foreground 70%; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)

    def show(self, labels: Sequence[tuple[str, str, str]], before: str = "") -> None:
        """Triples of an act's name, its key as people write it and what it does."""
        colours = colours_of(self)
        line = Text(f"{before}  " if before else "", colours.warn)
        for place, (name, key, label) in enumerate(labels):
            click = Style.from_meta({"@click": f"screen.do({name!r})"}) if name else Style()
            line.append("  " if place else "")
            line.append(key, colours.strong + click)
            line.append(f" {label}", colours.dim + click)
        self.update(line)
