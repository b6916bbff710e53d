"""The dialog for questions of a tool: one after the other, with a review of all answers before they are sent."""

from collections.abc import Sequence
from functools import partialmethod

from textual.strip import Strip
from textual.widgets import Input, Static

from odin.core.event_values import Question
from odin.core.interaction import Interaction
from odin.core.op import Answer
from odin.ui.terminal import escape_hidden, wrap_words
from odin.ui.tui.dialogs.dialog import RequestDialog, SubmitAnswer
from odin.ui.tui.dialogs.permission_view import paint_sentence
from odin.ui.tui.dialogs.widgets import ChoiceBar, DialogChoice, TextPage
from odin.ui.tui.paint.canvas import Canvas, make_blank


class AnswersDraft:
    """The answers entered so far.

    `number` is the current question; one past the last is the review. `cursor` is the current option; one past the
    last is the free-text answer.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = tuple(questions)
        self.number = 0
        self.cursor = 0
        self._picked: list[list[int]] = [[] for _ in questions]
        self._own_words = [""] * len(questions)

    @property
    def is_reviewing(self) -> bool:
        return self.number >= len(self.questions)

    @property
    def question(self) -> Question:
        return self.questions[self.number]

    @property
    def own_words(self) -> str:
        return self._own_words[self.number]

    @property
    def is_at_own_words(self) -> bool:
        return not self.is_reviewing and self.cursor >= len(self.question.options)

    @property
    def is_touched(self) -> bool:
        """True if cancelling would lose an answer."""
        return any(self._picked) or any(self._own_words)

    def is_picked(self, option: int) -> bool:
        return option in self._picked[self.number]

    def move(self, by: int) -> None:
        rows = len(self.questions) if self.is_reviewing else len(self.question.options) + 1
        self.cursor = (self.cursor + by) % rows

    def toggle(self, option: int) -> None:
        """Select or unselect an option; a single-choice question keeps only this one."""
        picked = self._picked[self.number]
        if not self.question.multiple:
            self._picked[self.number], self._own_words[self.number] = [option], ""
        elif option in picked:
            picked.remove(option)
        else:
            picked.append(option)
            picked.sort()

    def settle(self) -> None:
        """Select the option under the cursor if nothing is selected yet or only one can be."""
        if self.is_at_own_words:
            return
        if not self.question.multiple or not (self._picked[self.number] or self.own_words):
            self.toggle(self.cursor)

    def write_own_words(self, words: str) -> None:
        """Set the free-text answer; a multiple-choice question keeps its selected options."""
        self._own_words[self.number] = words
        if words and not self.question.multiple:
            self._picked[self.number] = []

    def go_to(self, number: int) -> None:
        self.number = max(0, min(number, len(self.questions)))
        picked = [] if self.is_reviewing else self._picked[self.number]
        self.cursor = picked[0] if picked else 0
        if not self.is_reviewing and self.own_words and not picked:
            self.cursor = len(self.question.options)

    def get_answer(self, number: int) -> tuple[str, ...]:
        """Return the answer to a question; empty means the first option."""
        chosen = [self.questions[number].options[option].label for option in self._picked[number]]
        return (*chosen, self._own_words[number]) if self._own_words[number] else tuple(chosen)

    def list_answers(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self.get_answer(number) for number in range(len(self.questions)))


OWN_WORDS = "Other"


class QuestionsDialog(RequestDialog[None]):
    def __init__(self, ask: Interaction, submit: SubmitAnswer) -> None:
        super().__init__(ask.id, submit)
        self._agent = ask.agent
        self._draft = AnswersDraft(ask.questions)
        self._writing = False
        self._is_warned = False

    def on_mount(self) -> None:
        self.show_message()

    # --- appearance ---

    def retitle(self) -> None:
        draft = self._draft
        asker = f"The sub-agent {escape_hidden(self._agent)}" if self._agent else "Odin"
        if draft.is_reviewing:
            text = "Your answers"
        else:
            several = len(draft.questions) > 1
            text = f"{asker} asks" + (f" ({draft.number + 1} of {len(draft.questions)})" if several else "")
            text += f": {escape_hidden(draft.question.header)}" if draft.question.header else ""
        self.query_one("#title", Static).update(text + self.describe_wait())

    def show_message(self, text: str = "") -> None:
        """Update all widgets from the draft."""
        draft, line = self._draft, self.query_one("#line", Input)
        self._writing = not draft.is_reviewing and (self._writing or not draft.question.options)
        if self._writing and not line.display:
            line.value = draft.own_words
            line.cursor_position = len(line.value)
        line.display = self._writing
        (line if self._writing else self.query_one(TextPage)).focus()
        self.query_one("#message", Static).update(escape_hidden(text))
        self.query_one(ChoiceBar).offer(self._list_choices() if self.ready else ())
        self.retitle()
        self.query_one(TextPage).show(self._paint_page)
        self.fit()

    def _list_choices(self) -> Sequence[DialogChoice]:
        draft, keys = self._draft, self.odin.keys
        back = (DialogChoice("previous_question", keys.get_label("previous_question"), "Back"),) if draft.number else ()
        enter = keys.get_label("settle")
        cancel = DialogChoice(
            "cancel", keys.get_label("cancel"), "Cancel all" if len(draft.questions) > 1 else "Cancel", "Cancel"
        )
        if draft.is_reviewing:
            return DialogChoice("settle", enter, "Submit"), *back, cancel
        last = draft.number + 1 == len(draft.questions)
        word = "Answer" if len(draft.questions) == 1 else "Review" if last else "Next"
        if self._writing:
            leave = (
                DialogChoice("list", keys.get_label("back"), "Back to the options")
                if draft.question.options
                else cancel
            )
            return DialogChoice("settle", keys.get_label("confirm"), word), leave
        on = DialogChoice("settle", enter, word)
        own = DialogChoice("own_words", keys.get_label("own_words"), OWN_WORDS)
        several = (
            (DialogChoice("toggle_option", keys.get_label("toggle_option"), "Select"),)
            if draft.question.multiple
            else ()
        )
        return on, *several, own, *back, cancel

    def _paint_page(self, canvas: Canvas) -> list[Strip]:
        self._option_lines = {}
        return self._paint_review(canvas) if self._draft.is_reviewing else self._paint_question(canvas)

    def _paint_question(self, canvas: Canvas) -> list[Strip]:
        draft, colors = self._draft, canvas.palette
        strips = [
            row for line in draft.question.text.split("\n") for row in paint_sentence(canvas, escape_hidden(line))
        ]
        if not draft.question.options:
            return strips
        strips.append(make_blank())
        for number, option in enumerate(draft.question.options):
            default = "" if number or draft.question.multiple else " (default)"
            self._paint_row(strips, canvas, number, escape_hidden(option.label) + default)
            if option.detail:
                for row in wrap_words(escape_hidden(option.detail), canvas.width - 8).split("\n"):
                    self._option_lines[len(strips)] = number
                    strips.append(canvas.paint_row((f"        {row}", colors.dim)))
        self._paint_row(
            strips,
            canvas,
            len(draft.question.options),
            f"{OWN_WORDS} …" if not draft.own_words else escape_hidden(draft.own_words),
        )
        return strips

    def _paint_row(self, strips: list[Strip], canvas: Canvas, number: int, text: str) -> None:
        draft, colors = self._draft, canvas.palette
        here = number == draft.cursor and not self._writing
        own = number == len(draft.question.options)
        chosen = bool(draft.own_words) if own else draft.is_picked(number)
        box = ("[x] " if chosen else "[ ] ") if draft.question.multiple else ("● " if chosen else "○ ")
        self._option_lines[len(strips)] = number
        key = "  " if own else f"{number + 1} "
        style = colors.cursor if here else colors.text
        strips.append(canvas.paint_row(("› " if here else "  ", colors.accent), (key, colors.dim), (box + text, style)))

    def _paint_review(self, canvas: Canvas) -> list[Strip]:
        draft, colors = self._draft, canvas.palette
        strips: list[Strip] = []
        for number, question in enumerate(draft.questions):
            self._option_lines[len(strips)] = number
            here = "› " if number == draft.cursor else "  "
            title = escape_hidden(question.header or question.text)
            strips.append(canvas.paint_row((here, colors.accent), (f"{number + 1} {title}", colors.dim)))
            for row in paint_sentence(
                canvas, "    " + escape_hidden(", ".join(draft.get_answer(number)) or "(first option)")
            ):
                self._option_lines[len(strips)] = number
                strips.append(row)
        return strips

    def fit(self) -> None:
        self.fit_page(self.count_panel_rows())
        at = [line for line, number in self._option_lines.items() if number == self._draft.cursor]
        if at and not self._writing:
            self.call_after_refresh(self._reveal, at[0], at[-1])

    def _reveal(self, first: int, last: int) -> None:
        """Scroll these lines into view. Runs after the next refresh, when the dialog may be gone."""
        page = next(iter(self.query(TextPage)), None)
        if page is None:
            return
        top, rows = page.scroll_offset.y, page.size.height
        if last >= top + rows:
            page.scroll_to(y=last - rows + 1, animate=False)
        if first < page.scroll_offset.y:
            page.scroll_to(y=first, animate=False)

    # --- keys and clicks ---

    def _find_step_action(self, key: str) -> str:
        keys = self.odin.keys
        if self._writing:
            name = keys.find_action(key, "step")
            leaves = "list" if name == "back" and self._draft.question.options else ""
            cancels = not self._draft.question.options and keys.find_action(key, "questions") == "cancel"
            ends = "settle" if name == "confirm" else leaves or ("cancel" if cancels else "")
            return ends or self.find_conversation_action(key)
        if len(key) == 1 and key.isdecimal() and key != "0":
            return f"pick({int(key) - 1})"
        return keys.find_action(key, "questions") or self.find_scroll_action(key)

    async def _perform(self, name: str) -> None:
        if name != "cancel":
            self._is_warned = False
        await super()._perform(name)

    def _move(self, by: int) -> None:
        self._draft.move(by)
        self.show_message()

    action_next_option = partialmethod(_move, 1)
    action_previous_option = partialmethod(_move, -1)

    async def action_pick(self, number: int) -> None:
        """Pick an option by number or click: toggle it if several are allowed, else answer with it."""
        draft = self._draft
        if draft.is_reviewing:
            if number < len(draft.questions):
                self._go_to_question(number)
        elif number == len(draft.question.options):
            self.action_own_words()
        elif number < len(draft.question.options):
            self._writing, draft.cursor = False, number
            if draft.question.multiple:
                draft.toggle(number)
                self.show_message()
            else:
                draft.settle()
                await self._advance()

    def action_toggle_option(self) -> None:
        draft = self._draft
        if draft.is_reviewing:
            return
        if draft.is_at_own_words:
            self.action_own_words()
        else:
            draft.toggle(draft.cursor)
            self.show_message()

    def action_own_words(self) -> None:
        if not self._draft.is_reviewing:
            self._draft.cursor = len(self._draft.question.options)
            self._writing = True
            self.show_message()

    def action_list(self) -> None:
        self._draft.write_own_words(self.query_one("#line", Input).value.strip())
        self._writing = False
        self.show_message()

    def action_previous_question(self) -> None:
        if self._draft.number:
            self._go_to_question(self._draft.number - 1)

    def _go_to_question(self, number: int) -> None:
        self._writing = False
        self.query_one("#line", Input).display = False
        self._draft.go_to(number)
        self.show_message()

    async def action_settle(self) -> None:
        draft = self._draft
        if draft.is_reviewing:
            await self.send(Answer(self.ask_id, "answer", answers=draft.list_answers()))
        elif self._writing:
            typed = self.query_one("#line", Input).value.strip()
            draft.write_own_words(typed)
            if typed or not draft.question.options:
                await self._advance()
            else:
                self._writing = False
                self.show_message()
        elif draft.is_at_own_words and not draft.own_words:
            self.action_own_words()
        else:
            draft.settle()
            await self._advance()

    async def _advance(self) -> None:
        """Go to the next question or the review; a single question is submitted at once."""
        if len(self._draft.questions) == 1:
            await self.send(Answer(self.ask_id, "answer", answers=self._draft.list_answers()))
        else:
            self._go_to_question(self._draft.number + 1)

    async def action_cancel(self) -> None:
        if self._draft.is_touched and len(self._draft.questions) > 1 and not self._is_warned:
            self._is_warned = True
            self.show_message(
                f"{self.odin.keys.get_label('cancel')} again cancels all questions; your answers are lost."
            )
            return
        await self.send(Answer(self.ask_id, "cancel"))
