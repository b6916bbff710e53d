"""A line to type in, in a dialog that has keys of its own."""

from collections.abc import Callable

from textual import events
from textual.widgets import Input


class Field(Input):
    """The dialog sees its keys first."""

    DEFAULT_CSS = """
    Field { height: 1; border: none; padding: 0; background: $surface; }
    Field:focus { border: none; background-tint: $foreground 0%; }
    """

    def __init__(self, on_key: Callable[[events.Key], bool], placeholder: str, *, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True, select_on_focus=False)
        self._on_key_first = on_key
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        if self._on_key_first(event):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)
