"""Tools that talk and do not touch the machine: TodoWrite, Question and AgentTool."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ClassVar, cast

from msgspec import Meta, Struct

from odin.core.errors import UsageError
from odin.core.event import TurnEnded
from odin.core.event_values import Option, Todo, TodoStatus
from odin.core.event_values import Question as Asked
from odin.core.tool import Args, AskUser, Kind, SideEffect, SubAgentTask, Tool, ToolContext, ToolOutput, fail

_BOXES: dict[TodoStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}

_FIELD_NAMES = {"question": "text", "multiSelect": "multiple", "description": "detail"}
"""Field names that models know from other agents, and the names used here."""

_DECIDE = "Choose what is likeliest meant, go on, and say in your answer what you assumed."

RunTask = Callable[[SubAgentTask], Awaitable[TurnEnded]]
"""Runs a task until its turn ends."""


class TodoItem(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    content: Annotated[str, Meta(min_length=1)]
    status: TodoStatus
    active_form: str = ""


class TodoArgs(Args, frozen=True):
    todos: tuple[TodoItem, ...]


class TodoWriteTool(Tool[TodoArgs]):
    """Replace the whole todo list. One item in_progress at a time."""

    name = "TodoWrite"
    kind = "talk"
    short = "Replace the todo list."
    args = TodoArgs

    def title_of(self, args: TodoArgs) -> str:
        return _format_progress(args.todos)

    async def run(self, args: TodoArgs, ctx: ToolContext) -> ToolOutput:
        error = _find_error(args.todos)
        if error:
            return fail(error)
        todos = tuple(Todo(item.id, item.content, item.status, item.active_form) for item in args.todos)
        checklist = "\n".join(f"{_BOXES[todo.status]} {todo.content}" for todo in todos)
        note = f"Todos: {_format_progress(args.todos)}"
        return ToolOutput(text=f"{note}.\n{checklist}", note=note, view=checklist, todos=todos)


def _format_progress(items: tuple[TodoItem, ...]) -> str:
    return f"{sum(item.status == 'completed' for item in items)} of {len(items)} completed"


def _find_error(items: tuple[TodoItem, ...]) -> str:
    if not items:
        return "The list is empty. Send every item, also the completed ones."
    ids = [item.id for item in items]
    duplicate = next((key for key, count in Counter(ids).items() if count > 1), None)
    if duplicate is not None:
        return f"The id {duplicate!r} is used more than once. Give every item its own id."
    active = sum(item.status == "in_progress" for item in items)
    if active > 1:
        return f"{active} items are in_progress. Keep only one in_progress and the others pending."
    return ""


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
            return fail(f"No user can be asked here. {_DECIDE}")
        questions = tuple(_build_question(item) for item in args.questions)
        try:
            answers = await self._ask(ctx.call_id, questions)
        except TimeoutError:
            return fail(f"The user did not answer in time. {_DECIDE}")
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
    return {_field_name_of(key, fields): _rename_fields(item) for key, item in fields.items()}


def _field_name_of(key: str, fields: dict[str, Any]) -> str:
    name = _FIELD_NAMES.get(key, key)
    return key if name in fields else name


class AgentArgs(Args, frozen=True):
    description: str
    prompt: str
    agent_type: str = ""


class AgentTool(Tool[AgentArgs]):
    """Give a wide search or side task to a sub-agent and wait for its one answer: say exactly what to report."""

    name = "AgentTool"
    kind: Kind = "talk"
    short = "Give a self-contained task to a sub-agent and get its answer."
    args: ClassVar[type[Args]] = AgentArgs
    argument_aliases: ClassVar[tuple[tuple[str, str], ...]] = (("subagent_type", "agent_type"),)

    def __init__(self, run: RunTask) -> None:
        self._run = run

    @property
    def side_effect(self) -> SideEffect:
        """Mutating, because the sub-agent has every tool of the mode."""
        return "mutating"

    def title_of(self, args: AgentArgs) -> str:
        return args.description

    def refusal_of(self, args: AgentArgs) -> str:
        has_task = args.description.strip() and args.prompt.strip()
        return "" if has_task else "The sub-agent needs a description and a prompt."

    async def run(self, args: AgentArgs, ctx: ToolContext) -> ToolOutput:
        task = SubAgentTask(args.description, args.prompt, ctx.mode, ctx.call_id, ctx.agent, args.agent_type)
        try:
            ended = await self._run(task)
        except UsageError as error:
            return fail(error.describe())
        note = f"sub-agent: {args.description}"
        if ended.reason == "end_turn":
            return ToolOutput(text=ended.text, note=note)
        return fail(
            f"The sub-agent stopped early ({ended.reason}): {ended.error} What it said last: {ended.text}".strip()
        )
