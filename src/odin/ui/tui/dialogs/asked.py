"""What the dialogs share that stand for a question of the session."""

import math
import time

from odin.ui.tui.dialogs.guarded import Guarded
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import palette


class AskedDialog(Guarded[None]):
    """`deadline` is when the question is taken back, by the clock of time.monotonic; 0 when it waits for ever.

    `waiting` is how many other questions wait for this one, `given` whether an answer is on its way.
    """

    DEFAULT_CSS = """
    AskedDialog > .panel { max-height: 100%; }
    AskedDialog Input, AskedDialog TextArea { background: $panel; border: none; height: 1; padding: 0; }
    AskedDialog #said { color: $warning; }
    """

    def __init__(self, ask_id: str, *, waiting: int = 0, deadline: float = 0, keep: bool = True) -> None:
        super().__init__(keep=keep)
        self.ask_id = ask_id
        self.given = False
        self._waiting = waiting
        self._deadline = deadline
        self._gone = False

    def on_mount(self) -> None:
        if self._deadline:
            self.set_interval(1.0, self.retitle)

    def retitle(self) -> None:
        """Write the title again: the time or the number of those who wait has changed."""

    def wait_behind(self, count: int) -> None:
        """So many other questions wait for this one."""
        if count != self._waiting:
            self._waiting = count
            if self.is_mounted:
                self.retitle()

    def circumstances(self) -> str:
        """What is behind the title: who else waits, and for how long this does."""
        text = f" · {self._waiting} more {'waits' if self._waiting == 1 else 'wait'}" if self._waiting else ""
        if self._deadline:
            text += f" · {max(math.ceil(self._deadline - time.monotonic()), 0)} s left"
        return text

    def canvas(self, width: int) -> Canvas:
        return Canvas(width, palette(self.odin.current_theme), self.odin.settings.diff, self.odin.clock())

    def take_away(self) -> None:
        """The question is settled. What lies over the dialog is not closed with it.

        One that is still being put together goes when it is whole: its parts would be missed by what they are for.
        """
        self._gone = True
        if self.is_current and self.is_mounted:
            self.dismiss(None)

    def on_screen_resume(self) -> None:
        if self._gone and self.is_current:
            self.dismiss(None)
