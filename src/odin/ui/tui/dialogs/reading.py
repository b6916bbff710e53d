"""Something to read: a few lines, or many to scroll through."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from odin.core.errors import OdinError
from odin.ui.tui.dialogs.colours import colours_of
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.hints import Hints
from odin.ui.tui.palette import Palette

ROOMY = 18
"""From so many rows on the conversation stays in sight."""

Write = Callable[[Palette, int], Awaitable[Text]]
"""Makes the text for these colours and so many columns."""


class Reading(Dialog[str]):
    """Its text is asked for when it is shown, and again when the size changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,enter", "close", show=False),
        Binding("y", "copy", show=False),
        Binding("j,down", "step(1)", show=False),
        Binding("k,up", "step(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home,g", "edge(0)", show=False),
        Binding("end,G", "edge(1)", show=False),
    ]
    DEFAULT_CSS = """
    Reading #scroll { height: auto; scrollbar-size-vertical: 1; background: $surface; }
    Reading #scroll { scrollbar-background: $surface; scrollbar-background-hover: $surface; }
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
            with VerticalScroll(id="scroll"):
                yield Static("", id="text", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()
        self._hints.show([("copy", "y", "copy"), ("close", "Esc", "close")])

    def on_resize(self) -> None:
        room = self.size.height * (85 if self.size.height >= ROOMY else 100) // 100
        self.query_one("#scroll").styles.max_height = max(room - 3, 1)
        self.run_worker(self._fill, exclusive=True)

    async def _fill(self) -> None:
        try:
            self._text = await self._write(colours_of(self), max(self.size.width - 3, 10))
        except OdinError as error:
            self._text = Text(error.sentence(), colours_of(self).bad)
        self.query_one("#text", Static).update(self._text)

    def action_do(self, name: str) -> None:
        if name == "copy":
            self.action_copy()
        else:
            self.action_close()

    def action_copy(self) -> None:
        self.odin.copy_to_clipboard(self._text.plain)
        self.odin.tell("Copied.")

    def action_step(self, by: int) -> None:
        self.query_one("#scroll").scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        scroll = self.query_one("#scroll")
        scroll.scroll_relative(y=by * max(scroll.size.height - 1, 1), animate=False)

    def action_edge(self, end: int) -> None:
        scroll = self.query_one("#scroll")
        if end:
            scroll.scroll_end(animate=False)
        else:
            scroll.scroll_home(animate=False)
