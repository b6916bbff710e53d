"""Base classes of the dialogs: panels at the bottom of the screen, so that the conversation stays visible."""

import math
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from odin.core.op import Answer
from odin.ui.terminal import escape_hidden, wrap_words
from odin.ui.tui.card_mode import route_input
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.dialogs.interaction_view import ArgumentsArea
from odin.ui.tui.dialogs.widgets import ChoiceBar, TextPage
from odin.ui.tui.keys import KeyScope, LineInput, is_typing_key, make_scroll_action
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import make_palette
from odin.ui.tui.panels.panel import SHORT_SCREEN, BottomArea, skip_second_styling
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.timers import call_after
from odin.ui.tui.transcript import TranscriptView

Result = TypeVar("Result")
SubmitAnswer = Callable[[Answer, str], Awaitable[str]]

_PARTS = ("#message", "#title", "#label", "#about", "#danger", "#answers", "#hint")
"""The parts of a request, the most important first."""

_EDIT_ROWS = 8

_GLOBAL_ACTIONS = ("leave", "suspend", "redraw")
"""The app-wide keys that also work in dialogs."""

_CONVERSATION_ACTIONS = ("page_up", "page_down", "to_top", "to_end")
"""The app-wide keys that scroll the conversation above a request."""


class Dialog(ModalScreen[Result | None], inherit_bindings=False):
    """Returns its result through the screen callback; None if it was closed without one.

    Subclasses put their widgets into a container with the class `panel`. `KEY_SCOPES` lists the scopes of the key table
    that apply, the most specific first; the names of their keys are actions of the dialog.
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
    def odin(self) -> SessionApp:
        return cast(SessionApp, self.app)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        skip_second_styling(event)

    def find_key_action(self, key: str) -> str:
        """Return the action of a key, or "". Keys that edit text have none while an input has the focus."""
        if is_typing_key(key) and isinstance(self.focused, Input | TextArea):
            return ""
        keys = self.odin.keys
        return next((name for scope in self.KEY_SCOPES if (name := keys.find_action(key, scope))), "")

    async def on_key(self, event: events.Key) -> None:
        name = self.find_key_action(event.key)
        everywhere = self.odin.keys.find_action(event.key, "everywhere")
        if name or everywhere in _GLOBAL_ACTIONS:
            event.stop()
            event.prevent_default()
            await self.run_action(name or f"app.{everywhere}")

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close the dialog. A key that was under way meanwhile must not close the screen below it."""
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def action_close(self) -> None:
        self.dismiss(None)


class RequestPanel(Vertical):
    """The panel of a `RequestDialog`: the conversation ends above it and is scrolled to its end."""

    def __init__(self) -> None:
        super().__init__(classes="panel")

    def on_resize(self) -> None:
        self.reserve_rows()

    def reserve_rows(self) -> None:
        below = cast(RequestDialog[object], self.screen).is_yielding
        cast(SessionApp, self.app).query_one(BottomArea).reserve(self.outer_size.height, self.screen, below=below)

    def on_unmount(self) -> None:
        cast(SessionApp, self.app).query_one(BottomArea).release(self.screen)


