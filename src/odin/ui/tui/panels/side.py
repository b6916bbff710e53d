"""The list of tasks above the composer, or one line of it.

What the panel at the side says, section by section. A section with nothing to say is not there.

The panel at the side: the model, the window, the money, the tasks, the files, the agents and what runs on.
"""

from dataclasses import dataclass

from rich.text import Text
from textual import events

from odin.core.event import Todo, TodoStatus
from odin.ui.terminal import escape_hidden
from odin.ui.terminal import width_of as width_of
from odin.ui.tui.format import format_count, format_usd, shorten_home
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.agent_activity import AgentStatus
from odin.ui.tui.panels.facts import EditedFile, SessionFacts
from odin.ui.tui.panels.panel import Panel, PanelRow, align_sides, make_text
from odin.ui.tui.panels.status import NEARLY_FULL, format_cost

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


MAX_FILES, MAX_AGENTS, MAX_PROCESSES, MAX_TODOS = 12, 8, 5, 10


@dataclass(frozen=True, slots=True)
class SideSections:
    """`agent` is the one that is looked at, `now` the time, `width` the room there is."""

    facts: SessionFacts
    palette: Palette
    width: int
    agent: str = ""
    now: float = 0.0

    def build_rows(self) -> list[PanelRow]:
        sections = (
            self._build_model(),
            self._build_context(),
            self._build_cost(),
            self._build_todos(),
            self._build_agents(),
            self._build_files(),
            self._build_processes(),
            self._build_project(),
        )
        found: list[PanelRow] = []
        for section in sections:
            if section:
                found += [*([PanelRow(Text(""))] if found else []), *section]
        return found

    def _make_heading(self, text: str) -> PanelRow:
        return PanelRow(make_text(text, self.palette.strong))

    def _make_line(self, text: str) -> PanelRow:
        return PanelRow(make_text(text, self.palette.text, self.width))

    def _make_dim_line(self, text: str) -> PanelRow:
        return PanelRow(make_text(text, self.palette.dim, self.width))

    def _build_model(self) -> list[PanelRow]:
        facts = self.facts
        rows = [self._make_heading("Model"), self._make_line(facts.chosen_model or "not known yet")]
        if facts.running_model != facts.chosen_model:
            rows.append(PanelRow(make_text(f"answering: {facts.running_model}", self.palette.warn, self.width)))
        if facts.key_note:
            rows.append(self._make_dim_line(facts.key_note))
        return rows

    def _build_context(self) -> list[PanelRow]:
        report, full = self.facts.context, self.facts.fullness
        if report is None or full is None:
            return []
        colours = self.palette
        about = "" if report.measured else "about "
        cells = max(self.width - 6, 4)
        used = min(round(full * cells), cells)
        style = colours.warn if full >= NEARLY_FULL else colours.accent
        bar = Text.assemble(("━" * used, style), ("─" * (cells - used), colours.dim), (f" {full:>4.0%}", style), end="")
        until = "until a summary is made" if report.threshold else "in the window"
        room = report.threshold or report.limit
        rows = [
            self._make_heading("Context"),
            PanelRow(bar),
            self._make_dim_line(f"{about}{report.used:,} of {room:,} tokens"),
        ]
        rows.append(self._make_dim_line(until if not report.compacting else "a summary is being made"))
        return rows

    def _build_cost(self) -> list[PanelRow]:
        facts, spent = self.facts, self.facts.usage_totals
        if not spent.calls:
            return []
        rows = [
            self._make_heading("Spent"),
            self._make_line(f"{format_cost(facts)} · {format_count(spent.usage.total)} tokens"),
        ]
        if facts.budget_usd:
            left = max(facts.budget_usd - spent.cost_usd, 0.0)
            rows.append(self._make_dim_line(f"{format_usd(left)} of {format_usd(facts.budget_usd)} left"))
        if spent.cache_hit_rate:
            rows.append(self._make_dim_line(f"{spent.cache_hit_rate:.0%} came from the cache"))
        if facts.low_limit:
            rows.append(PanelRow(make_text(f"limit: {facts.low_limit}", self.palette.warn, self.width)))
        return rows

    def _build_todos(self) -> list[PanelRow]:
        found = self.facts.todos.get(self.agent)
        todos: tuple[Todo, ...] = found.todos if found is not None else ()
        if not todos:
            return []
        return [
            self._make_heading("Tasks"),
            *(PanelRow(text) for text in format_todos(todos, self.palette, self.width, MAX_TODOS)),
        ]

    def _build_agents(self) -> list[PanelRow]:
        agents = list(self.facts.agents.all.values())
        if not agents:
            return []
        asking = len(self.facts.agents.asking)
        head = Text.assemble(("Agents", self.palette.strong), end="")
        if asking:
            head.append(f"  {asking} waiting for you", self.palette.warn)
        return [PanelRow(head), *(self._build_agent(line) for line in agents[-MAX_AGENTS:])]

    def _build_agent(self, line: AgentStatus) -> PanelRow:
        colours = self.palette
        words = line.activity.describe(self.now)
        state = (
            "done" if line.end_reason == "end_turn" else line.end_reason.replace("_", " ") or words.text or "starting"
        )
        mark = "?" if line.is_asking else "✓" if line.end_reason == "end_turn" else "✗" if line.end_reason else "•"
        style = colours.agents[line.number % len(colours.agents)]
        task = escape_hidden(line.task.strip().split("\n")[0])
        name = Text.assemble((f"{mark} {escape_hidden(line.id)} ", style), (task, colours.text), no_wrap=True, end="")
        return PanelRow(
            align_sides(
                name, make_text(state, colours.warn if line.is_asking else colours.dim, self.width // 2), self.width
            ),
            ("show_agent", line.id),
        )

    def _build_files(self) -> list[PanelRow]:
        files = list(self.facts.edited_files.files.values())
        if not files:
            return []
        rows = [self._make_heading(f"Changed files ({len(files)})" if len(files) > 1 else "Changed file")]
        rows += [self._build_file(file) for file in reversed(files[-MAX_FILES:])]
        if len(files) > MAX_FILES:
            rows.append(self._make_dim_line(f"{len(files) - MAX_FILES} more"))
        return rows

    def _build_file(self, file: EditedFile) -> PanelRow:
        colours = self.palette
        counts = Text(end="")
        if file.is_deleted:
            counts.append("deleted", colours.bad)
        elif file.is_counted:
            counts.append(f"+{file.added}", colours.good)
            counts.append(f" -{file.removed}", colours.bad)
        room = max(self.width - width_of(counts.plain) - 1, 4)
        return PanelRow(
            align_sides(make_text(_tail_of(self._format_path(file.path), room), colours.text), counts, self.width),
            ("show_change", file.call_id),
        )

    def _format_path(self, path: str) -> str:
        info = self.facts.info
        root = f"{info.cwd.rstrip('/')}/" if info is not None else ""
        return escape_hidden(path.removeprefix(root) if root and path.startswith(root) else shorten_home(path))

    def _build_processes(self) -> list[PanelRow]:
        running = list(self.facts.processes.items())
        if not running:
            return []
        rows = [self._make_heading("Running on")]
        rows += [self._make_line(f"• {name} {what}") for name, what in running[-MAX_PROCESSES:]]
        if len(running) > MAX_PROCESSES:
            rows.append(self._make_dim_line(f"{len(running) - MAX_PROCESSES} more"))
        return rows

    def _build_project(self) -> list[PanelRow]:
        info = self.facts.info
        if info is None:
            return []
        rows = [
            self._make_heading(escape_hidden(self.facts.title) or "Session"),
            self._make_dim_line(shorten_home(info.cwd)),
        ]
        if info.branch:
            rows.append(self._make_dim_line(f"on {info.branch}"))
        if info.sandbox:
            rows.append(self._make_dim_line(info.sandbox))
        return rows


def _tail_of(path: str, room: int) -> str:
    """The end of a path says more than its beginning."""
    return path if width_of(path) <= room else f"…{path[-(room - 1) :]}"


DOCKED_WIDTH = 130
"""Columns from which on the panel stands beside the conversation; with fewer it lies over it."""


class SidePanel(Panel):
    """`chosen` is what the person wants; None shows it where there is room, if the settings say so."""

    DEFAULT_CSS = """
    SidePanel {
        width: 40; max-width: 90%; height: 100%; dock: right; padding: 0 1;
        border-left: solid $primary 30%;
    }
    SidePanel.-over { layer: above; background: $surface; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.user_choice: bool | None = None

    @property
    def is_wanted(self) -> bool:
        return self.user_choice if self.user_choice is not None else self.odin.settings.side_panel and self._has_room

    @property
    def is_docked(self) -> bool:
        """Whether it stands beside the conversation, always in sight."""
        return self.is_wanted and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.odin.size.width >= DOCKED_WIDTH

    def toggle(self) -> None:
        self.user_choice = not self.is_wanted
        self.update_placement()

    def update_placement(self) -> None:
        """Be where there is room now: beside the conversation, over it, or nowhere."""
        self.display = self.is_wanted
        self.set_class(not self._has_room, "-over")
        self.sync()

    def on_resize(self, event: events.Resize) -> None:
        self.update_placement()

    def build_rows(self, width: int) -> list[PanelRow]:
        return SideSections(self.facts, self.palette, width, self.odin.agent, self.odin.clock()).build_rows()
