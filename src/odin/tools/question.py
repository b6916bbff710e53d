"""Question: asks the user to choose."""

from typing import Annotated, Any, cast

from msgspec import Meta, Struct

from odin.core.errors import NeedsConfirmation
from odin.core.event_values import Option
from odin.core.event_values import Question as Asked
from odin.core.tool import Args, AskUser, Tool, ToolContext, ToolOutput, fail

_FIELD_NAMES = {"question": "text", "multiSelect": "multiple", "description": "detail"}
"""Field names that models know from other agents, and the names used here."""


_DECIDE = "Choose what is likeliest meant, go on, and say in your answer what you assumed."


class OptionArgs(Struct, frozen=True, forbid_unknown_fields=True):
    label: str
    detail: str = ""


class QuestionArg(Struct, frozen=True, forbid_unknown_fields=True):
    header: str
    text: str
    options: tuple[OptionArgs, ...] = ()
    multiple: bool = False


class QuestionArgs(Args, frozen=True):
    questions: Annotated[tuple[QuestionArg, ...], Meta(min_length=1)]


class QuestionTool(Tool[QuestionArgs]):
    """Ask the user what only they can decide, likeliest option first."""

    name = "Question"
    kind = "interactive"
    short = "Ask the user to choose."
    args = QuestionArgs

    def __init__(self, ask: AskUser | None) -> None:
        self._ask = ask
        self.offered = ask is not None

    def parse(self, raw: dict[str, Any]) -> QuestionArgs:
        return super().parse(_rename_fields(raw))

    def get_title(self, args: QuestionArgs) -> str:
        return args.questions[0].text

    async def run(self, args: QuestionArgs, ctx: ToolContext) -> ToolOutput:
        if self._ask is None:
            return fail(f"No user can be asked here. {_DECIDE}")
        questions = tuple(_build_question(item) for item in args.questions)
        try:
            answers = await self._ask(ctx.call_id, questions)
        except TimeoutError:
            return fail(f"The user did not answer in time. {_DECIDE}")
        except NeedsConfirmation as error:
            return fail(f"{error} {_DECIDE}")
        if answers is None:
            return fail("cancelled by user")
        lines = [
            f"{item.header or item.text}: {', '.join(answer) or '(no answer)'}"
            for item, answer in zip(questions, answers, strict=True)
        ]
        text = "\n".join(lines)
        return ToolOutput(text=f"The user answered:\n{text}", note=f"Asked: {'; '.join(lines)}", view=text)


def _build_question(item: QuestionArg) -> Asked:
    options = tuple(Option(option.label, option.detail) for option in item.options)
    return Asked(item.header, item.text, options, item.multiple)


def _rename_fields(value: Any) -> Any:
    """Rename fields to the names used here. A field given under both names is left as it is, and is refused later."""
    if isinstance(value, list):
        return [_rename_fields(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {_find_field_name(key, fields): _rename_fields(item) for key, item in fields.items()}


def _find_field_name(key: str, fields: dict[str, Any]) -> str:
    name = _FIELD_NAMES.get(key, key)
    return key if name in fields else name
