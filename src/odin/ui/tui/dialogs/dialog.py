"""What all dialogs share: a panel at the bottom, so that the conversation stays in sight, and Esc to close it."""

from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual import events
from textual.screen import ModalScreen
from textual.widgets import Input, TextArea

from odin.ui.tui.keynames import is_typing_key
from odin.ui.tui.keys import KeyScope

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

Result = TypeVar("Result")

_GLOBAL_ACTIONS = ("leave", "suspend", "redraw")
"""What the keys that work everywhere do in a dialog, too."""


class Dialog(ModalScreen[Result | None], inherit_bindings=False):
    """Gives its result to whoever opened it; None when it was closed without one.

    The parts of a subclass go into a container with the class `panel`. `PLACES` are those of the table of keys that
    hold in it, the strongest first; the names of their keys are actions of the dialog.
    """

    KEY_SCOPES: ClassVar[tuple[KeyScope, ...]] = ("dialog",)
    DEFAULT_CSS = """
    Dialog {
        align: center bottom;
        background: $background 0%;
    }
    Dialog > .panel {
        width: 100%;
        height: auto;
        max-height: 85%;
        padding: 0 1;
        background: $surface;
        border-top: heavy $primary;
    }
    Dialog .title { color: $accent; text-style: bold; }
    Dialog .hint { color: $foreground 60%; }
    """

    @property
    def odin(self) -> "OdinApp":
        """The app this is a dialog of."""
        return cast("OdinApp", self.app)

    def find_key_action(self, key: str) -> str:
        """What this key does here, or "". Where a line is being written, what writes it does nothing else."""
        if is_typing_key(key) and isinstance(self.focused, Input | TextArea):
            return ""
        keys = self.odin.keys
        return next((name for place in self.KEY_SCOPES if (name := keys.find_action(key, place))), "")

    async def on_key(self, event: events.Key) -> None:
        name = self.find_key_action(event.key)
        everywhere = self.odin.keys.find_action(event.key, "everywhere")
        if name or everywhere in _GLOBAL_ACTIONS:
            event.stop()
            event.prevent_default()
            await self.run_action(name or f"app.{everywhere}")

    def action_close(self) -> None:
        self.dismiss(None)
