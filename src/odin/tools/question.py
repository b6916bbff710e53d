"""Question: let the person decide what the model cannot."""

from typing import Annotated, Any, cast

from msgspec import Meta, Struct

from odin.core.event import Option
from odin.core.event import Question as Asked
from odin.core.tool import Args, AskUser, Tool, ToolContext, ToolOutput, fail

_FIELD_NAMES = {"question": "text", "multiSelect": "multiple", "description": "detail"}
"""What the models of other agents write, and the fields here."""

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
    kind = "talk"
    short = "Ask the user to choose."
    args = QuestionArgs

    def __init__(self, ask: AskUser | None) -> None:
        self._ask = ask
        self.offered = ask is not None

    def parse(self, raw: dict[str, Any]) -> QuestionArgs:
        return super().parse(_rename_fields(raw))

    def title_of(self, args: QuestionArgs) -> str:
        return args.questions[0].text

    async def run(self, args: QuestionArgs, ctx: ToolContext) -> ToolOutput:
        if self._ask is None:
            return fail(f"Nobody can be asked here. {_DECIDE}")
        questions = tuple(_build_question(item) for item in args.questions)
        try:
            answers = await self._ask(ctx.call_id, questions)
        except TimeoutError:
            return fail(f"Nobody answered in time. {_DECIDE}")
        if answers is None:
            return fail("cancelled by user")
        lines = [
            f"{item.header or item.text}: {_format_answer(said)}" for item, said in zip(questions, answers, strict=True)
        ]
        text = "\n".join(lines)
        return ToolOutput(text=f"The user answered:\n{text}", note=f"Asked: {'; '.join(lines)}", view=text)


def _build_question(item: QuestionArg) -> Asked:
    options = tuple(Option(option.label, option.detail) for option in item.options)
    return Asked(item.header, item.text, options, item.multiple)


def _format_answer(said: tuple[str, ...]) -> str:
    return ", ".join(said) or "(no answer)"


def _rename_fields(value: Any) -> Any:
    """The same arguments with the names of fields that are used here. One that is given twice stays, and is refused."""
    if isinstance(value, list):
        return [_rename_fields(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    return {_field_name_of(key, found): _rename_fields(item) for key, item in found.items()}


def _field_name_of(key: str, found: dict[str, Any]) -> str:
    own = _FIELD_NAMES.get(key, key)
    return key if own in found else own
