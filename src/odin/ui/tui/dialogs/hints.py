"""The line below a dialog: which key does what. A click does the same."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from odin.ui.tui.dialogs.colours import palette_of


class DialogAction(NamedTuple):
    """Something that can be done in a dialog. `name` is that of its key."""

    name: str
    label: str


class Hints(Static):
    """Labels that can be clicked, none broken in two; they run `action_do` of the dialog with the name of the act."""

    DEFAULT_CSS = """
    Hints { height: auto; max-height: 3; width: 100%; link-style: none; link-color: $foreground 70%; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._labels: Sequence[tuple[str, str, str]] = ()
        self._question = ""

    def show(self, labels: Sequence[tuple[str, str, str]], before: str = "") -> None:
        """Triples of an act's name, its key as people write it and what it does."""
        self._labels, self._question = labels, before
        self._show_labels()

    def on_resize(self) -> None:
        self._show_labels()

    def _show_labels(self) -> None:
        colours, room = palette_of(self), self.size.width
        line = Text(self._question, colours.warn)
        used = line.cell_len
        for name, key, label in self._labels:
            click = Style.from_meta({"@click": f"screen.do({name!r})"}) if name else Style()
            words = Text.assemble((key, colours.strong + click), (f" {label}", colours.dim + click))
            if used and room and used + 2 + words.cell_len > room:
                line.append("\n")
                used = 0
            line.append("  " if used else "")
            used += words.cell_len + (2 if used else 0)
            line.append_text(words)
        self.update(line)
