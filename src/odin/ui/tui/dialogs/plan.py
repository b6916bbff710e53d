"""The dialog for a plan that the model presents: the plan as Markdown, and what to do with it."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.strip import Strip
from textual.widgets import Input, Static

from odin.core.call_events import PlanAsked
from odin.core.op import AnswerPlan
from odin.ui.plan_text import PlanChoice, list_plan_choices, shorten_plan_path
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.dialog import RequestDialog, RequestPanel, SubmitAnswer
from odin.ui.tui.dialogs.widgets import ChoiceBar, DialogChoice, TextPage
from odin.ui.tui.keys import LineInput
from odin.ui.tui.paint.canvas import Canvas, make_strips

_KEYS = {
    "approve": "approve_plan",
    "approve_new_session": "plan_session",
    "revise": "change_plan",
    "keep_planning": "keep_planning",
}
"""The key of each decision; a further role has only a number."""


class PlanDialog(RequestDialog[None]):
    """Shows the plan and the answers. While `_writing`, the user types what to change."""

    def __init__(self, ask: PlanAsked, submit: SubmitAnswer) -> None:
        super().__init__(ask.ask_id, submit)
        self._ask = ask
        self._choices = list_plan_choices(ask)
        self._writing = False

    def compose(self) -> ComposeResult:
        with RequestPanel():
            yield Static(id="title", classes="title", markup=False)
            yield TextPage(self.make_canvas, id="about")
            yield LineInput(id="line", compact=True, select_on_focus=False, placeholder="What should change?")
            yield Static(id="message", markup=False)
            yield ChoiceBar(id="answers")

    def on_mount(self) -> None:
        self.query_one(TextPage).show(self._paint_plan)
        self.show_message()

    # --- appearance ---

    def retitle(self) -> None:
        info = self.odin.info
        path = shorten_plan_path(self._ask.path, info.cwd if info is not None else "/")
        self.query_one("#title", Static).update(
            f"Plan: {escape_hidden(self._ask.title)} ({escape_hidden(path)}){self.describe_wait()}"
        )

    def show_message(self, text: str = "") -> None:
        line = self.query_one("#line", Input)
        line.display = self._writing
        (line if self._writing else self.query_one(TextPage)).focus()
        self.query_one("#message", Static).update(escape_hidden(text))
        self.query_one(ChoiceBar).offer(self._list_answers() if self.ready else ())
        self.retitle()
        self.fit()

    def _list_answers(self) -> Sequence[DialogChoice]:
        keys = self.odin.keys
        if self._writing:
            return (
                DialogChoice("confirm", keys.get_label("confirm"), "Send"),
                DialogChoice("back", keys.get_label("back"), "Back"),
            )
        return tuple(self._make_answer(number, choice) for number, choice in enumerate(self._choices))

    def _make_answer(self, number: int, choice: PlanChoice) -> DialogChoice:
        first = next(at for at, other in enumerate(self._choices) if other.decision == choice.decision)
        key = self.odin.keys.get_label(_KEYS[choice.decision]) if first == number else str(number + 1)
        return DialogChoice(f"pick({number})", key, choice.label, choice.short)

    def _paint_plan(self, canvas: Canvas) -> list[Strip]:
        from odin.ui.tui.paint.markdown import paint_markdown

        return make_strips(paint_markdown(self._ask.text.strip(), canvas))

    def fit(self) -> None:
        """Give the plan the rows that the answers leave free."""
        width = max(self.odin.size.width - 2, 1)
        used = 1 + max(self.query_one(ChoiceBar).count_rows(width), 1) + self._writing
        used += self.fit_texts(width, "#title", "#message")
        page = self.query_one(TextPage)
        page.styles.height = max(min(page.count_rows(width), self.odin.size.height - 1 - used), 2)

    # --- keys and clicks ---

    def _find_step_action(self, key: str) -> str:
        keys = self.odin.keys
        if self._writing:
            name = keys.find_action(key, "step")
            return name if name in ("confirm", "back") else self.find_conversation_action(key)
        if len(key) == 1 and key.isdecimal() and 1 <= int(key) <= len(self._choices):
            return f"pick({int(key) - 1})"
        return keys.find_action(key, "plan") or keys.find_action(key, "answers") or self.find_scroll_action(key)

    async def action_pick(self, number: int) -> None:
        choice = self._choices[number]
        if choice.decision == "revise":
            self.action_change_plan()
        else:
            await self.send(AnswerPlan(self.ask_id, choice.decision, role=choice.role))

    async def action_approve_plan(self) -> None:
        await self.send(AnswerPlan(self.ask_id, "approve"))

    async def action_plan_session(self) -> None:
        await self.send(AnswerPlan(self.ask_id, "approve_new_session"))

    async def action_keep_planning(self) -> None:
        await self.send(AnswerPlan(self.ask_id, "keep_planning"))

    def action_change_plan(self) -> None:
        self._writing = True
        self.show_message()

    def action_back(self) -> None:
        self._writing = False
        self.show_message()

    async def action_confirm(self) -> None:
        comment = self.query_one("#line", Input).value.strip()
        if comment:
            await self.send(AnswerPlan(self.ask_id, "revise", comment))
        else:
            self.show_message("Say what to change, or go back.")

    def describe_first_answers(self) -> str:
        return f"{self.odin.keys.get_label('approve_plan')} approves the plan"
