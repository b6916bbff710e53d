"""What the dialogs share that stand for a question of the session."""

import math
import time

from odin.ui.tui.dialogs.guarded import DebouncedDialog
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import make_palette


class RequestDialog(DebouncedDialog[None]):
    """`deadline` is when the question is taken back, by the clock of time.monotonic; 0 when it waits for ever.

    `waiting` is how many other questions wait for this one, `given` whether an answer is on its way.
    """

    DEFAULT_CSS = """
    RequestDialog > .panel { max-height: 100%; }
    RequestDialog Input, RequestDialog TextArea { background: $panel; border: none; height: 1; padding: 0; }
    RequestDialog #said { color: $warning; }
    """

    def __init__(self, ask_id: str, *, waiting: int = 0, deadline: float = 0, keep: bool = True) -> None:
        super().__init__(keep=keep)
        self.ask_id = ask_id
        self.is_answered = False
        self._waiting_count = waiting
        self._deadline = deadline
        self._is_withdrawn = False

    def on_mount(self) -> None:
        if self._deadline:
            self.set_interval(1.0, self.retitle)

    def retitle(self) -> None:
        """Write the title again: the time or the number of those who wait has changed."""

    def set_waiting_count(self, count: int) -> None:
        """So many other questions wait for this one."""
        if count != self._waiting_count:
            self._waiting_count = count
            if self.is_mounted:
                self.retitle()

    def describe_wait(self) -> str:
        """What is behind the title: who else waits, and for how long this does."""
        text = (
            f" · {self._waiting_count} more {'waits' if self._waiting_count == 1 else 'wait'}"
            if self._waiting_count
            else ""
        )
        if self._deadline:
            text += f" · {max(math.ceil(self._deadline - time.monotonic()), 0)} s left"
        return text

    def make_canvas(self, width: int) -> Canvas:
        return Canvas(width, make_palette(self.odin.current_theme), self.odin.settings.diff, self.odin.clock())

    def withdraw(self) -> None:
        """The question is settled. What lies over the dialog is not closed with it.

        One that is still being put together goes when it is whole: its parts would be missed by what they are for.
        """
        self._is_withdrawn = True
        if self.is_current and self.is_mounted:
            self.dismiss(None)

    def on_screen_resume(self) -> None:
        if self._is_withdrawn and self.is_current:
            self.dismiss(None)
