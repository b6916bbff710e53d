"""TodoWrite: the list of what is to be done."""

from collections import Counter
from typing import Annotated

from msgspec import Meta, Struct

from odin.core.event import Todo, TodoStatus
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
    kind = "talk"
    short = "Replace the todo list."
    args = TodoArgs

    def title_of(self, args: TodoArgs) -> str:
        return f"{len(args.todos)} todos"

    async def run(self, args: TodoArgs, ctx: ToolContext) -> ToolOutput:
        fault = _find_error(args.todos)
        if fault:
            return fail(fault)
        todos = tuple(Todo(item.id, item.content, item.status, item.active_form) for item in args.todos)
        done = sum(todo.status == "completed" for todo in todos)
        checklist = "\n".join(f"{_BOXES[todo.status]} {todo.content}" for todo in todos)
        note = f"Todos: {done} of {len(todos)} completed"
        return ToolOutput(text=f"{note}.\n{checklist}", note=note, view=checklist, todos=todos)


def _find_error(items: tuple[TodoItem, ...]) -> str:
    if not items:
        return "The list is empty. Send every item, also the completed ones."
    ids = [item.id for item in items]
    twice = next((one for one, times in Counter(ids).items() if times > 1), None)
    if twice is not None:
        return f"The id {twice!r} is used more than once. Give every item its own id."
    active = sum(item.status == "in_progress" for item in items)
    if active > 1:
        return f"{active} items are in_progress. Keep only one in_progress and the others pending."
    return ""
