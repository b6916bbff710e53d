"""What a session asks, as a message with buttons, and the answer as it is pressed or typed in a chat."""

import re
from collections.abc import Iterator

from odin.core.errors import UsageError
from odin.core.interaction import Detail, FormField, Interaction
from odin.core.op import Answer
from odin.gateway.channel import Button
from odin.ui.callbacks import parse_choice
from odin.ui.permission_text import format_headline, list_offered_rules
from odin.ui.terminal import escape_control, escape_hidden

MAX_SHOWN_CHARS = 12_000
"""A longer request is not shown in full, and can only be denied in a chat."""

_WORDS = {
    "allow_once": "yes",
    "allow_session": "always",
    "deny": "no",
    "stop": "stop",
    "approve": "approve",
    "keep_planning": "keep",
    "cancel": "cancel",
}
"""What is typed for a choice."""

_FENCES = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)


class ChatRequest:
    """An interaction in a chat. `in_group`: no words answer it, but buttons, if the channel has them."""

    def __init__(self, interaction: Interaction, session: str, cwd: str, *, in_group: bool, has_buttons: bool) -> None:
        self.interaction = interaction
        self.is_shown = False
        self._in_group = in_group
        self._has_buttons = has_buttons
        self._elsewhere = f"Answer it with `odin -r {session}`"
        self._answers: list[tuple[str, ...]] = []
        self._rule = next(iter(list_offered_rules(interaction)), "")
        shown = "\n\n".join([escape_control(format_headline(interaction, cwd)), *_list_details(interaction)])
        self._is_too_long = len(shown) > MAX_SHOWN_CHARS
        if self._is_too_long:
            hint = f"This is too long to be allowed here. {self._elsewhere}, or deny it."
            shown = f"{shown[:1000]}…\n\n{hint}"
        self._shown = shown

    @property
    def key(self) -> str:
        """What is different for every message that asks something."""
        return f"{self.interaction.id}.{len(self._answers)}"

    @property
    def _field(self) -> FormField | None:
        """The question that comes next."""
        is_form = self.interaction.kind in ("questions", "elicitation")
        return self.interaction.form[len(self._answers)] if is_form else None

    def describe(self) -> tuple[str, tuple[Button, ...]]:
        """Return what to send."""
        ask, field = self.interaction.id, self._field
        if field is not None:
            lines = [f"**{escape_hidden(field.label)}**"] if field.label else []
            lines.append(escape_control(field.text))
            for number, option in enumerate(field.options, 1):
                detail = f" ({escape_hidden(option.detail)})" if option.detail else ""
                lines.append(f"{number}. {escape_hidden(option.label)}{detail}")
            options = () if field.multiple else field.options
            buttons = [Button(escape_hidden(option.label)[:40], f"{ask}={at}") for at, option in enumerate(options, 1)]
            lines.append(self._say_how("Answer with a number or in your own words; `cancel` declines."))
            buttons.append(Button("Cancel", f"{ask}=cancel"))
            return "\n".join(filter(None, lines)), tuple(buttons) if self._has_buttons else ()
        choices = [
            choice for choice in self.interaction.choices if choice.key in _WORDS and self._may_choose(choice.key)
        ]
        words = ", ".join(f"`{_WORDS[choice.key]}` ({choice.label})" for choice in choices)
        lines = [self._shown]
        if self._rule and self._may_choose("allow_session"):
            lines.append(f"`always` allows `{self._rule}` in this session.")
        other = ", or say what should change" if self.interaction.kind == "plan" else ""
        lines.append(self._say_how(f"Answer with {words}{other}."))
        buttons = [Button(choice.short or choice.label, f"{ask}={choice.key}") for choice in choices]
        return "\n\n".join(filter(None, lines)), tuple(buttons) if self._has_buttons else ()

    def _say_how(self, words: str) -> str:
        """Return how it is answered, which is told by the buttons in a group."""
        if not self._in_group:
            return words
        return "" if self._has_buttons else f"{self._elsewhere}."

    def _may_choose(self, key: str) -> bool:
        if key == "allow_session" and not self._rule:
            return False
        return not self._is_too_long or not key.startswith(("allow", "approve"))

    def press(self, choice: str) -> Answer | None:
        """Return the answer that a button stands for; None if another question follows."""
        field = self._field
        if field is not None and choice.isdecimal():
            if 1 <= int(choice) <= len(field.options):
                return self._fill_in((field.options[int(choice) - 1].label,))
            raise UsageError("There is no such choice any more.")
        return self._choose(choice)

    def read(self, typed: str) -> Answer | None:
        """Return the answer that was typed; None if another question follows. Raise UsageError if it is invalid."""
        line, field = typed.strip(), self._field
        if key := self._find_word(line):
            return self._choose(key, line.partition(" ")[2].strip())
        if field is not None:
            answer = parse_choice(field, line)
            if problem := "Choose only one." if answer is None else field.find_problem(answer):
                raise UsageError(problem)
            assert answer is not None
            return self._fill_in(answer)
        if self.interaction.kind == "plan":
            return Answer(self.interaction.id, "revise", line)
        raise UsageError("This is no answer.")

    def takes(self, typed: str) -> bool:
        """True if what was typed is an answer, and not another message."""
        return self.interaction.kind != "permission" or bool(self._find_word(typed))

    def _find_word(self, typed: str) -> str:
        """Return the key of the choice whose word was typed. The reason may follow a `no`."""
        word, _, rest = typed.strip().partition(" ")
        meant = word.rstrip(",.:;!").casefold()
        keys = (choice.key for choice in self.interaction.choices if _WORDS.get(choice.key) == meant)
        return next((key for key in keys if key == "deny" or not rest), "")

    def _fill_in(self, answer: tuple[str, ...]) -> Answer | None:
        self._answers.append(answer)
        if len(self._answers) < len(self.interaction.form):
            return None
        return Answer(self.interaction.id, "answer", answers=tuple(self._answers))

    def _choose(self, key: str, text: str = "") -> Answer:
        self.interaction.find_choice(key)
        if not self._may_choose(key):
            raise UsageError("This is too long to be allowed here.", "Deny it, or answer it on the computer.")
        return Answer(self.interaction.id, key, text, rule=self._rule if key == "allow_session" else "")


def _list_details(interaction: Interaction) -> Iterator[str]:
    """Yield the parts of the request: what would be run or changed, and what to know about it."""
    yield from map(_format_detail, interaction.details)
    said = (interaction.effect, *interaction.warnings, interaction.sandbox)
    yield from (escape_control(text) for text in said if text)


def _format_detail(detail: Detail) -> str:
    text = escape_control(detail.text)
    if detail.kind in ("quote", "diff"):
        longest = max((len(found) for found in _FENCES.findall(text)), default=2)
        fence = "`" * max(3, longest + 1)
        text = f"{fence}{'diff' if detail.kind == 'diff' else ''}\n{text}\n{fence}"
    return f"{detail.heading}\n{text}" if detail.heading else text
