"""Questions of a tool on a terminal, one after the other."""

from odin.core.event import Question, QuestionsAsked
from odin.core.op import AnswerQuestions
from odin.ui.question.tty import Tty
from odin.ui.questions import parse_choice
from odin.ui.terminal import escape_hidden


async def ask_questions(tty: Tty, ask: QuestionsAsked) -> AnswerQuestions:
    """An answer to each. The end of the input (Ctrl-D) cancels them all."""
    answers: list[tuple[str, ...]] = []
    for number, item in enumerate(ask.questions, 1):
        place = f" ({number} of {len(ask.questions)})" if len(ask.questions) > 1 else ""
        text = format_question(item, place)
        answer = None
        while answer is None:
            reply = await tty.ask_line(text)
            if not reply:
                tty.write("\n")
                return AnswerQuestions(ask.ask_id, cancelled=True)
            answer = parse_choice(item, reply)
            text = "Only one of them: "
        tty.write(f"→ {escape_hidden(', '.join(answer) or _default_label_of(item))}\n")
        answers.append(answer)
    return AnswerQuestions(ask.ask_id, tuple(answers))


def format_question(asked: Question, place: str = "") -> str:
    """One question with its options numbered, and how to answer it."""
    head = f"{escape_hidden(asked.header)}: " if asked.header else ""
    lines = [f"Odin asks{place}: {head}" + "\n  ".join(escape_hidden(line) for line in asked.text.split("\n"))]
    for number, option in enumerate(asked.options, 1):
        detail = f" ({escape_hidden(option.detail)})" if option.detail else ""
        lines.append(f"  {number}. {escape_hidden(option.label)}{detail}")
    several = "numbers such as 1,2" if asked.multiple else "a number"
    how = f"{several}, your own words, or Enter for 1; " if asked.options else ""
    return "\n".join([*lines, f"Answer ({how}Ctrl-D cancels): "])


def _default_label_of(asked: Question) -> str:
    return asked.options[0].label if asked.options else "(no answer)"
