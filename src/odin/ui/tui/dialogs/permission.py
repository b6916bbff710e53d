"""The dialog in which a person allows a call or not: nothing is chosen when it opens, and nothing by accident."""

import time
from collections.abc import Awaitable, Callable

from textual import events
from textual.widgets import Input, Static

from odin.core.errors import UsageError
from odin.core.event import PermissionAsked
from odin.core.op import Answer, Interrupt
from odin.core.rule import RememberScope
from odin.ui.question.editing import summary
from odin.ui.tui.dialogs.choices import Choices
from odin.ui.tui.dialogs.page import Page
from odin.ui.tui.dialogs.permission_draft import NotJson, editable, edited, instead, lasting
from odin.ui.tui.dialogs.permission_page import asked
from odin.ui.tui.dialogs.permission_panel import Arguments, PermissionPanel

BURST_S = 0.25
"""Keys that follow each other faster belong to words somebody types, not to an answer."""

_ALLOWING = ("allow_once", "allow_session", "allow_project", "allow_everywhere", "allow_note")

Give = Callable[[Answer, str], Awaitable[str]]
"""Hands an answer in, with a note for the model or ""; gives a sentence when it was refused."""


class PermissionDialog(PermissionPanel):
    """`deadline` is when the question is taken back, by the clock of time.monotonic; 0 when it waits for ever."""

    def __init__(
        self, ask: PermissionAsked, agent: str, give: Give, *, waiting: int = 0, deadline: float = 0, keep: bool = True
    ) -> None:
        super().__init__(ask, agent, waiting=waiting, deadline=deadline, keep=keep)
        self._give = give
        self._stray = 0.0

    # --- keys and clicks ---

    async def take(self, event: events.Key) -> None:
        name = self._named(event.key)
        if not name:
            self._stray = time.monotonic()
            return
        event.stop()
        event.prevent_default()
        if self._hurried and (name in _ALLOWING or (name == "confirm" and self._step in ("rule", "note"))):
            self._say("That came in a burst of keys. Press it once more, by itself.")
            self._stray = time.monotonic()
            return
        await self._do(name)

    @property
    def _hurried(self) -> bool:
        """Whether a key comes right behind one that means nothing here, or behind the one that led here."""
        return time.monotonic() - self._stray < BURST_S

    def _named(self, key: str) -> str:
        """What this key means in this step, or ""."""
        keys = self.odin.keys
        if self._step == "ask":
            name = keys.name(key, "permission") or keys.name(key, "answers")
            return "back" if name == "stop_work" and self._view != "page" else name
        name = keys.name(key, "step")
        if self._step == "edit":
            done = name == "use_arguments" or (name == "confirm" and self._form.name)
            return "confirm" if done else name if name == "back" else ""
        turns = ("next_rule", "previous_rule") if self._step == "rule" else ()
        return name if name in ("confirm", "other", "back", *turns) else ""

    async def _do(self, name: str) -> None:
        if not self.given:
            await self.run_action(name)

    def action_next_answer(self) -> None:
        self.query_one(Choices).move(1)

    def action_previous_answer(self) -> None:
        self.query_one(Choices).move(-1)

    async def action_take_answer(self) -> None:
        chosen = self.query_one(Choices).chosen
        if chosen:
            await self._do(chosen)
        else:
            keys = self.odin.keys
            self._say(f"Choose an answer: {keys.shown('allow_once')} allows it once, {keys.shown('deny')} denies it.")

    # --- the answers ---

    async def action_allow_once(self) -> None:
        if self._all_seen():
            await self._answer(allow=True)

    def _all_seen(self) -> bool:
        """Whether all that is asked was on the screen; what was not is shown instead of allowing it."""
        page = self.query_one(Page)
        rows = len(asked(self._ask, self.canvas(max(page.size.width - 1, 1)))) if self._view == "page" else 0
        if page.seen >= rows:
            return True
        left = rows - page.seen
        page.scroll_page_down(animate=False)
        lines = "1 more line" if left == 1 else f"{left} more lines"
        self._say(f"It goes on for {lines}. Look at all of it before you allow it.")
        return False

    async def action_deny(self) -> None:
        await self._answer(allow=False)

    async def action_stop_work(self) -> None:
        """A sub-agent's answer would stop that agent alone, and its parent would go on."""
        await self._send(Answer(self.ask_id, allow=False, interrupt=True))
        if self.given and self._agent:
            await self.odin.ask(Interrupt())

    def action_allow_session(self) -> None:
        self._remember(allow=True, scope="session")

    def action_allow_project(self) -> None:
        self._remember(allow=True, scope="project")

    def action_allow_everywhere(self) -> None:
        self._remember(allow=True, scope="user")

    def action_deny_always(self) -> None:
        self._remember(allow=False, scope="session")

    def _remember(self, *, allow: bool, scope: RememberScope) -> None:
        if allow and not self._all_seen():
            return
        rule = lasting(self._ask, allow=allow, scope=scope)
        if not rule.rules:
            once = "It can be allowed once or denied." if self._ask.outside else "There is no rule that remembers this."
            self._say(once)
            return
        self._rule = rule
        self._write(rule.text)
        self._go("rule")
        self._stray = time.monotonic()

    def action_deny_words(self) -> None:
        allowing = self.query_one(Choices).chosen.startswith("allow")
        self._write("")
        self._go("note" if allowing and "allow_note" in self._offered() else "no")

    def action_allow_note(self) -> None:
        if "allow_note" in self._offered() and self._all_seen():
            self._write("")
            self._go("note")

    def action_edit_call(self) -> None:
        if "edit_call" not in self._offered():
            self._say("The arguments cannot be changed here.")
            return
        self._form = editable(self._ask.args)
        area = self.query_one("#args", Arguments)
        area.one = bool(self._form.name)
        area.text = self._form.text
        area.move_cursor(area.document.end)
        self._go("edit")

    def action_show_call(self) -> None:
        self._look("page" if self._view == "all" else "all")

    def action_explain_keys(self) -> None:
        self._look("page" if self._view == "keys" else "keys")

    # --- in the steps ---

    def _write(self, text: str) -> None:
        line = self.query_one("#line", Input)
        line.value = text
        line.cursor_position = len(text)

    def action_back(self) -> None:
        self._go("ask")

    def action_other(self) -> None:
        """The other thing this step can be about: how long, or yes instead of no."""
        if self._step == "rule" and self._rule is not None:
            self._rule.widen()
            self.query_one("#label", Static).update(self._rule.label())
            self._fit()
        elif "allow_note" in self._offered():
            self._go("note" if self._step == "no" else "no")

    def action_next_rule(self) -> None:
        self._turn(1)

    def action_previous_rule(self) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        if self._rule is not None:
            self._write(self._rule.turn(by))
            self.query_one("#label", Static).update(self._rule.label())

    async def action_use_arguments(self) -> None:
        await self.action_confirm()

    async def action_confirm(self) -> None:
        words = self.query_one("#line", Input).value.strip()
        if self._step == "edit":
            self._edited()
        elif self._step == "no":
            await self._send(Answer(self.ask_id, allow=False, reason=words))
        elif self._step == "note":
            await self._answer(allow=True, note=words)
        elif self._rule is not None and not words:
            self._say(f"The rule is empty. Write one, or go back with {self.odin.keys.shown('back')}.")
        elif self._rule is not None:
            await self._send(Answer(self.ask_id, allow=self._rule.allow, rule=words, remember=self._rule.scope))

    def _edited(self) -> None:
        """What was changed is shown with nothing hidden before it is allowed."""
        area = self.query_one("#args", Arguments)
        try:
            args = edited(self._ask.args, self._form, area.text)
        except UsageError as error:
            if isinstance(error, NotJson):
                area.move_cursor(error.place)
            self._say(error.sentence())
            return
        self._ask = self._asked if args == self._asked.args else instead(self._asked, args)
        self._go("ask")
        if self._ask is self._asked:
            self._say("Nothing was changed.")

    async def _answer(self, *, allow: bool, note: str = "") -> None:
        if allow and self._ask is not self._asked:
            args = self._ask.args
            answer = Answer(self.ask_id, allow=True, args=args, summary=summary(self._asked.args, args))
        else:
            answer = Answer(self.ask_id, allow=allow)
        await self._send(answer, note)

    async def _send(self, answer: Answer, note: str = "") -> None:
        self.given = True
        refused = await self._give(answer, note)
        if refused:
            self.given = False
            self._say(refused)
        elif self.is_current:
            self.dismiss(None)
