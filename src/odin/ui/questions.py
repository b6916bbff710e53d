"""Questions of a tool to a person: what typed words mean, and the form in which SDK clients are asked.

SDK clients know such questions as calls of a tool named AskUserQuestion that they are asked to permit. They answer by
permitting it with changed input, which holds under `answers` the chosen labels by the text of the question.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

from odin.core.event import Question

SDK_TOOL = "AskUserQuestion"


def parse_choice(question: Question, typed: str) -> tuple[str, ...] | None:
    """What a typed line answers: numbers or labels of options, or words of one's own. None when it must be asked again.

    An empty line is no answer, which means the first option.
    """
    line = typed.strip()
    between = r"[\s,]+" if re.fullmatch(r"[\d\s,]+", line) else r"\s*,\s*"
    parts = [part for part in re.split(between, line) if part]
    picked = [_match_option(question, part) for part in parts]
    if len(picked) > 1 and all(picked):
        return tuple(dict.fromkeys(picked)) if question.multiple else None
    whole = _match_option(question, line)
    return (whole or line,) if line else ()


def _match_option(question: Question, word: str) -> str:
    """The label of the option with this number or this label, or ""."""
    if word.isdecimal() and 1 <= int(word) <= len(question.options):
        return question.options[int(word) - 1].label
    return next((option.label for option in question.options if option.label.casefold() == word.casefold()), "")


def to_sdk_input(questions: Sequence[Question]) -> dict[str, Any]:
    return {
        "questions": [
            {
                "question": question.text,
                "header": question.header,
                "options": [{"label": option.label, "description": option.detail} for option in question.options],
                "multiSelect": question.multiple,
            }
            for question in questions
        ]
    }


def parse_sdk_answers(questions: Sequence[Question], changed: Any) -> tuple[tuple[str, ...], ...]:
    """The answers in the input that a client gave back; where it has none, the question keeps its default."""
    given = cast("dict[str, Any]", changed).get("answers") if isinstance(changed, dict) else None
    answers = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return tuple(_parse_sdk_answer(question, answers.get(question.text)) for question in questions)


def _parse_sdk_answer(question: Question, given: Any) -> tuple[str, ...]:
    if isinstance(given, list):
        return tuple(str(item) for item in cast("list[Any]", given))
    if given is None or not str(given).strip():
        return ()
    text = str(given)
    labels = {option.label for option in question.options}
    parts = text.split(", ")
    return tuple(parts) if question.multiple and text not in labels and labels.issuperset(parts) else (text,)
