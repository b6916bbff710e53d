"""The list of tasks above the composer, or one line of it."""

from rich.text import Text

from odin.core.event import Todo, TodoStatus
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.panel import Panel, PanelRow, make_text

TODO_MARKS: dict[TodoStatus, str] = {"pending": "○", "in_progress": "▸", "completed": "✓", "cancelled": "✗"}
MIN_ROWS = 3
SCREEN_SHARE = 5
"""The list takes a fifth of the screen at most."""

LOW_SCREEN = 18


class TodoPanel(Panel):
    """`folded` is what the person chose; None folds it where it would take too much of the screen."""

    DEFAULT_CSS = """
    TodoPanel { padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.folded: bool | None = None

    def toggle(self) -> None:
        self.folded = not self.is_folded
        self.sync()

    @property
    def is_folded(self) -> bool:
        if self.folded is not None:
            return self.folded
        return self.odin.side.is_docked or self.odin.size.height < LOW_SCREEN

    def fit(self, rows: int) -> None:
        self.styles.height = rows

    def build_rows(self, width: int) -> list[PanelRow]:
        found = self.facts.todos.get(self.odin.agent)
        if found is None or not found.todos:
            return []
        click = ("todos",)
        if self.is_folded:
            return [PanelRow(format_progress(found.todos, self.palette, width), click)]
        room = max(self.odin.size.height // SCREEN_SHARE, MIN_ROWS)
        return [PanelRow(text, click) for text in format_todos(found.todos, self.palette, width, room)]


def format_progress(todos: tuple[Todo, ...], colours: Palette, width: int) -> Text:
    """`3/7: writing tests`"""
    done = sum(todo.status == "completed" for todo in todos)
    now = next((todo for todo in todos if todo.status == "in_progress"), None)
    following = now or next((todo for todo in todos if todo.status == "pending"), None)
    words = (following.active_form if now is not None else "") or following.content if following else "all done"
    text = Text.assemble(
        (f"{done}/{len(todos)}: ", colours.strong), make_text(words, colours.text), no_wrap=True, end=""
    )
    text.truncate(max(width, 1), overflow="ellipsis")
    return text


def format_todos(todos: tuple[Todo, ...], colours: Palette, width: int, room: int) -> list[Text]:
    """As many as there is room for, around the one that is being worked on."""
    first, last = 0, len(todos)
    if last > room:
        now = next((place for place, todo in enumerate(todos) if todo.status == "in_progress"), None)
        if now is None:
            now = next((place for place, todo in enumerate(todos) if todo.status == "pending"), 0)
        first = max(min(now - 1, len(todos) - (room - 1)), 0)
        last = first + room - 1
    rows = [_format_todo(todo, colours, width) for todo in todos[first:last]]
    hidden = len(todos) - (last - first)
    if hidden:
        rows.append(
            make_text(f"  {hidden} more, {sum(todo.status == 'completed' for todo in todos)} done", colours.dim)
        )
    return rows


def _format_todo(todo: Todo, colours: Palette, width: int) -> Text:
    styles = {"in_progress": colours.accent, "pending": colours.text}
    style = styles.get(todo.status, colours.dim)
    words = todo.active_form if todo.status == "in_progress" and todo.active_form else todo.content
    mark = colours.good if todo.status == "completed" else style
    return Text.assemble(
        (f"{TODO_MARKS[todo.status]} ", mark), make_text(words, style, max(width - 2, 1)), no_wrap=True, end=""
    )
