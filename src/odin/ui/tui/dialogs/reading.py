"""Something to read: a few lines, or many to scroll through."""

from collections.abc import Awaitable, Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.core.errors import OdinError
from odin.ui.tui.dialogs.colours import palette_of
from odin.ui.tui.dialogs.hints import Hints
from odin.ui.tui.dialogs.sheet import Sheet, SheetDialog
from odin.ui.tui.paint.foreign import sanitize
from odin.ui.tui.palette import Palette

ROOMY_HEIGHT = 18
"""From so many rows on the conversation stays in sight."""

ReportWriter = Callable[[Palette, int], Awaitable[Text]]
"""Makes the text for these colours and so many columns."""


class ReportDialog(SheetDialog):
    """Its text is asked for when it is shown, and again when the size changes."""

    DEFAULT_CSS = """
    ReportDialog Sheet { height: auto; }
    ReportDialog > .panel { max-height: 100%; }
    ReportDialog #text { width: 100%; height: auto; }
    """

    def __init__(self, head: str, write: ReportWriter) -> None:
        super().__init__()
        self._heading = head
        self._writer = write
        self._hints = Hints()
        self._text = Text()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(self._heading, classes="title", markup=False)
            with Sheet(id="scroll"):
                yield Static("", id="text", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()
        keys = self.odin.keys
        self._hints.show([("copy", keys.label_of("read_copy"), "copy"), ("close", keys.label_of("close"), "close")])

    def on_resize(self) -> None:
        room = self.size.height * (85 if self.size.height >= ROOMY_HEIGHT else 100) // 100
        self.query_one("#scroll").styles.max_height = max(room - 3, 1)
        self.run_worker(self._fill, exclusive=True)

    async def _fill(self) -> None:
        try:
            self._text = await self._writer(palette_of(self), max(self.size.width - 3, 10))
        except OdinError as error:
            self._text = Text(sanitize(error.describe()), palette_of(self).bad)
        self.query_one("#text", Static).update(self._text)

    def action_do(self, name: str) -> None:
        if name == "copy":
            self.action_read_copy()
        else:
            self.action_close()

    @property
    def plain_text(self) -> str:
        return self._text.plain
