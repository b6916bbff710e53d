"""What all dialogs share: a panel at the bottom, so that the conversation stays in sight, and Esc to close it.

A dialog that opens by itself: keys that were on their way when it appeared must not answer it.

What the dialogs share that stand for a question of the session.
"""

import math
import time
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual import events
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, TextArea

from odin.ui.tui.dialogs.widgets import ChoiceBar, TextPage
from odin.ui.tui.keys import KeyScope, is_typing_key
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import make_palette

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


QUIET_S = 0.3
"""How long nothing must have been pressed after it appeared before a key is meant for it."""


class DebouncedDialog(Dialog[Result]):
    """Until there was a moment of quiet, what is typed goes to where it went before: the prompt that is being written.

    With `keep` false it goes nowhere: the key was meant for a dialog that stood here a moment ago. What closes other
    windows does nothing here: a question is closed by an answer. `_lines` says which lines of the page can be picked.
    """

    KEY_SCOPES = ()

    def __init__(self, *, keep: bool = True) -> None:
        super().__init__()
        self.ready = False
        self._forwards_keys = keep
        self._quiet_from = time.monotonic()
        self._option_lines: dict[int, int] = {}

    def on_mount(self) -> None:
        self._quiet_from = time.monotonic()
        self.set_timer(QUIET_S, self._check_quiet)

    def _check_quiet(self) -> None:
        left = self._quiet_from + QUIET_S - time.monotonic()
        if left > 0.001:
            self.set_timer(left, self._check_quiet)
            return
        self.ready = True
        self.handle_ready()

    def handle_ready(self) -> None:
        """Keys count from now on."""

    def _forward_event(self, event: events.Event) -> None:
        """A mouse on its way is like a key on its way: it was moved for what stood here before."""
        if isinstance(event, events.MouseEvent) and not self.ready:
            self._quiet_from = time.monotonic()
        super()._forward_event(event)

    async def on_key(self, event: events.Key) -> None:
        if self.ready:
            await self.take_key(event)
            return
        event.stop()
        event.prevent_default()
        self._quiet_from = time.monotonic()
        if self._forwards_keys:
            type_into(self._widget_below, event)

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted is never an answer, but it may be for the prompt."""
        if not self.ready and self._forwards_keys:
            event.stop()
            self._quiet_from = time.monotonic()
            self._widget_below.post_message(events.Paste(event.text))

    @property
    def _widget_below(self) -> Widget:
        """What had the keyboard before this dialog appeared."""
        stack = self.odin.screen_stack
        return stack[max(stack.index(self) - 1, 0)].focused or self.odin.composer

    async def take_key(self, event: events.Key) -> None:
        """A key that is meant for this dialog and that no part of it has taken yet."""

    # --- answers by the mouse, once they count ---

    async def _perform(self, name: str) -> None:
        await self.run_action(name)

    async def on_choice_bar_chosen(self, message: ChoiceBar.Chosen) -> None:
        if self.ready:
            await self._perform(message.name)

    async def on_text_page_clicked(self, message: TextPage.Clicked) -> None:
        number = self._option_lines.get(message.number)
        if self.ready and number is not None:
            await self._perform(f"pick({number})")

    # --- what is asked may be long ---

    def find_scroll_action(self, key: str) -> str:
        """How this key scrolls what is asked, or ""."""
        name = self.odin.keys.find_action(key, "answers")
        return name if name.startswith("asked_") else ""

    def action_asked_down(self) -> None:
        self.query_one(TextPage).scroll_down(animate=False)

    def action_asked_up(self) -> None:
        self.query_one(TextPage).scroll_up(animate=False)

    def action_asked_page_down(self) -> None:
        self.query_one(TextPage).scroll_page_down(animate=False)

    def action_asked_page_up(self) -> None:
        self.query_one(TextPage).scroll_page_up(animate=False)

    def action_asked_first(self) -> None:
        self.query_one(TextPage).scroll_home(animate=False)

    def action_asked_last(self) -> None:
        self.query_one(TextPage).scroll_end(animate=False)


def type_into(widget: Widget, event: events.Key) -> None:
    """Let a widget that has not the focus take a key as if it had it, after those it was given before."""
    bound = widget._bindings.key_to_bindings.get(event.key)
    if bound and not event.is_printable:
        widget.call_later(widget.run_action, bound[0].action)
    else:
        widget.post_message(events.Key(event.key, event.character))


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