class RequestDialog(Dialog[Result]):
    """A dialog that Odin opens by itself: interactions and onboarding.

    The conversation stays in view above it, and the wheel and the app's scroll keys move it.

    What is typed for the composer must not answer it. It takes keys (`ready`) once the user has focused it, by key or
    click, or while the composer is empty and nothing is typed there. Until then it yields: keys go to the widget that
    had the focus before, usually the composer, which stays visible above. A letter that means nothing to it goes there,
    too. Keys before `stray_until` are dropped: they were meant for a dialog that closed a moment ago. There is no key
    to close it: it needs an answer.

    `ask_id` is the id of the session's request, `deadline` when the request times out (on the clock of the app, 0 for
    never), `waiting` the number of requests behind it. `submit` submits an answer and a note for the model (or ""), and
    returns the error message if it is refused, else "". `_option_lines` maps lines of the text page to option numbers.
    """

    KEY_SCOPES = ()
    DEFAULT_CSS = """
    RequestDialog > .panel { max-height: 100%; }
    RequestDialog Input, RequestDialog TextArea { background: $panel; border: none; height: 1; padding: 0; }
    RequestDialog #line, RequestDialog #args { display: none; }
    RequestDialog #message { color: $warning; }
    """

    def __init__(self, ask_id: str = "", submit: SubmitAnswer | None = None) -> None:
        super().__init__()
        self.ask_id = ask_id
        self._submit_answer = submit
        self.ready = False
        self.is_answered = False
        self.is_yielding = False
        self._is_focused = False
        self._is_checking = True
        self._stray_until = float("-inf")
        self._quiet_from = 0.0
        self._waiting_count = 0
        self._deadline = 0.0
        self._is_withdrawn = False
        self._option_lines: dict[int, int] = {}

    def compose(self) -> ComposeResult:
        self.is_yielding = self._composer.is_in_use
        self._composer.completer.close()  # it would be hidden, and have the keys
        with RequestPanel():
            yield Static(id="title", classes="title", markup=False)
            yield TextPage(self.make_canvas, id="about")
            yield Static(id="danger", markup=False)
            yield Static(id="label", markup=False)
            yield LineInput(id="line", compact=True, select_on_focus=False)
            yield ArgumentsArea(id="args", compact=True, soft_wrap=True, tab_behavior="focus", show_line_numbers=False)
            yield Static(id="message", markup=False)
            yield ChoiceBar(id="answers")
            yield Static(id="hint", classes="hint", markup=False)

    def expect(self, *, waiting: int, deadline: float, stray_until: float) -> None:
        """Set what is known of the request before the dialog is shown."""
        self._waiting_count, self._deadline, self._stray_until = waiting, deadline, stray_until

    def on_mount(self) -> None:
        self._quiet_from = self.odin.timing.clock()
        self.odin.query_one(TranscriptView).to_end()
        composer_area = cast(Widget, self._composer.parent)
        self.watch(composer_area, "virtual_size", self._fit_later, init=False)
        self._check_pause()
        if self._deadline:
            self.set_interval(1.0, self.retitle)

    # --- for subclasses ---

    def handle_ready(self) -> None:
        """Called when the dialog starts or stops to accept keys. What names them is shown only in between."""
        self.show_message()

    async def take_key(self, event: events.Key) -> bool:
        """Handle a key that no widget of the dialog has used. False if it means nothing here."""
        name = self._find_step_action(event.key)
        if name:
            await self._perform(name)
        return bool(name)

    def _find_step_action(self, key: str) -> str:
        """Return the action of a key in the current step, or ""."""
        return ""

    def retitle(self) -> None:
        """Update the title after the remaining time or the number of waiting requests changed."""

    async def _perform(self, name: str) -> None:
        if not self.is_answered:
            await self.run_action(name)

    def show_message(self, text: str = "") -> None:
        """Show a message, such as what is wrong with an answer; while typing goes to the prompt, say so."""
        if self.is_yielding:
            text = f"{self.odin.keys.get_label('answer_request')} to answer; what you type goes to the prompt."
        self.query_one("#message", Static).update(escape_hidden(text))
        self.fit()

    def fit(self) -> None:
        """Give the page the rows that the answers leave free; the answers are always visible.

        While it yields, the composer and a row of the conversation are: what does not fit below them is not shown.
        """
        width, height, page = max(self.odin.size.width - 2, 1), self.odin.size.height, self.query_one(TextPage)
        most = height - 1 - self.odin.query_one(BottomArea).count_rows() if self.is_yielding else height
        line, lines, used = self.query_one("#line", Input), page.count_rows(width), 1
        rare = ("hint", "danger") if line.display else ("hint",)
        for part in map(self.query_one, _PARTS):
            if isinstance(part, Static):
                rows = len(wrap_words(str(part.content), width).splitlines())
            else:
                rows = part.count_rows(width) if isinstance(part, ChoiceBar) else min(lines, 1)
            is_wanted = bool(rows) and (part.id not in rare or height >= SHORT_SCREEN)
            part.display = is_wanted and (not self.is_yielding or used + rows <= most)
            used += rows if part.display else 0
        rows = min(self.count_panel_rows(), most) - used + page.display - line.display
        args = self.query_one(ArgumentsArea)
        if args.display:
            tall = min(max(args.document.line_count + 1, 3), max(rows - 2, 2), _EDIT_ROWS)
            args.styles.height = tall
            rows -= tall
        page.styles.height = max(min(lines, rows), min(lines, 2, max(rows, 1)))
        shown = [line for line, number in self._option_lines.items() if number == self.current_option]
        if shown:
            self.call_after_refresh(self._reveal, shown[0], shown[-1])

    def _fit_later(self) -> None:
        """Fit after the next refresh, when the dialog may be gone."""
        self.call_after_refresh(lambda: self.fit() if self.query(TextPage) else None)

    @property
    def current_option(self) -> int:
        """The option that stays in view, or -1."""
        return -1

    def _reveal(self, first: int, last: int) -> None:
        """Scroll these lines into view. Runs after the next refresh, when the dialog may be gone."""
        for page in self.query(TextPage):
            if last >= page.scroll_offset.y + page.size.height:
                page.scroll_to(y=last - page.size.height + 1, animate=False)
            if first < page.scroll_offset.y:
                page.scroll_to(y=first, animate=False)

    def on_resize(self) -> None:
        self.fit()

    async def send(self, answer: Answer, note: str = "") -> None:
        """Submit the answer and close, or say why it is refused. A `note` is a prompt to be sent before it."""
        self.is_answered = True
        error = await self._submit_answer(answer, note) if self._submit_answer is not None else ""
        if error:
            self.is_answered = False
            self.show_message(error)
        elif self.is_current:
            self.dismiss(cast(Result, answer.choice))

    # --- choosing an answer with the arrow keys ---

    def action_next_answer(self) -> None:
        self.query_one(ChoiceBar).move(1)

    def action_previous_answer(self) -> None:
        self.query_one(ChoiceBar).move(-1)

    async def action_take_answer(self) -> None:
        if chosen := self.query_one(ChoiceBar).chosen:
            await self._perform(chosen)
        else:
            self.show_message(f"Choose an answer: {self.describe_first_answers()}.")

    def describe_first_answers(self) -> str:
        return ""

    def count_panel_rows(self) -> int:
        """Return how many rows the panel may take: two thirds of the screen, nearly all of a short one."""
        height = self.odin.size.height
        return height - 1 if height < SHORT_SCREEN else max(height * 2 // 3, SHORT_SCREEN - 1)

    def make_canvas(self, width: int) -> Canvas:
        return Canvas(width, make_palette(self.odin.current_theme), self.odin.settings.diff, self.odin.clock())

    # --- who gets the keys ---

    def _check_pause(self) -> None:
        """Take the keys once nothing was typed for a while, unless the composer is in use."""
        timing = self.odin.timing
        left = max(self._quiet_from + timing.quiet_s, self.odin.typed_at + timing.typing_s) - timing.clock()
        if left > 0.001:
            call_after(self, left, self._check_pause)
            return
        self._is_checking = False
        if not self.ready and not self._composer.is_in_use:
            self._set_ready(True)

    def _set_ready(self, ready: bool) -> None:
        self.ready, self.is_yielding = ready, not ready
        self.handle_ready()
        self.query_one(RequestPanel).reserve_rows()

    def focus_request(self) -> None:
        self._is_focused = True
        self._set_ready(True)

    def yield_keys(self) -> None:
        """Let the composer have the keys until nothing was typed for a while."""
        self.odin.typed_at = self.odin.timing.clock()
        self._is_focused = False
        if not self.is_yielding:
            self._set_ready(False)
        if not self._is_checking:
            self._is_checking = True
            call_after(self, self.odin.timing.typing_s, self._check_pause)

    def _forward_event(self, event: events.Event) -> None:
        """Restart the quiet period on mouse events, too."""
        if isinstance(event, events.MouseEvent) and not self.ready:
            self._quiet_from = self.odin.timing.clock()
        super()._forward_event(event)

    async def on_key(self, event: events.Key) -> None:
        if self.ready and await self.take_key(event):
            pass
        elif self.ready and not event.is_printable:
            return
        elif self.odin.keys.find_action(event.key, "request") and not self._composer.popup.open:
            self.focus_request()
        else:
            self._forward_input(event)
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        """A paste never answers the dialog: it goes to the prompt."""
        event.stop()
        self._forward_input(event)

    def _forward_input(self, event: events.Key | events.Paste) -> None:
        if (now := self.odin.timing.clock()) < self._stray_until:
            self._quiet_from = now
            return
        self.yield_keys()
        route_input(self.odin, event)
        # The widget has no focus: send the key after the events already in its queue.
        is_paste = isinstance(event, events.Paste)
        again = events.Paste(event.text) if is_paste else events.Key(event.key, event.character)
        self._widget_below.post_message(again)

    @property
    def _composer(self) -> Composer:
        return self.odin.query_one(Composer)

    @property
    def _widget_below(self) -> Widget:
        """The widget that had the focus before this dialog appeared."""
        stack = self.odin.screen_stack
        place = stack.index(self) if self in stack else len(stack)
        return stack[max(place - 1, 0)].focused or self._composer

    # --- mouse ---

    async def on_choice_bar_chosen(self, message: ChoiceBar.Chosen) -> None:
        if self.ready:
            await self._perform(message.name)
        else:
            self.focus_request()

    async def on_text_page_clicked(self, message: TextPage.Clicked) -> None:
        number = self._option_lines.get(message.number)
        if not self.ready:
            self.focus_request()
        elif number is not None:
            await self._perform(f"pick({number})")

    # --- scrolling the request and the conversation ---

    def find_scroll_action(self, key: str) -> str:
        """Return the action of a key that scrolls the request or the conversation, or ""."""
        name = self.odin.keys.find_action(key, "answers")
        return name if name.startswith("asked_") else self.find_conversation_action(key)

    def find_conversation_action(self, key: str) -> str:
        """Return the action of a key that scrolls the conversation, or ""."""
        name = self.odin.keys.find_action(key, "everywhere")
        return f"app.{name}" if name in _CONVERSATION_ACTIONS else ""

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if not self._is_over_request(event):
            self.odin.query_one(TranscriptView)._scroll_up_for_pointer(animate=False)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if not self._is_over_request(event):
            self.odin.query_one(TranscriptView)._scroll_down_for_pointer(animate=False)

    def _is_over_request(self, event: events.MouseEvent) -> bool:
        """True if the mouse is on a request that scrolls by itself."""
        return any(
            page.max_scroll_y and page.region.contains_point(event.screen_offset) for page in self.query(TextPage)
        )

    action_asked_down, action_asked_up = (make_scroll_action(TextPage, f"scroll_{to}") for to in ("down", "up"))
    action_asked_page_down = make_scroll_action(TextPage, "scroll_page_down")
    action_asked_page_up = make_scroll_action(TextPage, "scroll_page_up")
    action_asked_first, action_asked_last = (make_scroll_action(TextPage, f"scroll_{to}") for to in ("home", "end"))

    # --- the request ---

    def set_waiting_count(self, count: int) -> None:
        """Set the number of requests waiting behind this one."""
        if count != self._waiting_count:
            self._waiting_count = count
            if self.is_mounted:
                self.retitle()

    def describe_wait(self) -> str:
        """Return the end of the title: how many requests wait behind this one, and the seconds left."""
        text = f" · {self._waiting_count} more waiting" if self._waiting_count else ""
        if self._deadline:
            text += f" · {max(math.ceil(self._deadline - self.odin.timing.clock()), 0)} s left"
        return text

    def withdraw(self) -> None:
        """Close the dialog because the request is settled, but not a screen above it.

        A dialog that is still being mounted closes when it is complete; its mount handlers need its widgets.
        """
        self._is_withdrawn = True
        if self.is_current and self.is_mounted:
            self.dismiss(None)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        if self._is_withdrawn and self.is_current:
            self.dismiss(None)
