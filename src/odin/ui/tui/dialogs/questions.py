"""The questions of a tool: one after the other, with a way back, and all answers once more before they are given."""

from collections.abc import Awaitable, Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import Input, Static

from odin.core.event import QuestionsAsked
from odin.core.op import AnswerQuestions
from odin.ui.terminal import folded, visible
from odin.ui.tui.dialogs.asked import AskedDialog
from odin.ui.tui.dialogs.choices import Choice, Choices
from odin.ui.tui.dialogs.field import Line
from odin.ui.tui.dialogs.page import Page
from odin.ui.tui.dialogs.permission_page import words
from odin.ui.tui.dialogs.questions_draft import Draft
from odin.ui.tui.paint.canvas import Canvas, blank

Give = Callable[[AnswerQuestions], Awaitable[str]]
"""Hands the answers in; gives a sentence when they were refused."""

OWN = "In your own words"


class QuestionsDialog(AskedDialog):
    def __init__(
        self,
        ask: QuestionsAsked,
        agent: str,
        give: Give,
        *,
        waiting: int = 0,
        deadline: float = 0,
        keep: bool = True,
    ) -> None:
        super().__init__(ask.ask_id, waiting=waiting, deadline=deadline, keep=keep)
        self._agent = agent
        self._give = give
        self._draft = Draft(ask.questions)
        self._writing = False
        self._warned = False
        self._lines: dict[int, int] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static(id="who", classes="title", markup=False)
            yield Page(self.canvas, id="about")
            yield Line(id="line", compact=True, select_on_focus=False)
            yield Static(id="said", markup=False)
            yield Choices(id="answers")

    def on_mount(self) -> None:
        self._show()

    def became_ready(self) -> None:
        self._show()

    # --- what is shown ---

    def retitle(self) -> None:
        draft = self._draft
        who = f"The sub-agent {visible(self._agent)}" if self._agent else "Odin"
        if draft.reviewing:
            text = "Your answers"
        else:
            several = len(draft.questions) > 1
            text = f"{who} asks" + (f" ({draft.number + 1} of {len(draft.questions)})" if several else "")
            text += f": {visible(draft.question.header)}" if draft.question.header else ""
        self.query_one("#who", Static).update(text + self.circumstances())

    def _show(self, said: str = "") -> None:
        """Draw it all again, as the draft is now."""
        draft, line = self._draft, self.query_one("#line", Input)
        self._writing = not draft.reviewing and (self._writing or not draft.question.options)
        if self._writing and not line.display:
            line.value = draft.own
            line.cursor_position = len(line.value)
        line.display = self._writing
        (line if self._writing else self.query_one(Page)).focus()
        self.query_one("#said", Static).update(said)
        self.query_one(Choices).offer(self._choices() if self.ready else ())
        self.retitle()
        self.query_one(Page).show(self._page)
        self._fit()

    def _choices(self) -> Sequence[Choice]:
        draft, keys = self._draft, self.odin.keys
        back = (Choice("previous_question", keys.shown("previous_question"), "Back"),) if draft.number else ()
        enter = keys.shown("settle")
        cancel = Choice(
            "cancel", keys.shown("cancel"), "Cancel all" if len(draft.questions) > 1 else "Cancel", "Cancel"
        )
        if draft.reviewing:
            return Choice("settle", enter, "Send them"), *back, cancel
        last = draft.number + 1 == len(draft.questions)
        word = "Answer" if len(draft.questions) == 1 else "Review" if last else "Next"
        if self._writing:
            leave = Choice("list", keys.shown("back"), "Back to the list") if draft.question.options else cancel
            return Choice("settle", keys.shown("confirm"), word), leave
        on = Choice("settle", enter, word)
        own = Choice("own_words", keys.shown("own_words"), OWN, "Own words")
        several = (Choice("toggle_option", keys.shown("toggle_option"), "Choose"),) if draft.question.multiple else ()
        return on, *several, own, *back, cancel

    def _page(self, canvas: Canvas) -> list[Strip]:
        self._lines = {}
        return self._review(canvas) if self._draft.reviewing else self._question(canvas)

    def _question(self, canvas: Canvas) -> list[Strip]:
        draft, colours = self._draft, canvas.palette
        strips = [row for line in draft.question.text.split("\n") for row in words(canvas, visible(line))]
        if not draft.question.options:
            return strips
        strips.append(blank())
        for number, option in enumerate(draft.question.options):
            default = "" if number or draft.question.multiple else " (default)"
            self._row(strips, canvas, number, visible(option.label) + default)
            if option.detail:
                for row in folded(visible(option.detail), canvas.width - 8).split("\n"):
                    self._lines[len(strips)] = number
                    strips.append(canvas.row((f"        {row}", colours.dim)))
        self._row(strips, canvas, len(draft.question.options), f"{OWN} …" if not draft.own else visible(draft.own))
        return strips

    def _row(self, strips: list[Strip], canvas: Canvas, number: int, text: str) -> None:
        draft, colours = self._draft, canvas.palette
        here = number == draft.cursor and not self._writing
        own = number == len(draft.question.options)
        chosen = bool(draft.own) if own else draft.picked(number)
        box = ("[x] " if chosen else "[ ] ") if draft.question.multiple else ("● " if chosen else "○ ")
        self._lines[len(strips)] = number
        key = "  " if own else f"{number + 1} "
        style = colours.cursor if here else colours.text
        strips.append(canvas.row(("› " if here else "  ", colours.accent), (key, colours.dim), (box + text, style)))

    def _review(self, canvas: Canvas) -> list[Strip]:
        draft, colours = self._draft, canvas.palette
        strips: list[Strip] = []
        for number, question in enumerate(draft.questions):
            self._lines[len(strips)] = number
            here = "› " if number == draft.cursor else "  "
            title = visible(question.header or question.text)
            strips.append(canvas.row((here, colours.accent), (f"{number + 1} {title}", colours.dim)))
            for row in words(canvas, "    " + visible(", ".join(draft.answer(number)) or "(the first)")):
                self._lines[len(strips)] = number
                strips.append(row)
        return strips

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        width, height = max(self.odin.size.width - 2, 1), self.odin.size.height
        used = 1 + max(self.query_one(Choices).rows(width), 1) + self._writing
        for name in ("#who", "#said"):
            part = self.query_one(name, Static)
            text = str(part.content)
            part.display = bool(text)
            used += folded(text, width).count("\n") + 1 if text else 0
        page = self.query_one(Page)
        page.styles.height = max(min(page.rows(width), max(height - 1 - used, 2)), 1)
        at = [line for line, number in self._lines.items() if number == self._draft.cursor]
        if at and not self._writing:
            self.call_after_refresh(self._reveal, at[0], at[-1])

    def _reveal(self, first: int, last: int) -> None:
        """Called after the next drawing; the dialog may be gone by then."""
        page = next(iter(self.query(Page)), None)
        if page is None:
            return
        top, rows = page.scroll_offset.y, page.size.height
        if last >= top + rows:
            page.scroll_to(y=last - rows + 1, animate=False)
        if first < page.scroll_offset.y:
            page.scroll_to(y=first, animate=False)

    # --- keys and clicks ---

    async def take(self, event: events.Key) -> None:
        name = self._named(event.key)
        if name:
            event.stop()
            event.prevent_default()
            await self._do(name)

    def _named(self, key: str) -> str:
        keys = self.odin.keys
        if self._writing:
            name = keys.name(key, "step")
            leaves = "list" if name == "back" and self._draft.question.options else ""
            cancels = not self._draft.question.options and keys.name(key, "questions") == "cancel"
            return "settle" if name == "confirm" else leaves or ("cancel" if cancels else "")
        if len(key) == 1 and key.isdecimal() and key != "0":
            return f"pick({int(key) - 1})"
        return keys.name(key, "questions") or self.scrolling(key)

    async def _do(self, name: str) -> None:
        if not self.given:
            if name != "cancel":
                self._warned = False
            await self.run_action(name)

    def action_next_option(self) -> None:
        self._move(1)

    def action_previous_option(self) -> None:
        self._move(-1)

    def _move(self, by: int) -> None:
        self._draft.move(by)
        self._show()

    async def action_pick(self, number: int) -> None:
        """An option by its number or by a click: several are switched, one is the answer."""
        draft = self._draft
        if draft.reviewing:
            if number < len(draft.questions):
                self._go(number)
        elif number == len(draft.question.options):
            self.action_own_words()
        elif number < len(draft.question.options):
            self._writing, draft.cursor = False, number
            if draft.question.multiple:
                draft.toggle(number)
                self._show()
            else:
                draft.settle()
                await self._on()

    def action_toggle_option(self) -> None:
        draft = self._draft
        if draft.reviewing:
            return
        if draft.at_own_words:
            self.action_own_words()
        else:
            draft.toggle(draft.cursor)
            self._show()

    def action_own_words(self) -> None:
        if not self._draft.reviewing:
            self._draft.cursor = len(self._draft.question.options)
            self._writing = True
            self._show()

    def action_list(self) -> None:
        self._draft.write(self.query_one("#line", Input).value.strip())
        self._writing = False
        self._show()

    def action_previous_question(self) -> None:
        if self._draft.number:
            self._go(self._draft.number - 1)

    def _go(self, number: int) -> None:
        self._writing = False
        self.query_one("#line", Input).display = False
        self._draft.go(number)
        self._show()

    async def action_settle(self) -> None:
        draft = self._draft
        if draft.reviewing:
            await self._send(AnswerQuestions(self.ask_id, draft.answers()))
        elif self._writing:
            typed = self.query_one("#line", Input).value.strip()
            draft.write(typed)
            if typed or not draft.question.options:
                await self._on()
            else:
                self._writing = False
                self._show()
        elif draft.at_own_words and not draft.own:
            self.action_own_words()
        else:
            draft.settle()
            await self._on()

    async def _on(self) -> None:
        """To the next question; a single one needs no second look."""
        if len(self._draft.questions) == 1:
            await self._send(AnswerQuestions(self.ask_id, self._draft.answers()))
        else:
            self._go(self._draft.number + 1)

    async def action_cancel(self) -> None:
        if self._draft.touched and len(self._draft.questions) > 1 and not self._warned:
            self._warned = True
            self._show(f"{self.odin.keys.shown('cancel')} again cancels all of them; your answers are lost.")
            return
        await self._send(AnswerQuestions(self.ask_id, cancelled=True))

    async def _send(self, answer: AnswerQuestions) -> None:
        self.given = True
        refused = await self._give(answer)
        if refused:
            self.given = False
            self._show(visible(refused))
        elif self.is_current:
            self.dismiss(None)
