"""The dialog for whatever is asked of the user: the request on top, its answers always visible below.

No answer is selected when it opens unless the first one is the default, so that a stray Enter allows nothing.
"""

from collections.abc import Mapping, Sequence
from functools import partialmethod
from typing import Literal

from textual import events
from textual.dom import DOMNode
from textual.widgets import Input, Static

from odin.core.errors import UsageError
from odin.core.format import pluralize
from odin.core.interaction import Choice, FormField, Interaction
from odin.core.op import Answer, Interrupt
from odin.ui.permission_text import (
    ArgumentForm,
    InvalidJson,
    format_headline,
    list_offered_rules,
    replace_arguments,
    summarize_change,
)
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.dialog import RequestDialog, SubmitAnswer
from odin.ui.tui.dialogs.form_page import AnswersDraft
from odin.ui.tui.dialogs.interaction_view import (
    KEY_SCOPES,
    ArgumentsArea,
    RuleDraft,
    describe_stop,
    format_danger,
    get_choices,
    list_answers,
    list_usual_answers,
    paint_details,
    paint_keys,
    paint_request,
    paint_required,
)
from odin.ui.tui.dialogs.widgets import ChoiceBar, DialogChoice, PagePainter, TextPage
from odin.ui.tui.palette import make_palette

DialogStep = Literal["ask", "text", "note", "rule", "edit", "form"]
"""The request itself, writing a text or a note for the model, choosing a rule, editing the arguments, the form."""

PageName = Literal["page", "all", "keys"]

_ARROWS = {"Down": "↓", "Up": "↑"}
_FIRST_ANSWERS = {"allow_once": "allows once", "deny": "denies", "approve_plan": "approves the plan"}
_NOT_OFFERED = {
    "allow_mode": "No permission mode allows this call without asking.",
    "edit_call": "The arguments of this call cannot be edited.",
    "approve_edits": "The permission mode accepts edits already.",
}
_RULE_ACTIONS = ("allow_session", "allow_project", "allow_everywhere", "deny_always")
_LOOKING_ACTIONS = ("asked_", "more_answers", "show_call", "explain_keys")
"""Actions (or the start of their names) that answer nothing: their letters may be the start of a word."""


