"""TodoWrite: replaces the list of todos."""

from collections import Counter
from typing import Annotated

from msgspec import Meta, Struct

from odin.core.event_values import Todo, TodoStatus
from odin.core.tool import Args, Tool, ToolContext, ToolOutput, fail

_BOXES: dict[TodoStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


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
    kind = "interactive"
    short = "Replace the todo list."
    args = TodoArgs

    def get_title(self, args: TodoArgs) -> str:
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
