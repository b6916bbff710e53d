"""A dialog that opens by itself: keys that were on their way when it appeared must not answer it."""

import time

from textual import events
from textual.widget import Widget

from odin.ui.tui.dialogs.choices import ChoiceBar
from odin.ui.tui.dialogs.dialog import Dialog, Result
from odin.ui.tui.dialogs.page import TextPage

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
