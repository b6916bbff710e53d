"""The dialog in which a person allows a call or not: nothing is chosen when it opens, and nothing by accident."""

import time
from collections.abc import Awaitable, Callable

from textual import events
from textual.widgets import Input, Static

from odin.core.errors import UsageError
from odin.core.event import PermissionAsked
from odin.core.op import AnswerPermission, Interrupt
from odin.core.rule import RememberScope
from odin.ui.question.editing import summarize_change
from odin.ui.tui.dialogs.choices import ChoiceBar
from odin.ui.tui.dialogs.page import TextPage
from odin.ui.tui.dialogs.permission_draft import InvalidJson, make_form, make_rule_draft, parse_form, replace_arguments
from odin.ui.tui.dialogs.permission_page import paint_required
from odin.ui.tui.dialogs.permission_panel import ArgumentsArea, PermissionPanel

BURST_S = 0.25
"""Keys that follow each other faster belong to words somebody types, not to an answer."""

_ALLOW_ACTIONS = ("allow_once", "allow_session", "allow_project", "allow_everywhere", "allow_note")

SubmitAnswer = Callable[[AnswerPermission, str], Awaitable[str]]
"""Hands an answer in, with a note for the model or ""; gives a sentence when it was refused."""


class PermissionDialog(PermissionPanel):
    """`deadline` is when the question is taken back, by the clock of time.monotonic; 0 when it waits for ever."""

    def __init__(
        self,
        ask: PermissionAsked,
        agent: str,
        give: SubmitAnswer,
        *,
        waiting: int = 0,
        deadline: float = 0,
        keep: bool = True,
    ) -> None:
        super().__init__(ask, agent, waiting=waiting, deadline=deadline, keep=keep)
        self._submit_answer = give
        self._stray_key_at = 0.0

    # --- keys and clicks ---

    async def take_key(self, event: events.Key) -> None:
        name = self._find_step_action(event.key)
        if not name:
            self._stray_key_at = time.monotonic()
            return
        event.stop()
        event.prevent_default()
        if self._is_hurried and (name in _ALLOW_ACTIONS or (name == "confirm" and self._step in ("rule", "note"))):
            self._show_message("That came in a burst of keys. Press it once more, by itself.")
            self._stray_key_at = time.monotonic()
            return
        await self._perform(name)

    @property
    def _is_hurried(self) -> bool:
        """Whether a key comes right behind one that means nothing here, or behind the one that led here."""
        return time.monotonic() - self._stray_key_at < BURST_S

    def _find_step_action(self, key: str) -> str:
        """What this key means in this step, or ""."""
        keys = self.odin.keys
        if self._step == "ask":
            name = keys.find_action(key, "permission") or keys.find_action(key, "answers")
            return "back" if name == "stop_work" and self._view != "page" else name
        name = keys.find_action(key, "step")
        if self._step == "edit":
            done = name == "use_arguments" or (name == "confirm" and self._form.name)
            return "confirm" if done else name if name == "back" else ""
        turns = ("next_rule", "previous_rule") if self._step == "rule" else ()
        return name if name in ("confirm", "other", "back", *turns) else ""

    async def _perform(self, name: str) -> None:
        if not self.is_answered:
            await self.run_action(name)

    def action_next_answer(self) -> None:
        self.query_one(ChoiceBar).move(1)

    def action_previous_answer(self) -> None:
        self.query_one(ChoiceBar).move(-1)

    async def action_take_answer(self) -> None:
        chosen = self.query_one(ChoiceBar).chosen
        if chosen:
            await self._perform(chosen)
        else:
            keys = self.odin.keys
            self._show_message(
                f"Choose an answer: {keys.label_of('allow_once')} allows it once, {keys.label_of('deny')} denies it."
            )

    # --- the answers ---

    async def action_allow_once(self) -> None:
        if self._require_seen():
            await self._answer(allow=True)

    def _require_seen(self) -> bool:
        """Whether all that is asked was on the screen; what was not is shown instead of allowing it."""
        page = self.query_one(TextPage)
        rows = (
            len(paint_required(self._request, self.make_canvas(max(page.size.width - 1, 1))))
            if self._view == "page"
            else 0
        )
        if page.seen_rows >= rows:
            return True
        left = rows - page.seen_rows
        page.scroll_page_down(animate=False)
        lines = "1 more line" if left == 1 else f"{left} more lines"
        self._show_message(f"It goes on for {lines}. Look at all of it before you allow it.")
        return False

    async def action_deny(self) -> None:
        await self._answer(allow=False)

    async def action_stop_work(self) -> None:
        """A sub-agent's answer would stop that agent alone, and its parent would go on."""
        await self._send(AnswerPermission(self.ask_id, allow=False, interrupt=True))
        if self.is_answered and self._agent:
            await self.odin.submit(Interrupt())

    def action_allow_session(self) -> None:
        self._remember(allow=True, scope="session")

    def action_allow_project(self) -> None:
        self._remember(allow=True, scope="project")

    def action_allow_everywhere(self) -> None:
        self._remember(allow=True, scope="user")

    def action_deny_always(self) -> None:
        self._remember(allow=False, scope="session")

    def _remember(self, *, allow: bool, scope: RememberScope) -> None:
        if allow and not self._require_seen():
            return
        rule = make_rule_draft(self._request, allow=allow, scope=scope)
        if not rule.rules:
            once = (
                "It can be allowed once or denied."
                if self._request.unsandboxed
                else "There is no rule that remembers this."
            )
            self._show_message(once)
            return
        self._rule = rule
        self._set_line(rule.text)
        self._go_to_step("rule")
        self._stray_key_at = time.monotonic()

    def action_deny_words(self) -> None:
        allowing = self.query_one(ChoiceBar).chosen.startswith("allow")
        self._set_line("")
        self._go_to_step("note" if allowing and "allow_note" in self._list_answer_names() else "no")

    def action_allow_note(self) -> None:
        if "allow_note" in self._list_answer_names() and self._require_seen():
            self._set_line("")
            self._go_to_step("note")

    def action_edit_call(self) -> None:
        if "edit_call" not in self._list_answer_names():
            self._show_message("The arguments cannot be changed here.")
            return
        self._form = make_form(self._request.args)
        area = self.query_one("#args", ArgumentsArea)
        area.is_single = bool(self._form.name)
        area.text = self._form.text
        area.move_cursor(area.document.end)
        self._go_to_step("edit")

    def action_show_call(self) -> None:
        self._show_page("page" if self._view == "all" else "all")

    def action_explain_keys(self) -> None:
        self._show_page("page" if self._view == "keys" else "keys")

    # --- in the steps ---

    def _set_line(self, text: str) -> None:
        line = self.query_one("#line", Input)
        line.value = text
        line.cursor_position = len(text)

    def action_back(self) -> None:
        self._go_to_step("ask")

    def action_other(self) -> None:
        """The other thing this step can be about: how long, or yes instead of no."""
        if self._step == "rule" and self._rule is not None:
            self._rule.switch_scope()
            self.query_one("#label", Static).update(self._rule.format_label())
            self._fit()
        elif "allow_note" in self._list_answer_names():
            self._go_to_step("note" if self._step == "no" else "no")

    def action_next_rule(self) -> None:
        self._switch_rule(1)

    def action_previous_rule(self) -> None:
        self._switch_rule(-1)

    def _switch_rule(self, by: int) -> None:
        if self._rule is not None:
            self._set_line(self._rule.switch(by))
            self.query_one("#label", Static).update(self._rule.format_label())

    async def action_use_arguments(self) -> None:
        await self.action_confirm()

    async def action_confirm(self) -> None:
        words = self.query_one("#line", Input).value.strip()
        if self._step == "edit":
            self._apply_edit()
        elif self._step == "no":
            await self._send(AnswerPermission(self.ask_id, allow=False, reason=words))
        elif self._step == "note":
            await self._answer(allow=True, note=words)
        elif self._rule is not None and not words:
            self._show_message(f"The rule is empty. Write one, or go back with {self.odin.keys.label_of('back')}.")
        elif self._rule is not None:
            await self._send(
                AnswerPermission(self.ask_id, allow=self._rule.allow, rule=words, remember=self._rule.scope)
            )

    def _apply_edit(self) -> None:
        """What was changed is shown with nothing hidden before it is allowed."""
        area = self.query_one("#args", ArgumentsArea)
        try:
            args = parse_form(self._request.args, self._form, area.text)
        except UsageError as error:
            if isinstance(error, InvalidJson):
                area.move_cursor(error.place)
            self._show_message(error.describe())
            return
        self._request = self._original if args == self._original.args else replace_arguments(self._original, args)
        self._go_to_step("ask")
        if self._request is self._original:
            self._show_message("Nothing was changed.")

    async def _answer(self, *, allow: bool, note: str = "") -> None:
        if allow and self._request is not self._original:
            args = self._request.args
            answer = AnswerPermission(
                self.ask_id, allow=True, args=args, summary=summarize_change(self._original.args, args)
            )
        else:
            answer = AnswerPermission(self.ask_id, allow=allow)
        await self._send(answer, note)

    async def _send(self, answer: AnswerPermission, note: str = "") -> None:
        self.is_answered = True
        refused = await self._submit_answer(answer, note)
        if refused:
            self.is_answered = False
            self._show_message(refused)
        elif self.is_current:
            self.dismiss(None)
