"""Questions of a tool on a terminal, one after the other."""

from odin.core.event import Question, QuestionsAsked
from odin.core.op import AnswerQuestions
from odin.ui.question.tty import Tty
from odin.ui.questions import chosen
from odin.ui.terminal import visible


async def choose(tty: Tty, ask: QuestionsAsked) -> AnswerQuestions:
    """An answer to each. The end of the input (Ctrl-D) cancels them all."""
    answers: list[tuple[str, ...]] = []
    for number, item in enumerate(ask.questions, 1):
        place = f" ({number} of {len(ask.questions)})" if len(ask.questions) > 1 else ""
        text = choices(item, place)
        answer = None
        while answer is None:
            reply = await tty.line(text)
            if not reply:
                tty.say("\n")
                return AnswerQuestions(ask.ask_id, cancelled=True)
            answer = chosen(item, reply)
            text = "Only one of them: "
        tty.say(f"→ {visible(', '.join(answer) or _default(item))}\n")
        answers.append(answer)
    return AnswerQuestions(ask.ask_id, tuple(answers))


def choices(asked: Question, place: str = "") -> str:
    """One question with its options numbered, and how to answer it."""
    head = f"{visible(asked.header)}: " if asked.header else ""
    lines = [f"Odin asks{place}: {head}" + "\n  ".join(visible(line) for line in asked.text.split("\n"))]
    for number, option in enumerate(asked.options, 1):
        detail = f" ({visible(option.detail)})" if option.detail else ""
        lines.append(f"  {number}. {visible(option.label)}{detail}")
    several = "numbers such as 1,2" if asked.multiple else "a number"
    how = f"{several}, your own words, or Enter for 1; " if asked.options else ""
    return "\n".join([*lines, f"Answer ({how}Ctrl-D cancels): "])


def _default(asked: Question) -> str:
    return asked.options[0].label if asked.options else "(no answer)"
