"""The dialog for a plan that the model presents: the plan as Markdown, and what to do with it."""

from collections.abc import Sequence
from functools import partialmethod

from textual.strip import Strip
from textual.widgets import Input, Static

from odin.core.interaction import Choice, Interaction
from odin.core.op import Answer
from odin.ui.plan_text import shorten_plan_path
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.dialog import RequestDialog, SubmitAnswer
from odin.ui.tui.dialogs.widgets import ChoiceBar, DialogChoice, TextPage
from odin.ui.tui.paint.canvas import Canvas, make_strips

_KEYS = {
    "approve": "approve_plan",
    "approve_new_session": "plan_session",
    "revise": "change_plan",
    "keep_planning": "keep_planning",
}
"""The key of each choice; a further role has only a number."""


class PlanDialog(RequestDialog[None]):
    """Shows the plan and the answers. While `_writing`, the user types what to change."""

    def __init__(self, ask: Interaction, submit: SubmitAnswer) -> None:
        super().__init__(ask.id, submit)
        self._ask = ask
        self._writing = False

    def on_mount(self) -> None:
        self.query_one(TextPage).show(self._paint_plan)
        self.query_one("#line", Input).placeholder = self._ask.form[0].label
        self.show_message()

    # --- appearance ---

    def retitle(self) -> None:
        info = self.odin.info
        path = shorten_plan_path(self._ask.plan.path, info.cwd if info is not None else "/")
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
        return tuple(self._make_answer(number, choice) for number, choice in enumerate(self._ask.choices))

    def _make_answer(self, number: int, choice: Choice) -> DialogChoice:
        key = self.odin.keys.get_label(_KEYS[choice.key]) if choice.key in _KEYS else str(number + 1)
        return DialogChoice(f"pick({number})", key, choice.label, choice.short)

    def _paint_plan(self, canvas: Canvas) -> list[Strip]:
        from odin.ui.tui.paint.markdown import paint_markdown

        return make_strips(paint_markdown(self._ask.plan.text.strip(), canvas))

    # --- keys and clicks ---

    def _find_step_action(self, key: str) -> str:
        keys = self.odin.keys
        if self._writing:
            name = keys.find_action(key, "step")
            return name if name in ("confirm", "back") else self.find_conversation_action(key)
        if len(key) == 1 and key.isdecimal() and 1 <= int(key) <= len(self._ask.choices):
            return f"pick({int(key) - 1})"
        return keys.find_action(key, "plan") or keys.find_action(key, "answers") or self.find_scroll_action(key)

    async def action_pick(self, number: int) -> None:
        choice = self._ask.choices[number]
        if choice.key == "revise":
            self.action_change_plan()
        else:
            await self.send(Answer(self.ask_id, choice.key))

    async def _choose(self, key: str) -> None:
        await self.send(Answer(self.ask_id, key))

    action_approve_plan = partialmethod(_choose, "approve")
    action_plan_session = partialmethod(_choose, "approve_new_session")
    action_keep_planning = partialmethod(_choose, "keep_planning")

    def action_change_plan(self) -> None:
        self._writing = True
        self.show_message()

    def action_back(self) -> None:
        self._writing = False
        self.show_message()

    async def action_confirm(self) -> None:
        comment = self.query_one("#line", Input).value.strip()
        if comment:
            await self.send(Answer(self.ask_id, "revise", comment))
        else:
            self.show_message("Say what to change, or go back.")

    def describe_first_answers(self) -> str:
        return f"{self.odin.keys.get_label('approve_plan')} approves the plan"
