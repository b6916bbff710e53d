"""The permission dialog: the request on top, its answers always visible below.

No answer is selected when it opens, so that a stray Enter allows nothing.
"""

import time
from collections.abc import Sequence
from functools import partialmethod
from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.widgets import Input, Static

from odin.core.errors import UsageError
from odin.core.format import pluralize
from odin.core.interaction import Interaction
from odin.core.op import Answer, Interrupt
from odin.core.policy import RememberScope
from odin.ui.permission_text import ArgumentForm, InvalidJson, format_headline, summarize_change
from odin.ui.tui.dialogs.dialog import SHORT_SCREEN, RequestDialog, RequestPanel, SubmitAnswer
from odin.ui.tui.dialogs.permission_view import (
    ArgumentsArea,
    RuleDraft,
    describe_stop,
    format_danger,
    list_answers,
    list_usual_answers,
    make_rule_draft,
    paint_details,
    paint_keys,
    paint_request,
    paint_required,
    replace_arguments,
)
from odin.ui.tui.dialogs.widgets import ChoiceBar, DialogChoice, PagePainter, TextPage
from odin.ui.tui.keys import LineInput
from odin.ui.tui.paint.sanitize import sanitize
from odin.ui.tui.palette import make_palette

PermissionStep = Literal["ask", "rule", "no", "note", "edit"]
"""The request itself, choosing a rule, writing a reason to deny, writing a note, or editing the arguments."""

PermissionPageName = Literal["page", "all", "keys"]

_MIN_ROWS = 2
_EDIT_ROWS = 8

_ARROWS = {"Down": "↓", "Up": "↑"}
_STEP_LABELS = {"no": "Reason for the model:", "note": "Note for the model, sent with the result:"}


_ALLOW_ACTIONS = ("allow_once", "allow_mode", "allow_session", "allow_project", "allow_everywhere", "allow_note")
_LOOKING_ACTIONS = ("asked_", "more_answers", "show_call", "explain_keys")
"""Actions (or the start of their names) that answer nothing: their letters may be the start of a word."""


