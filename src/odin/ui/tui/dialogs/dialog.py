"""What all dialogs share: a panel at the bottom, so that the conversation stays in sight, and Esc to close it."""

from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

Result = TypeVar("Result")

_STILL = ("leave", "suspend", "redraw")
"""What the keys that work everywhere do in a dialog, too."""


class Dialog(ModalScreen[Result | None]):
    """Gives its result to whoever opened it; None when it was closed without one.

    The parts of a subclass go into a container with the class `panel`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close", show=False)]
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

    async def on_key(self, event: events.Key) -> None:
        name = self.odin.keys.name(event.key, "everywhere")
        if name in _STILL:
            event.stop()
            await self.run_action(f"app.{name}")

    def action_close(self) -> None:
        self.dismiss(None)
