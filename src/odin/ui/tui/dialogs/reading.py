"""Something to read: a few lines, or many to scroll through."""

from collections.abc import Awaitable, Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.core.errors import OdinError
from odin.ui.tui.dialogs.colours import colours_of
from odin.ui.tui.dialogs.hints import Hints
from odin.ui.tui.dialogs.sheet import Sheet, SheetDialog
from odin.ui.tui.paint.foreign import foreign
from odin.ui.tui.palette import Palette

ROOMY = 18
"""From so many rows on the conversation stays in sight."""

Write = Callable[[Palette, int], Awaitable[Text]]
"""Makes the text for these colours and so many columns."""


class Reading(SheetDialog):
    """Its text is asked for when it is shown, and again when the size changes."""

    DEFAULT_CSS = """
    Reading Sheet { height: auto; }
    Reading > .panel { max-height: 100%; }
    Reading #text { width: 100%; height: auto; }
    """

    def __init__(self, head: str, write: Write) -> None:
        super().__init__()
        self._head = head
        self._write = write
        self._hints = Hints()
        self._text = Text()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(self._head, classes="title", markup=False)
            with Sheet(id="scroll"):
                yield Static("", id="text", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()
        keys = self.odin.keys
        self._hints.show([("copy", keys.shown("read_copy"), "copy"), ("close", keys.shown("close"), "close")])

    def on_resize(self) -> None:
        room = self.size.height * (85 if self.size.height >= ROOMY else 100) // 100
        self.query_one("#scroll").styles.max_height = max(room - 3, 1)
        self.run_worker(self._fill, exclusive=True)

    async def _fill(self) -> None:
        try:
            self._text = await self._write(colours_of(self), max(self.size.width - 3, 10))
        except OdinError as error:
            self._text = Text(foreign(error.sentence()), colours_of(self).bad)
        self.query_one("#text", Static).update(self._text)

    def action_do(self, name: str) -> None:
        if name == "copy":
            self.action_read_copy()
        else:
            self.action_close()

    @property
    def plain(self) -> str:
        return self._text.plain
