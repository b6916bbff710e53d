"""A line to type in, in a dialog that has keys of its own."""

from collections.abc import Callable

from textual import events
from textual.binding import Binding
from textual.widgets import Input

_EDIT_ACTIONS = {
    key: binding.action
    for binding in Input.BINDINGS
    if isinstance(binding, Binding)
    for key in binding.key.split(",")
    if key != "enter"
}


class LineInput(Input):
    """What changes the line is done in the order of the keys; Textual's bindings are overtaken by letters after them.

    Enter is left to whoever asked for the line. Nothing blinks.
    """

    def on_mount(self) -> None:
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        action = _EDIT_ACTIONS.get(event.key)
        if action is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(action)


class DialogInput(LineInput):
    """The dialog sees its keys first."""

    DEFAULT_CSS = """
    DialogInput { height: 1; border: none; padding: 0; background: $surface; }
    DialogInput:focus { border: none; background-tint: $foreground 0%; }
    """

    def __init__(self, on_key: Callable[[events.Key], bool], placeholder: str, *, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True, select_on_focus=False)
        self._key_filter = on_key

    async def _on_key(self, event: events.Key) -> None:
        if self._key_filter(event):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)
