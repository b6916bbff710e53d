"""The look of the permission dialog: what is asked above, its answers always in sight below."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static, TextArea

from odin.core.event import PermissionAsked
from odin.ui.question.permission import format_headline
from odin.ui.terminal import wrap_words
from odin.ui.tui.dialogs.asked import RequestDialog
from odin.ui.tui.dialogs.choices import ChoiceBar, DialogChoice
from odin.ui.tui.dialogs.field import LineInput
from odin.ui.tui.dialogs.page import PagePainter, TextPage
from odin.ui.tui.dialogs.permission_draft import ArgumentsForm, RuleDraft
from odin.ui.tui.dialogs.permission_page import describe_stop, list_answers, paint_details, paint_keys, paint_request
from odin.ui.tui.paint.foreign import sanitize

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

PermissionStep = Literal["ask", "rule", "no", "note", "edit"]
"""Where the person is: at the question, choosing a rule, writing why not, writing a note, changing the arguments."""

PermissionPageName = Literal["page", "all", "keys"]

_MIN_ROWS = 2
_EDIT_ROWS = 8
_SHORT_SCREEN = 16
"""Rows of a screen on which the hint gives its place to what is asked."""

_ARROWS = {"Down": "↓", "Up": "↑"}
_STEP_LABELS = {
    "no": "Why not? The model reads this:",
    "note": "A note for the model, which it reads with the result:",
}


class ArgumentsArea(TextArea):
    """Where arguments are changed. With `one` Enter means that it is done and a new line is begun as in the prompt."""

    is_single = False

    def on_mount(self) -> None:
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        keys = cast("OdinApp", self.app).keys
        if self.is_single and keys.find_action(event.key, "step") == "confirm":
            event.prevent_default()
        elif self.is_single and keys.find_action(event.key, "composer") == "newline":
            event.stop()
            event.prevent_default()
            self.insert("\n")


class PermissionPanel(RequestDialog):
    """One step at a time, and what is asked above it."""

    def __init__(
        self, ask: PermissionAsked, agent: str, *, waiting: int = 0, deadline: float = 0, keep: bool = True
    ) -> None:
        super().__init__(ask.ask_id, waiting=waiting, deadline=deadline, keep=keep)
        self._original = ask
        self._request = ask
        self._agent = agent
        self._step: PermissionStep = "ask"
        self._view: PermissionPageName = "page"
        self._rule: RuleDraft | None = None
        self._form = ArgumentsForm("", "")

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(id="who", classes="title", markup=False)
            yield TextPage(self.make_canvas, id="about")
            yield Static(id="label", markup=False)
            yield LineInput(id="line", compact=True, select_on_focus=False)
            yield ArgumentsArea(id="args", compact=True, soft_wrap=True, tab_behavior="focus", show_line_numbers=False)
            yield Static(id="said", markup=False)
            yield ChoiceBar(id="answers")
            yield Static(id="hint", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._go_to_step("ask")

    def handle_ready(self) -> None:
        self._update_hint()

    # --- what is shown ---

    def retitle(self) -> None:
        text = (
            "Instead of what was asked:"
            if self._request is not self._original
            else format_headline(self._request, self._agent)
        )
        self.query_one("#who", Static).update(text + self.describe_wait())

    def _update_hint(self) -> None:
        keys = self.odin.keys
        hint = (
            describe_stop(keys) if self._view == "page" else f"{keys.label_of('stop_work')} goes back to the question."
        )
        self.query_one("#hint", Static).update(hint if self.ready and self._step == "ask" else "")

    def _show_message(self, text: str) -> None:
        self.query_one("#said", Static).update(sanitize(text))
        self._fit()

    def _go_to_step(self, step: PermissionStep) -> None:
        """Show another step, with what it needs and nothing else."""
        self._step = step
        line, args, about = (
            self.query_one("#line", Input),
            self.query_one("#args", ArgumentsArea),
            self.query_one(TextPage),
        )
        line.display = step in ("rule", "no", "note")
        args.display = step == "edit"
        self.query_one("#label", Static).update(self._make_label())
        self.query_one(ChoiceBar).offer(self._list_choices())
        self._show_page("page")
        (line if line.display else args if args.display else about).focus()
        self.retitle()
        self._update_hint()
        self._show_message("")

    def _make_label(self) -> str:
        if self._step == "rule" and self._rule is not None:
            return self._rule.format_label()
        if self._step == "edit":
            return f"{self._form.name.capitalize()}:" if self._form.name else "The arguments, as JSON:"
        return _STEP_LABELS.get(self._step, "")

    def _list_choices(self) -> Sequence[DialogChoice]:
        if self._step == "ask":
            return tuple(
                one for one in list_answers(self._request, self.odin.keys) if one.name in self._list_answer_names()
            )
        if self._step == "rule":
            more = (("next_rule", "Another rule"),) if self._rule and len(self._rule.rules) > 1 else ()
            return self._make_choices(("confirm", "Remember it"), ("other", "For how long"), *more)
        if self._step == "edit":
            done = "confirm" if self._form.name else "use_arguments"
            return self._make_choices((done, "Use this"))
        verb, other = ("Deny it", "Allow it with a note") if self._step == "no" else ("Allow it", "Deny it instead")
        both = (("other", other),) if "allow_note" in self._list_answer_names() else ()
        return self._make_choices(("confirm", verb), *both)

    def _make_choices(self, *named: tuple[str, str]) -> Sequence[DialogChoice]:
        keys = self.odin.keys
        shown = [(name, keys.label_of(name), label) for name, label in (*named, ("back", "Back"))]
        return tuple(DialogChoice(name, _ARROWS.get(key, key), label) for name, key, label in shown)

    def _list_answer_names(self) -> set[str]:
        names = {one.name for one in list_answers(self._request, self.odin.keys)}
        return names - {"allow_note"} if self._agent else names

    def _show_page(self, view: PermissionPageName) -> None:
        self._view = view
        paints: dict[str, PagePainter] = {
            "page": lambda canvas: paint_request(self._request, canvas),
            "all": lambda canvas: paint_details(self._request, canvas),
            "keys": lambda canvas: paint_keys(self._request, self.odin.keys, canvas),
        }
        self.query_one(TextPage).show(paints[view])
        self._update_hint()
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """What is asked gets the rows that the answers leave; the answers are always in sight."""
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        rows = (
            height - 1 if height < _SHORT_SCREEN or self._view != "page" else max(height * 85 // 100, _SHORT_SCREEN - 1)
        )
        hint = self.query_one("#hint", Static)
        hint.display = height >= _SHORT_SCREEN and self._step == "ask"
        used = 1 + hint.display + self.query_one(ChoiceBar).count_rows(width)
        for name in ("#who", "#label", "#said"):
            part = self.query_one(name, Static)
            text = str(part.content)
            part.display = bool(text)
            used += wrap_words(text, width).count("\n") + 1 if text else 0
        args, about = self.query_one("#args", ArgumentsArea), self.query_one(TextPage)
        used += self.query_one("#line", Input).display
        if args.display:
            tall = min(max(args.document.line_count + 1, 3), max(rows - used - _MIN_ROWS, 2), _EDIT_ROWS)
            args.styles.height = tall
            used += tall
        about.styles.height = max(min(about.count_rows(width), rows - used), min(_MIN_ROWS, max(rows - used, 1)))