class PermissionDialog(RequestDialog[None]):
    """Shows one step at a time below the request. `_request` is not `_original` after the arguments were edited."""

    def __init__(self, ask: Interaction, submit: SubmitAnswer) -> None:
        super().__init__(ask.id, submit)
        self._stray_key_at = 0.0
        self._original = ask
        self._request = ask
        self._agent = ask.agent
        self._step: PermissionStep = "ask"
        self._view: PermissionPageName = "page"
        self._rule: RuleDraft | None = None
        self._form = ArgumentForm(ask.permission.args)
        self._shows_all_answers = False

    def compose(self) -> ComposeResult:
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

    def on_mount(self) -> None:
        self._go_to_step("ask")

    def handle_ready(self) -> None:
        self._update_hint()

    # --- appearance ---

    def retitle(self) -> None:
        text = format_headline(self._request)
        if self._request is not self._original:
            text = f"Edited call: {text}"
        self.query_one("#title", Static).update(text + self.describe_wait())
        palette = make_palette(self.odin.current_theme)
        danger = format_danger(self._request, palette) if self._view == "page" and self._step != "edit" else ""
        self.query_one("#danger", Static).update(danger)

    def _update_hint(self) -> None:
        keys = self.odin.keys
        hint = (
            describe_stop(keys) if self._view == "page" else f"{keys.get_label('stop_work')} goes back to the request."
        )
        self.query_one("#hint", Static).update(hint if self.ready and self._step == "ask" else "")

    def show_message(self, text: str = "") -> None:
        self.query_one("#message", Static).update(sanitize(text))
        self.fit()

    def _go_to_step(self, step: PermissionStep) -> None:
        """Show another step and only the widgets it needs."""
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
        self.show_message("")

    def _make_label(self) -> str:
        if self._step == "rule" and self._rule is not None:
            return self._rule.format_label()
        if self._step == "edit":
            return self._form.format_label()
        return _STEP_LABELS.get(self._step, "")

    def _list_choices(self) -> Sequence[DialogChoice]:
        if self._step == "ask":
            keys, names = self.odin.keys, self._list_answer_names()
            answers = [one for one in list_answers(self._request, keys) if one.name in names]
            if not self._shows_all_answers:
                return list_usual_answers(answers, keys)
            return *answers, DialogChoice("more_answers", keys.get_label("more_answers"), "Fewer", "Fewer")
        if self._step == "rule":
            more = (("next_rule", "Another rule"),) if self._rule and len(self._rule.rules) > 1 else ()
            return self._make_choices(("confirm", "Save rule"), ("other", "Change scope"), *more)
        if self._step == "edit":
            done = "confirm" if self._form.is_single_line else "use_arguments"
            more = (("other", "Next argument"),) if self._form.has_several else ()
            return self._make_choices((done, "Use this"), *more, ("edit_outside", "Editor"))
        verb, other = ("Deny", "Allow with a note instead") if self._step == "no" else ("Allow", "Deny instead")
        switch = (("other", other),) if "allow_note" in self._list_answer_names() else ()
        return self._make_choices(("confirm", verb), *switch)

    def _make_choices(self, *named: tuple[str, str]) -> Sequence[DialogChoice]:
        keys = self.odin.keys
        shown = [(name, keys.get_label(name), label) for name, label in (*named, ("back", "Back"))]
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
        self.retitle()
        self._update_hint()
        self.fit()

    def fit(self) -> None:
        """Give the request the rows that the answers leave free; the answers are always visible."""
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        rows = self.count_panel_rows() if self._view == "page" else height - 1
        hint = self.query_one("#hint", Static)
        hint.display = height >= SHORT_SCREEN and self._step == "ask"
        used = 1 + hint.display + self.query_one(ChoiceBar).count_rows(width)
        used += self.fit_texts(width, "#title", "#danger", "#label", "#message")
        args, about = self.query_one("#args", ArgumentsArea), self.query_one(TextPage)
        used += self.query_one("#line", Input).display
        if args.display:
            tall = min(max(args.document.line_count + 1, 3), max(rows - used - _MIN_ROWS, 2), _EDIT_ROWS)
            args.styles.height = tall
            used += tall
        lines = about.count_rows(width)
        about.display = bool(lines)
        about.styles.height = max(min(lines, rows - used), min(lines, _MIN_ROWS, max(rows - used, 1)))

    # --- keys and clicks ---

    async def take_key(self, event: events.Key) -> None:
        name = self._find_step_action(event.key)
        if not name:
            self._stray_key_at = time.monotonic()
            return
        event.stop()
        event.prevent_default()
        # Shortly after a key without meaning here, or after the key that opened this step, an answer is not meant.
        if time.monotonic() - self._stray_key_at < self.odin.timing.key_debounce_s and (
            name in _ALLOW_ACTIONS or (name == "confirm" and self._step in ("rule", "note"))
        ):
            self.show_message("Ignored a key typed in a burst. Press it again.")
            self._stray_key_at = time.monotonic()
            return
        if event.is_printable and name.startswith(_LOOKING_ACTIONS):
            self._stray_key_at = time.monotonic()
        await self._perform(name)

    def _find_step_action(self, key: str) -> str:
        """Return the action of a key in this step, or ""."""
        keys = self.odin.keys
        if self._step == "ask":
            name = (
                keys.find_action(key, "permission") or keys.find_action(key, "answers") or self.find_scroll_action(key)
            )
            return "back" if name == "stop_work" and self._view != "page" else name
        name = keys.find_action(key, "step") or self.find_conversation_action(key)
        if name.startswith("app."):
            return name
        if self._step == "edit":
            done = name == "use_arguments" or (name == "confirm" and self._form.is_single_line)
            return "confirm" if done else name if name in ("back", "other") else ""
        rule_keys = ("next_rule", "previous_rule") if self._step == "rule" else ()
        return name if name in ("confirm", "other", "back", *rule_keys) else ""

    def describe_first_answers(self) -> str:
        return f"{self.odin.keys.get_label('allow_once')} allows once, {self.odin.keys.get_label('deny')} denies"

    # --- the answers ---

    async def action_allow_once(self) -> None:
        if self._require_seen():
            await self._answer(allow=True)

    def _require_seen(self) -> bool:
        """True if the whole request was on the screen; if not, scroll down instead of allowing it."""
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
        lines = pluralize(left, "more line")
        self.show_message(f"{lines} below. Read the whole request before allowing it.")
        return False

    async def action_deny(self) -> None:
        await self._answer(allow=False)

    async def action_stop_work(self) -> None:
        """Deny and interrupt. A main agent that waits for this sub-agent would otherwise continue, so stop it, too."""
        await self.send(Answer(self.ask_id, "stop"))
        status = self.odin.facts.agents.all.get(self._agent)
        is_delegated = status is not None and bool(status.task_id)
        if self.is_answered and self._agent and not is_delegated:
            await self.odin.submit(Interrupt())

    async def action_allow_mode(self) -> None:
        if "allow_mode" not in self._list_answer_names():
            self.show_message("No permission mode allows this call without asking.")
        elif self._require_seen():
            await self.send(Answer(self.ask_id, "allow_mode"))

    def action_more_answers(self) -> None:
        self._shows_all_answers = not self._shows_all_answers
        self.query_one(ChoiceBar).offer(self._list_choices())
        self.fit()

    def _remember(self, *, allow: bool, scope: RememberScope) -> None:
        if allow and not self._require_seen():
            return
        rule = make_rule_draft(self._request, allow=allow, scope=scope)
        if not rule.rules:
            reason = (
                "This can only be allowed once or denied."
                if self._request.permission.unsandboxed
                else "No rule can cover this call."
            )
            self.show_message(reason)
            return
        self._rule = rule
        self._set_line(rule.text)
        self._go_to_step("rule")
        self._stray_key_at = time.monotonic()

    action_allow_session = partialmethod(_remember, allow=True, scope="session")
    action_allow_project = partialmethod(_remember, allow=True, scope="project")
    action_allow_everywhere = partialmethod(_remember, allow=True, scope="user")
    action_deny_always = partialmethod(_remember, allow=False, scope="project")

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
            self.show_message("The arguments of this call cannot be edited.")
            return
        self._form = ArgumentForm(self._request.permission.args)
        self._show_argument()

    def _show_argument(self) -> None:
        area = self.query_one("#args", ArgumentsArea)
        area.is_single = self._form.is_single_line
        area.load_text(self._form.text)
        area.move_cursor(area.document.end)
        self._go_to_step("edit")

    def _store_argument(self) -> bool:
        """Take the edited text into the form; show why it is not valid otherwise."""
        area = self.query_one("#args", ArgumentsArea)
        try:
            self._form.store(area.text)
        except UsageError as error:
            if isinstance(error, InvalidJson):
                area.move_cursor(error.place)
            self.show_message(error.describe())
            return False
        return True

    async def action_edit_outside(self) -> None:
        await self.query_one("#args", ArgumentsArea).action_edit_outside()

    def on_arguments_area_editor_failed(self, message: ArgumentsArea.EditorFailed) -> None:
        self.show_message(message.reason)

    def action_show_call(self) -> None:
        self._show_page("page" if self._view == "all" else "all")

    def action_explain_keys(self) -> None:
        self._show_page("page" if self._view == "keys" else "keys")

    # --- steps ---

    def _set_line(self, text: str) -> None:
        line = self.query_one("#line", Input)
        line.value = text
        line.cursor_position = len(text)

    def action_back(self) -> None:
        self._go_to_step("ask")

    def action_other(self) -> None:
        """Switch the scope of the rule, the argument to edit, or between a reason to deny and a note."""
        if self._step == "rule" and self._rule is not None:
            self._rule.switch_scope()
            self.query_one("#label", Static).update(self._rule.format_label())
            self.fit()
        elif self._step == "edit":
            if self._store_argument():
                self._form.switch(1)
                self._show_argument()
        elif "allow_note" in self._list_answer_names():
            self._go_to_step("note" if self._step == "no" else "no")

    def _switch_rule(self, by: int) -> None:
        if self._rule is not None:
            self._set_line(self._rule.switch(by))
            self.query_one("#label", Static).update(self._rule.format_label())

    action_next_rule = partialmethod(_switch_rule, 1)
    action_previous_rule = partialmethod(_switch_rule, -1)

    async def action_confirm(self) -> None:
        text = self.query_one("#line", Input).value.strip()
        if self._step == "edit":
            # Show the edited call as a new request before it can be allowed.
            if not self._store_argument():
                return
            args, before = self._form.args, self._original.permission.args
            self._request = self._original if args == before else replace_arguments(self._original, args)
            self._go_to_step("ask")
            if self._request is self._original:
                self.show_message("No changes.")
        elif self._step == "no":
            await self.send(Answer(self.ask_id, "deny", text))
        elif self._step == "note":
            await self._answer(allow=True, note=text)
        elif self._rule is not None and not text:
            self.show_message(f"The rule is empty. Enter one, or go back with {self.odin.keys.get_label('back')}.")
        elif self._rule is not None:
            choice = "allow_session" if self._rule.allow else "deny_always"
            await self.send(Answer(self.ask_id, choice, rule=text, scope=self._rule.scope))

    action_use_arguments = action_confirm

    async def _answer(self, *, allow: bool, note: str = "") -> None:
        answer = Answer(self.ask_id, "allow_once" if allow else "deny")
        if allow and self._request is not self._original:
            before, args = self._original.permission.args, self._request.permission.args
            answer = Answer(self.ask_id, "allow_once", args=args, summary=summarize_change(before, args))
        await self.send(answer, note)
