"""The look of the permission dialog: what is asked above, its answers always in sight below."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static, TextArea

from odin.core.event import PermissionAsked
from odin.ui.question.permission import asking
from odin.ui.terminal import folded
from odin.ui.tui.dialogs.asked import AskedDialog
from odin.ui.tui.dialogs.choices import Choice, Choices
from odin.ui.tui.dialogs.field import Line
from odin.ui.tui.dialogs.page import Page, Paint
from odin.ui.tui.dialogs.permission_draft import Editable, Lasting
from odin.ui.tui.dialogs.permission_page import answers, everything, explained, page, stopping
from odin.ui.tui.paint.foreign import foreign

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

Step = Literal["ask", "rule", "no", "note", "edit"]
"""Where the person is: at the question, choosing a rule, writing why not, writing a note, changing the arguments."""

View = Literal["page", "all", "keys"]

_FEWEST = 2
_EDIT_ROWS = 8
_SHORT = 16
"""Rows of a screen on which the hint gives its place to what is asked."""

_ARROWS = {"Down": "↓", "Up": "↑"}
_LABELS = {
    "no": "Why not? The model reads this:",
    "note": "A note for the model, which it reads with the result:",
}


class Arguments(TextArea):
    """Where arguments are changed. With `one` Enter means that it is done and a new line is begun as in the prompt."""

    one = False

    def on_mount(self) -> None:
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        keys = cast("OdinApp", self.app).keys
        if self.one and keys.name(event.key, "step") == "confirm":
            event.prevent_default()
        elif self.one and keys.name(event.key, "composer") == "newline":
            event.stop()
            event.prevent_default()
            self.insert("\n")


class PermissionPanel(AskedDialog):
    """One step at a time, and what is asked above it."""

    def __init__(
        self, ask: PermissionAsked, agent: str, *, waiting: int = 0, deadline: float = 0, keep: bool = True
    ) -> None:
        super().__init__(ask.ask_id, waiting=waiting, deadline=deadline, keep=keep)
        self._asked = ask
        self._ask = ask
        self._agent = agent
        self._step: Step = "ask"
        self._view: View = "page"
        self._rule: Lasting | None = None
        self._form = Editable("", "")

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(id="who", classes="title", markup=False)
            yield Page(self.canvas, id="about")
            yield Static(id="label", markup=False)
            yield Line(id="line", compact=True, select_on_focus=False)
            yield Arguments(id="args", compact=True, soft_wrap=True, tab_behavior="focus", show_line_numbers=False)
            yield Static(id="said", markup=False)
            yield Choices(id="answers")
            yield Static(id="hint", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._go("ask")

    def became_ready(self) -> None:
        self._hint()

    # --- what is shown ---

    def retitle(self) -> None:
        text = "Instead of what was asked:" if self._ask is not self._asked else asking(self._ask, self._agent)
        self.query_one("#who", Static).update(text + self.circumstances())

    def _hint(self) -> None:
        keys = self.odin.keys
        hint = stopping(keys) if self._view == "page" else f"{keys.shown('stop_work')} goes back to the question."
        self.query_one("#hint", Static).update(hint if self.ready and self._step == "ask" else "")

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(foreign(text))
        self._fit()

    def _go(self, step: Step) -> None:
        """Show another step, with what it needs and nothing else."""
        self._step = step
        line, args, about = self.query_one("#line", Input), self.query_one("#args", Arguments), self.query_one(Page)
        line.display = step in ("rule", "no", "note")
        args.display = step == "edit"
        self.query_one("#label", Static).update(self._label())
        self.query_one(Choices).offer(self._choices())
        self._look("page")
        (line if line.display else args if args.display else about).focus()
        self.retitle()
        self._hint()
        self._say("")

    def _label(self) -> str:
        if self._step == "rule" and self._rule is not None:
            return self._rule.label()
        if self._step == "edit":
            return f"{self._form.name.capitalize()}:" if self._form.name else "The arguments, as JSON:"
        return _LABELS.get(self._step, "")

    def _choices(self) -> Sequence[Choice]:
        if self._step == "ask":
            return tuple(one for one in answers(self._ask, self.odin.keys) if one.name in self._offered())
        if self._step == "rule":
            more = (("next_rule", "Another rule"),) if self._rule and len(self._rule.rules) > 1 else ()
            return self._named_choices(("confirm", "Remember it"), ("other", "For how long"), *more)
        if self._step == "edit":
            done = "confirm" if self._form.name else "use_arguments"
            return self._named_choices((done, "Use this"))
        verb, other = ("Deny it", "Allow it with a note") if self._step == "no" else ("Allow it", "Deny it instead")
        both = (("other", other),) if "allow_note" in self._offered() else ()
        return self._named_choices(("confirm", verb), *both)

    def _named_choices(self, *named: tuple[str, str]) -> Sequence[Choice]:
        keys = self.odin.keys
        shown = [(name, keys.shown(name), label) for name, label in (*named, ("back", "Back"))]
        return tuple(Choice(name, _ARROWS.get(key, key), label) for name, key, label in shown)

    def _offered(self) -> set[str]:
        names = {one.name for one in answers(self._ask, self.odin.keys)}
        return names - {"allow_note"} if self._agent else names

    def _look(self, view: View) -> None:
        self._view = view
        paints: dict[str, Paint] = {
            "page": lambda canvas: page(self._ask, canvas),
            "all": lambda canvas: everything(self._ask, canvas),
            "keys": lambda canvas: explained(self._ask, self.odin.keys, canvas),
        }
        self.query_one(Page).show(paints[view])
        self._hint()
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """What is asked gets the rows that the answers leave; the answers are always in sight."""
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        rows = height - 1 if height < _SHORT or self._view != "page" else max(height * 85 // 100, _SHORT - 1)
        hint = self.query_one("#hint", Static)
        hint.display = height >= _SHORT and self._step == "ask"
        used = 1 + hint.display + self.query_one(Choices).rows(width)
        for name in ("#who", "#label", "#said"):
            part = self.query_one(name, Static)
            text = str(part.content)
            part.display = bool(text)
            used += folded(text, width).count("\n") + 1 if text else 0
        args, about = self.query_one("#args", Arguments), self.query_one(Page)
        used += self.query_one("#line", Input).display
        if args.display:
            tall = min(max(args.document.line_count + 1, 3), max(rows - used - _FEWEST, 2), _EDIT_ROWS)
            args.styles.height = tall
            used += tall
        about.styles.height = max(min(about.rows(width), rows - used), min(_FEWEST, max(rows - used, 1)))
