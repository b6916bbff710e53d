"""Answers to the questions of a tool while they are being made up, one question after the other."""

from collections.abc import Sequence

from odin.core.event import Question


class AnswersDraft:
    """`number` is the question the person is at; one more than there are means looking at all answers again.

    `cursor` is the option they are at; one more than there are means their own words.
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
        """Whether there is something that a cancel would lose."""
        return any(self._picked) or any(self._own_words)

    def is_picked(self, option: int) -> bool:
        return option in self._picked[self.number]

    def move(self, by: int) -> None:
        rows = len(self.questions) if self.is_reviewing else len(self.question.options) + 1
        self.cursor = (self.cursor + by) % rows

    def toggle(self, option: int) -> None:
        """Choose an option; where only one counts, in the place of another."""
        mine = self._picked[self.number]
        if not self.question.multiple:
            self._picked[self.number], self._own_words[self.number] = [option], ""
        elif option in mine:
            mine.remove(option)
        else:
            mine.append(option)
            mine.sort()

    def settle(self) -> None:
        """Where nothing is chosen yet, or only one can be, the option under the cursor is the answer."""
        if self.is_at_own_words:
            return
        if not self.question.multiple or not (self._picked[self.number] or self.own_words):
            self.toggle(self.cursor)

    def write_own_words(self, words: str) -> None:
        """An answer in the person's own words; where several count, beside what is chosen."""
        self._own_words[self.number] = words
        if words and not self.question.multiple:
            self._picked[self.number] = []

    def go_to(self, number: int) -> None:
        self.number = max(0, min(number, len(self.questions)))
        mine = [] if self.is_reviewing else self._picked[self.number]
        self.cursor = mine[0] if mine else 0
        if not self.is_reviewing and self.own_words and not mine:
            self.cursor = len(self.question.options)

    def answer_of(self, number: int) -> tuple[str, ...]:
        """What was answered; nothing means the first option."""
        chosen = [self.questions[number].options[option].label for option in self._picked[number]]
        return (*chosen, self._own_words[number]) if self._own_words[number] else tuple(chosen)

    def list_answers(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self.answer_of(number) for number in range(len(self.questions)))
