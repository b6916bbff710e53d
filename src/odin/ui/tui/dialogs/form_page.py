"""The form of an interaction, filled in field by field: the answers so far, and how they are painted."""

from collections.abc import Sequence

from textual.strip import Strip

from odin.core.interaction import FormField
from odin.ui.terminal import escape_hidden, wrap_words
from odin.ui.tui.dialogs.interaction_view import paint_option, paint_sentence
from odin.ui.tui.dialogs.widgets import DialogChoice
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.paint.canvas import Canvas, make_blank

OWN_WORDS = "Other"

OptionLines = dict[int, int]
"""The number of the option, or of the field in the review, that a line of the page shows."""


class AnswersDraft:
    """The answers entered so far.

    `number` is the current field; one past the last is the review. `cursor` is the current option; one past the last is
    the free-text answer, which the user `is_writing`.
    """

    def __init__(self, fields: Sequence[FormField]) -> None:
        self.fields = tuple(fields)
        self.number = 0
        self.cursor = 0
        self.is_writing = bool(fields) and not fields[0].options
        self._picked: list[list[int]] = [[] for _ in fields]
        self._own_words = [""] * len(fields)

    @property
    def is_reviewing(self) -> bool:
        return self.number >= len(self.fields)

    @property
    def field(self) -> FormField:
        return self.fields[self.number]

    @property
    def own_words(self) -> str:
        return self._own_words[self.number]

    @property
    def row_count(self) -> int:
        """How many rows the cursor moves over: the options, and own words unless only options are allowed."""
        if self.is_reviewing:
            return len(self.fields)
        return len(self.field.options) + (self.field.type != "choice")

    @property
    def is_at_own_words(self) -> bool:
        return not self.is_reviewing and self.cursor >= len(self.field.options)

    @property
    def is_touched(self) -> bool:
        """True if cancelling would lose an answer."""
        return any(self._picked) or any(self._own_words)

    def is_picked(self, option: int) -> bool:
        return option in self._picked[self.number]

    def move(self, by: int) -> None:
        self.cursor = (self.cursor + by) % self.row_count

    def toggle(self, option: int) -> None:
        """Select or unselect an option; a single-choice field keeps only this one."""
        picked = self._picked[self.number]
        if not self.field.multiple:
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
        if not self.field.multiple or not (self._picked[self.number] or self.own_words):
            self.toggle(self.cursor)

    def write_own_words(self, words: str) -> None:
        """Set the free-text answer; a multiple-choice field keeps its selected options."""
        self._own_words[self.number] = words
        if words and not self.field.multiple:
            self._picked[self.number] = []

    def go_to(self, number: int) -> None:
        self.number = max(0, min(number, len(self.fields)))
        picked = [] if self.is_reviewing else self._picked[self.number]
        self.cursor = picked[0] if picked else 0
        if not self.is_reviewing and self.own_words and not picked:
            self.cursor = len(self.field.options)
        self.is_writing = not self.is_reviewing and not self.field.options

    def find_problem(self) -> str:
        """Return what is wrong with the answer to the current field, or ""."""
        return self.field.find_problem(self.get_answer(self.number))

    def get_answer(self, number: int) -> tuple[str, ...]:
        """Return the answer to a field; empty means the first option."""
        chosen = [self.fields[number].options[option].label for option in self._picked[number]]
        return (*chosen, self._own_words[number]) if self._own_words[number] else tuple(chosen)

    def list_answers(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self.get_answer(number) for number in range(len(self.fields)))

    # --- appearance ---

    def format_title(self, asker: str) -> str:
        if self.is_reviewing:
            return "Your answers"
        place = f" ({self.number + 1} of {len(self.fields)})" if len(self.fields) > 1 else ""
        return f"{asker} asks{place}" + (f": {escape_hidden(self.field.label)}" if self.field.label else "")

    def list_choices(self, keys: KeyTable) -> Sequence[DialogChoice]:
        several, is_last = len(self.fields) > 1, self.number + 1 == len(self.fields)
        named = [("settle", "Submit" if self.is_reviewing else "Review" if is_last else "Next")]
        if not several:
            named = [("settle", "Answer")]
        cancel = ("cancel", "Cancel all" if several else "Cancel")
        if self.is_writing:
            back = [("previous_question", "Back")] if self.number else []
            named += [("list", "Back to the options")] if self.field.options else [*back, cancel]
        else:
            named += [("toggle_option", "Select")] if not self.is_reviewing and self.field.multiple else []
            named += [("own_words", OWN_WORDS)] if not self.is_reviewing and self.field.type != "choice" else []
            named += [("previous_question", "Back")] if self.number else []
            named += [cancel]
        typing = {"settle": "confirm", "previous_question": "previous_option", "list": "back"}
        shown = typing if self.is_writing else {}
        return [
            DialogChoice(name, keys.get_label(shown.get(name, name)), label, "Cancel" if name == "cancel" else "")
            for name, label in named
        ]

    def paint(self, canvas: Canvas, lines: OptionLines) -> list[Strip]:
        """Paint the current field with its options, or the review, and note which line shows which option."""
        lines.clear()
        return self._paint_review(canvas, lines) if self.is_reviewing else self._paint_field(canvas, lines)

    def _paint_field(self, canvas: Canvas, lines: OptionLines) -> list[Strip]:
        field, colors = self.field, canvas.palette
        strips = [row for line in field.text.split("\n") for row in paint_sentence(canvas, escape_hidden(line))]
        if not field.options:
            return strips
        strips.append(make_blank())
        rows = [(escape_hidden(option.label), bool(self.is_picked(at))) for at, option in enumerate(field.options)]
        rows[0] = (rows[0][0] + ("" if field.multiple else " (default)"), rows[0][1])
        rows.append((escape_hidden(self.own_words) or f"{OWN_WORDS} …", bool(self.own_words)))
        for number, (text, is_chosen) in enumerate(rows[: self.row_count]):
            here, is_option = number == self.cursor and not self.is_writing, number < len(field.options)
            box = ("[x] " if is_chosen else "[ ] ") if field.multiple else ("● " if is_chosen else "○ ")
            lines[len(strips)] = number
            strips.append(paint_option(canvas, f"{number + 1} " if is_option else "  ", box + text, here=here))
            detail = field.options[number].detail if is_option else ""
            for row in wrap_words(escape_hidden(detail), canvas.width - 8).split("\n") if detail else ():
                lines[len(strips)] = number
                strips.append(canvas.paint_row((f"        {row}", colors.dim)))
        return strips

    def _paint_review(self, canvas: Canvas, lines: OptionLines) -> list[Strip]:
        colors, strips = canvas.palette, list[Strip]()
        for number, field in enumerate(self.fields):
            title, empty = escape_hidden(field.label or field.text), "(first option)" if field.options else "(empty)"
            head = ("› " if number == self.cursor else "  ", colors.accent)
            answer = "    " + escape_hidden(", ".join(self.get_answer(number)) or empty)
            for row in (canvas.paint_row(head, (f"{number + 1} {title}", colors.dim)), *paint_sentence(canvas, answer)):
                lines[len(strips)] = number
                strips.append(row)
        return strips
