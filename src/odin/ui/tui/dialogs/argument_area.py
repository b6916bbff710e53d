"""The editor of a permission dialog for the arguments of a call. Its keys are those of the composer."""

from typing import TYPE_CHECKING, cast

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from odin.core.errors import OdinError
from odin.ui.tui.composer.external_text import edit_in_editor

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


class ArgumentsArea(TextArea):
    """Edits one value. With `is_single`, Enter confirms and the composer's newline key breaks the line."""

    is_single = False

    class EditorFailed(Message):
        """The external editor could not be used."""

        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    @property
    def _odin(self) -> "OdinApp":
        return cast("OdinApp", self.app)

    def on_mount(self) -> None:
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        keys = self._odin.keys
        action = keys.find_action(event.key, "composer")
        if self.is_single and keys.find_action(event.key, "step") == "confirm":
            event.prevent_default()
        elif action in ("undo", "redo", "newline", "edit_outside"):
            event.stop()
            event.prevent_default()
            await self.run_action(action)

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    async def action_edit_outside(self) -> None:
        """Edit the text in $EDITOR, as Ctrl+X does in the composer."""
        try:
            text = await edit_in_editor(self._odin, self.text)
        except (OdinError, OSError) as error:
            self.post_message(self.EditorFailed(error.describe() if isinstance(error, OdinError) else str(error)))
            return
        if text != self.text:
            self.replace(text, (0, 0), self.document.end)
            self.move_cursor(self.document.end)