class InteractionDialog(RequestDialog[str]):
    """Shows one step at a time. `_request` is not `_original` after the arguments were edited.

    `_choice` is what the step is for. The result is the key of the given choice.
    """

    def __init__(self, ask: Interaction, submit: SubmitAnswer | None = None) -> None:
        super().__init__(ask.id, submit)
        self._original = self._request = ask
        self._draft = AnswersDraft([field for field in ask.form if field.name == "answers"])
        self._step: DialogStep = "form" if self._draft.fields else "ask"
        self._view: PageName = "page"
        self._choice = ask.choices[0]
        self._rule: RuleDraft | None = None
        self._form = ArgumentForm({})
        self._shows_all_answers = False
        self._is_warned = False

    def on_mount(self) -> None:
        self._go_to_step(self._step)

    def handle_ready(self) -> None:
        self._show_step()

    # --- appearance ---

    def retitle(self) -> None:
        ask, info = self._request, self.odin.info
        text = format_headline(ask, info.cwd if info is not None else "")
        if self._step == "form":
            text = self._draft.format_title(f"The sub-agent {escape_hidden(ask.agent)}" if ask.agent else "Odin")
        if ask is not self._original:
            text = f"Edited call: {text}"
        self.query_one("#title", Static).update(text + self.describe_wait())
        palette = make_palette(self.odin.current_theme)
        danger = format_danger(ask, palette) if self._view == "page" and self._step != "edit" else ""
        self.query_one("#danger", Static).update(danger)

    def _go_to_step(self, step: DialogStep, message: str = "") -> None:
        """Show another step and only the widgets it needs."""
        self._step = step
        self._show_page("page")
        self._show_step(message)

    def _show_step(self, message: str = "") -> None:
        step = self._step
        line, args, page = self.query_one("#line", Input), self.query_one("#args"), self.query_one(TextPage)
        line.display = step in ("rule", "text", "note") or (step == "form" and self._draft.is_writing)
        args.display = step == "edit"
        self.query_one("#label", Static).update(self._make_label())
        is_first_default = step == "ask" and self._request.default == self._request.choices[0].key
        # A permission request has them from the start: it would grow over the conversation that it is about.
        choices = self._list_choices() if self.ready or self._request.kind == "permission" else ()
        self.query_one(ChoiceBar).offer(choices, current=0 if is_first_default else -1)
        self._show_hint()
        (line if line.display and self.ready else args if args.display else page).focus()
        self.show_message(message)

    def _make_label(self) -> str:
        if self._step == "rule" and self._rule is not None:
            return self._rule.format_label()
        if self._step == "edit":
            return self._form.format_label()
        if self._step == "text":
            label = self._find_text_field().label
            return label if label.endswith("?") else f"{label}:"
        return "Note for the model, sent with the result:" if self._step == "note" else ""

    def _find_text_field(self) -> FormField:
        return next(field for field in self._request.form if field.name == "text")

    def _list_choices(self) -> Sequence[DialogChoice]:
        keys = self.odin.keys
        if self._step == "form":
            return self._draft.list_choices(keys)
        if self._step == "ask":
            return list_usual_answers(self._request, keys, more=self._shows_all_answers)
        named: list[tuple[str, str]]
        if self._step == "rule":
            named = [("confirm", "Save rule"), ("other", "Change scope")]
            named += [("next_rule", "Another rule")] if self._rule and len(self._rule.rules) > 1 else []
        elif self._step == "edit":
            named = [("confirm" if self._form.is_single_line else "use_arguments", "Use this")]
            named += [("other", "Next argument")] if self._form.has_several else []
            named.append(("edit_outside", "Editor"))
        elif self._choice.asks:
            named = [("confirm", "Send")]
        else:
            verb, other = ("Allow", "Deny instead") if self._step == "note" else ("Deny", "Allow with a note instead")
            named = [("confirm", verb), *([("other", other)] if self._offers("allow_note") else [])]
        shown = [(name, keys.get_label(name), label) for name, label in (*named, ("back", "Back"))]
        return [DialogChoice(name, _ARROWS.get(key, key), label) for name, key, label in shown]

    def _offers(self, name: str) -> bool:
        return any(answer.name == name for answer in list_answers(self._request, self.odin.keys))

    def _show_page(self, view: PageName) -> None:
        self._view = view
        paints: dict[PageName, PagePainter] = {
            "page": lambda canvas: paint_request(self._request, canvas),
            "all": lambda canvas: paint_details(self._request, canvas),
            "keys": lambda canvas: paint_keys(self._request, self.odin.keys, canvas),
        }
        if self._step == "form":
            paints["page"] = lambda canvas: self._draft.paint(canvas, self._option_lines)
        self.query_one(TextPage).show(paints[view])
        self._show_hint()
        self.retitle()
        self.fit()

    def _show_hint(self) -> None:
        keys, hint = self.odin.keys, ""
        if self.ready and self._step == "ask" and "stop_work" in get_choices(self._request):
            back = f"{keys.get_label('stop_work')} goes back to the request."
            hint = describe_stop(self._request, keys) if self._view == "page" else back
        self.query_one("#hint", Static).update(hint)

    def count_panel_rows(self) -> int:
        is_tall = self._view != "page" or self._request.kind in ("plan", "trust")
        return self.odin.size.height - 1 if is_tall else super().count_panel_rows()

    @property
    def current_option(self) -> int:
        return -1 if self._draft.is_writing else self._draft.cursor

    # --- keys and clicks ---

    async def take_key(self, event: events.Key) -> bool:
        name = self._find_step_action(event.key)
        if not name:
            return False
        # A letter that opened this step may have been the start of a word, and Enter the end of the sentence.
        allows = name == "confirm" and self._step in ("rule", "note")
        if allows and not self._is_focused and self.odin.key_pause < self.odin.timing.typing_s:
            self._is_focused = True
            self.show_message(f"Press {self.odin.keys.get_label('confirm')} again to allow it.")
            return True
        is_letter = (event.character or "").isalpha() and self._step == "ask"
        self._is_focused = self._is_focused or not is_letter
        if name.startswith(_LOOKING_ACTIONS) and not self._is_focused:
            self.yield_keys()
        await self._perform(name)
        return True

    def _find_step_action(self, key: str) -> str:
        keys, ask = self.odin.keys, self._request
        if self._step == "form" and not self._draft.is_writing:
            if len(key) == 1 and key.isdecimal() and key != "0":
                return f"pick({int(key) - 1})"
            return keys.find_action(key, "questions") or self.find_scroll_action(key)
        if self._step == "ask":
            scope = KEY_SCOPES.get(ask.kind, "confirm")
            if scope == "plan" and len(key) == 1 and key.isdecimal() and 1 <= int(key) <= len(ask.choices):
                return list(get_choices(ask))[int(key) - 1]
            closes = scope == "confirm" and keys.find_action(key, "dialog") == "close"
            name = keys.find_action(key, scope) or (ask.default if closes else keys.find_action(key, "answers"))
            name = name or self.find_conversation_action(key)
            return "back" if name == "stop_work" and self._view != "page" else name
        name = keys.find_action(key, "step")
        if self._step == "form":
            leaves = {"cancel": "cancel", "previous_option": "previous_question"}
            if self._draft.field.options:
                leaves = {"back": "list"}
            else:
                name = name if name == "confirm" else keys.find_action(key, "questions")
            return (leaves | {"confirm": "settle"}).get(name) or self.find_conversation_action(key)
        if self._step == "edit":
            done = name == "use_arguments" or (name == "confirm" and self._form.is_single_line)
            name = "confirm" if done else name if name in ("back", "other") else ""
        elif name == "use_arguments" or (name in ("next_rule", "previous_rule") and self._step != "rule"):
            name = ""
        return name or self.find_conversation_action(key)

    async def run_action(self, action: str, namespaces: Mapping[str, DOMNode] | None = None) -> None:
        """Give the choice that has this action, or say why it is not offered; all other actions are methods."""
        choice = get_choices(self._request).get(action) if self._step == "ask" else None
        if choice is not None:
            await self._choose(choice)
        elif action in _RULE_ACTIONS:
            only_once = not self._offers("edit_call")
            self.show_message(
                "This can only be allowed once or denied." if only_once else "No rule can cover this call."
            )
        elif action in _NOT_OFFERED and not self._offers(action):
            self.show_message(_NOT_OFFERED[action])
        else:
            await super().run_action(action, namespaces)

    async def _perform(self, name: str) -> None:
        self._is_warned = self._is_warned and name == "cancel"
        await super()._perform(name)

    def describe_first_answers(self) -> str:
        offered, keys = get_choices(self._request), self.odin.keys
        return ", ".join(f"{keys.get_label(name)} {verb}" for name, verb in _FIRST_ANSWERS.items() if name in offered)

    # --- the choices ---

    async def _choose(self, choice: Choice) -> None:
        if choice.key.startswith("allow") and not self._require_seen():
            return
        self._choice = choice
        if choice.asks == "rule" and choice.scope is not None:
            rules = list_offered_rules(self._request)
            self._rule = RuleDraft(rules, choice.key.startswith("allow"), choice.scope)
            self._set_line(self._rule.text)
            self._go_to_step("rule")
        elif choice.asks:
            self._go_to_step("text")
        else:
            await self._give(choice.key)

    async def _give(self, key: str, note: str = "") -> None:
        answer = Answer(self.ask_id, key)
        if key == "allow_once" and self._request is not self._original:
            before, args = self._original.permission.args, self._request.permission.args
            answer = Answer(self.ask_id, key, args=args, summary=summarize_change(before, args))
        await self.send(answer, note)
        # A main agent that waits for this sub-agent would otherwise continue, so stop it, too.
        status = self.odin.facts.agents.all.get(self._request.agent)
        is_delegated = status is not None and bool(status.task_id)
        if key == "stop" and self.is_answered and self._request.agent and not is_delegated:
            await self.odin.submit(Interrupt())

    def _require_seen(self) -> bool:
        """True if the whole request was on the screen; if not, scroll down instead of allowing it."""
        page = self.query_one(TextPage)
        canvas = self.make_canvas(max(page.size.width - 1, 1))
        left = len(paint_required(self._request, canvas)) - page.seen_rows if self._view == "page" else 0
        if left <= 0:
            return True
        page.scroll_page_down(animate=False)
        self.show_message(f"{pluralize(left, 'more line')} below. Read the whole request before allowing it.")
        return False

    def action_more_answers(self) -> None:
        self._shows_all_answers = not self._shows_all_answers
        self.query_one(ChoiceBar).offer(self._list_choices())
        self.fit()

    def action_show_call(self) -> None:
        self._show_page("page" if self._view == "all" else "all")

    def action_explain_keys(self) -> None:
        self._show_page("page" if self._view == "keys" else "keys")

    # --- steps ---

    def action_deny_words(self) -> None:
        allowing = self.query_one(ChoiceBar).chosen.startswith("allow")
        self._choice = self._request.find_choice("deny")
        self._set_line("")
        self._go_to_step("note" if allowing and self._offers("allow_note") else "text")

    def action_allow_note(self) -> None:
        if self._offers("allow_note") and self._require_seen():
            self._choice = self._request.find_choice("allow_once")
            self._set_line("")
            self._go_to_step("note")

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
            self._go_to_step("rule")
        elif self._step == "edit":
            if self._store_argument():
                self._form.switch(1)
                self._show_argument()
        elif not self._choice.asks and self._offers("allow_note"):
            self._go_to_step("note" if self._step == "text" else "text")

    def _switch_rule(self, by: int) -> None:
        if self._rule is not None:
            self._set_line(self._rule.switch(by))
            self._go_to_step("rule")

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
            self._go_to_step("ask", "No changes." if self._request is self._original else "")
        elif self._step == "note":
            await self._give("allow_once", text)
        elif self._step == "text" and self._choice.asks and not text:
            self.show_message(self._find_text_field().text)
        elif self._step == "text":
            await self.send(Answer(self.ask_id, self._choice.key if self._choice.asks else "deny", text))
        elif self._rule is not None and not text:
            self.show_message(f"The rule is empty. Enter one, or go back with {self.odin.keys.get_label('back')}.")
        elif self._rule is not None:
            await self.send(Answer(self.ask_id, self._choice.key, rule=text, scope=self._rule.scope))

    action_use_arguments = action_confirm

    # --- editing the arguments ---

    def action_edit_call(self) -> None:
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

    # --- filling in the form ---

    def _move(self, by: int) -> None:
        self._draft.move(by)
        self._go_to_step("form")

    action_next_option = partialmethod(_move, 1)
    action_previous_option = partialmethod(_move, -1)

    async def action_pick(self, number: int) -> None:
        """Pick an option by number or click: toggle it if several are allowed, else answer with it."""
        draft = self._draft
        if number >= draft.row_count:
            return
        if draft.is_reviewing:
            self._go_to_field(number)
        elif number == len(draft.field.options):
            self.action_own_words()
        else:
            draft.is_writing, draft.cursor = False, number
            if draft.field.multiple:
                self.action_toggle_option()
            else:
                await self.action_settle()

    def action_toggle_option(self) -> None:
        if self._draft.is_at_own_words:
            self.action_own_words()
        elif not self._draft.is_reviewing:
            self._draft.toggle(self._draft.cursor)
            self._go_to_step("form")

    def action_own_words(self) -> None:
        draft = self._draft
        if not draft.is_reviewing and draft.field.type != "choice":
            draft.cursor, draft.is_writing = len(draft.field.options), True
            self._set_line(draft.own_words)
            self._go_to_step("form")

    def action_list(self) -> None:
        self._draft.write_own_words(self.query_one("#line", Input).value.strip())
        self._draft.is_writing = False
        self._go_to_step("form")

    def action_previous_question(self) -> None:
        if self._draft.is_writing:
            self._draft.write_own_words(self.query_one("#line", Input).value.strip())
        if self._draft.number:
            self._go_to_field(self._draft.number - 1)

    def _go_to_field(self, number: int) -> None:
        self._draft.go_to(number)
        self._set_line("" if self._draft.is_reviewing else self._draft.own_words)
        self._go_to_step("form")

    async def action_settle(self) -> None:
        """Take the answer and go to the next field or the review; a single answer is sent at once."""
        draft, typed = self._draft, self.query_one("#line", Input).value.strip()
        if draft.is_reviewing:
            await self.send(Answer(self.ask_id, self._choice.key, answers=draft.list_answers()))
            return
        if draft.is_writing:
            draft.write_own_words(typed)
        if draft.is_writing and not typed and draft.field.options:
            self.action_list()
        elif not draft.is_writing and draft.is_at_own_words and not draft.own_words:
            self.action_own_words()
        else:
            if not draft.is_writing:
                draft.settle()
            if problem := draft.find_problem():
                self._go_to_step("form", problem)
            elif len(draft.fields) == 1:
                await self.send(Answer(self.ask_id, self._choice.key, answers=draft.list_answers()))
            else:
                self._go_to_field(draft.number + 1)

    async def action_cancel(self) -> None:
        if self._draft.is_touched and len(self._draft.fields) > 1 and not self._is_warned:
            self._is_warned = True
            key = self.odin.keys.get_label("cancel")
            self.show_message(f"{key} again cancels all questions; your answers are lost.")
            return
        await self._give(self._request.default)
