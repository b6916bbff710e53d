"""The todo list above the composer, and the side panel with model, context, cost, todos, agents and edited files."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace
from rich.text import Text
from textual import events

from odin.core.event_values import LanguageServerState, ServerStatus, Todo, TodoStatus
from odin.core.format import format_count, format_usd, get_model_name
from odin.core.team import STATE_WORDS
from odin.ui.agent_activity import AgentStatus
from odin.ui.edited_files import EditedFile
from odin.ui.session_facts import SessionFacts
from odin.ui.slash_commands.extensions import SERVER_MARKS, USED_MARK, describe_server_state
from odin.ui.slash_commands.reports import describe_keys
from odin.ui.status_parts import format_cost
from odin.ui.terminal import escape_hidden, measure_width, shorten_home
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.panel import Panel, PanelRow, align_sides, make_text

TODO_MARKS: dict[TodoStatus, str] = {"pending": "○", "in_progress": "▸", "completed": "✓", "cancelled": "✗"}
MIN_ROWS = 3
SCREEN_SHARE = 5
"""The tasks take at most one fifth of the screen height, and a heading."""

LOW_SCREEN = 18


class TodoPanel(Panel):
    """`folded` is the user's choice; None folds the list on low screens and next to the side panel."""

    DEFAULT_CSS = """
    TodoPanel { padding: 0 1; }
    """

    def __init__(self, side: "SidePanel", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._side = side
        self.folded: bool | None = None

    def toggle(self) -> None:
        self.folded = not self.is_folded
        self.sync()

    @property
    def is_folded(self) -> bool:
        if self.folded is not None:
            return self.folded
        return self._side.is_docked or self.odin.size.height < LOW_SCREEN

    def fit(self, rows: int) -> None:
        self.styles.height = rows

    def build_rows(self, width: int) -> list[PanelRow]:
        changed = self.facts.todos.get(self.odin.agent)
        if changed is None or not changed.todos:
            return []
        click = ("todos",)
        if self.is_folded:
            return [PanelRow(format_progress(changed.todos, self.palette, width), click)]
        room = max(self.odin.size.height // SCREEN_SHARE, MIN_ROWS)
        texts = [format_heading(changed.todos, self.palette)]
        texts += format_todos(changed.todos, self.palette, width, room)
        return [PanelRow(Text("")), *(PanelRow(text, click) for text in texts)]


def format_heading(todos: tuple[Todo, ...], palette: Palette) -> Text:
    """Return a line such as `Tasks 3/7`."""
    done = sum(todo.status == "completed" for todo in todos)
    return Text.assemble(("Tasks", palette.strong), (f" {done}/{len(todos)}", palette.dim), no_wrap=True, end="")


def format_progress(todos: tuple[Todo, ...], palette: Palette, width: int) -> Text:
    """Return a line such as `Tasks 3/7: writing tests`."""
    now = next((todo for todo in todos if todo.status == "in_progress"), None)
    following = now or next((todo for todo in todos if todo.status == "pending"), None)
    words = (following.active_form if now is not None else "") or following.content if following else "all done"
    text = Text.assemble(
        format_heading(todos, palette), (": ", palette.dim), make_text(words, palette.text), no_wrap=True, end=""
    )
    text.truncate(max(width, 1), overflow="ellipsis")
    return text


def format_todos(todos: tuple[Todo, ...], palette: Palette, width: int, room: int) -> list[Text]:
    """Return at most `room` rows, centered on the todo in progress."""
    first, last = 0, len(todos)
    if last > room:
        now = next((place for place, todo in enumerate(todos) if todo.status == "in_progress"), None)
        if now is None:
            now = next((place for place, todo in enumerate(todos) if todo.status == "pending"), 0)
        first = max(min(now - 1, len(todos) - (room - 1)), 0)
        last = first + room - 1
    rows = [_format_todo(todo, palette, width) for todo in todos[first:last]]
    hidden = len(todos) - (last - first)
    if hidden:
        rows.append(
            make_text(f"  {hidden} more, {sum(todo.status == 'completed' for todo in todos)} done", palette.dim)
        )
    return rows


def _format_todo(todo: Todo, palette: Palette, width: int) -> Text:
    styles = {"in_progress": palette.accent, "pending": palette.text}
    style = styles.get(todo.status, palette.dim)
    words = todo.active_form if todo.status == "in_progress" and todo.active_form else todo.content
    mark = palette.good if todo.status == "completed" else style
    return Text.assemble(
        (f"{TODO_MARKS[todo.status]} ", mark), make_text(words, style, max(width - 2, 1)), no_wrap=True, end=""
    )


Item = TypeVar("Item")
MAX_FILES, MAX_AGENTS, MAX_PROCESSES, MAX_TODOS, MAX_SKILLS, MAX_SERVERS = 12, 8, 5, 10, 8, 8


class SideSections(Struct, frozen=True):
    """Builds the rows of the side panel for the shown `agent`. Empty sections are left out."""

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
            self._build_servers(),
            self._build_skills(),
            self._build_language_servers(),
            self._build_project(),
        )
        rows: list[PanelRow] = []
        for section in sections:
            if section:
                rows += [*([PanelRow(Text(""))] if rows else []), *section]
        return rows

    def _make_heading(self, text: str) -> PanelRow:
        return PanelRow(make_text(text, self.palette.strong))

    def _make_line(self, text: str) -> PanelRow:
        return PanelRow(make_text(text, self.palette.text, self.width))

    def _make_dim_line(self, text: str) -> PanelRow:
        return PanelRow(make_text(text, self.palette.dim, self.width))

    def _make_section(
        self, heading: str, items: Sequence[Item], build: Callable[[Item], PanelRow], limit: int = 100
    ) -> list[PanelRow]:
        """Return a heading, a row for each of the first `limit` items, and how many are left out."""
        more = [self._make_dim_line(f"{len(items) - limit} more")] if len(items) > limit else []
        return [self._make_heading(heading), *map(build, items[:limit]), *more] if items else []

    def _build_model(self) -> list[PanelRow]:
        facts = self.facts
        effort = facts.get_effort(self.agent)
        shown = [self._make_dim_line(f"effort {effort}")] if effort else []
        if self.agent:
            return [self._make_heading("Model"), self._make_line(facts.get_model(self.agent) or "unknown"), *shown]
        rows = [self._make_heading("Model"), self._make_line(facts.chosen_model or "unknown")]
        if facts.running_model != facts.chosen_model:
            rows.append(PanelRow(make_text(f"answering: {facts.running_model}", self.palette.warn, self.width)))
        rows += shown
        if facts.pool:
            rows.insert(1, self._make_dim_line(f"pool {facts.pool}"))
        if facts.key_note:
            rows.append(self._make_dim_line(facts.key_note))
        keys = facts.get_keys(facts.running_model, self.now)
        if keys is not None and keys.total > 1:
            style = self.palette.dim if keys.healthy == keys.total else self.palette.warn
            rows += [PanelRow(make_text(line, style, self.width)) for line in describe_keys(keys) if line]
        return rows

    def _build_context(self) -> list[PanelRow]:
        report = self.facts.get_context(self.agent)
        if report is None or report.fullness is None:
            return []
        palette = self.palette
        about = "" if report.measured else "about "
        cells = max(self.width - 6, 4)
        used = min(round(report.fullness * cells), cells)
        style = palette.warn if report.is_nearly_full else palette.accent
        share = f" {report.fullness:>4.0%}"
        bar = Text.assemble(("━" * used, style), ("─" * (cells - used), palette.dim), (share, style), end="")
        until = f"compacts at {report.threshold:,}" if report.threshold else "in the context window"
        rows = [
            self._make_heading("Context"),
            PanelRow(bar),
            self._make_dim_line(f"{about}{report.used:,} of {report.room:,} tokens"),
        ]
        rows.append(self._make_dim_line(until if not report.compacting else "compacting"))
        return rows

    def _build_cost(self) -> list[PanelRow]:
        facts, spent = self.facts, self.facts.get_usage(self.agent)
        if not spent.calls:
            return []
        rows = [
            self._make_heading("Cost"),
            self._make_line(f"{format_cost(spent)} · {format_count(spent.usage.total)} tokens"),
        ]
        if facts.budget_usd:
            rows.append(self._make_dim_line(f"{format_usd(facts.budget_left)} of {format_usd(facts.budget_usd)} left"))
        if spent.cache_hit_rate:
            rows.append(self._make_dim_line(f"{spent.cache_hit_rate:.0%} cached"))
        if facts.low_limit:
            rows.append(PanelRow(make_text(f"limit: {facts.low_limit}", self.palette.warn, self.width)))
        return rows

    def _build_todos(self) -> list[PanelRow]:
        changed = self.facts.todos.get(self.agent)
        rows = format_todos(changed.todos, self.palette, self.width, MAX_TODOS) if changed is not None else []
        return self._make_section("Tasks", rows, PanelRow)

    def _build_agents(self) -> list[PanelRow]:
        agents = list(self.facts.agents.all.values())
        if not agents:
            return []
        asking = len(self.facts.agents.asking)
        head = Text.assemble(("Agents", self.palette.strong), end="")
        if asking:
            head.append(f"  {asking} waiting for you", self.palette.warn)
        if unread := self.facts.agents.mailboxes.describe_unread(""):
            head.append(f"  {unread}", self.palette.dim)
        return [PanelRow(head), *(row for agent in agents[-MAX_AGENTS:] for row in self._build_agent(agent))]

    def _build_agent(self, agent: AgentStatus) -> list[PanelRow]:
        """Return one row with its state, and while it lives rows with unread mail, context, cost and model."""
        palette, ended = self.palette, agent.outcome
        state = ended or self._describe_state(agent)
        good = ended in ("done", "completed")
        needs_answer = agent.is_asking or (agent.state == "waiting_main" and not ended)
        mark = "?" if needs_answer else "✓" if good else "✗" if ended else "▸" if agent.id == self.agent else "•"
        style = palette.get_agent_style(agent.id, agent.color)
        task = escape_hidden(agent.task.strip().split("\n")[0])
        name = Text.assemble((f"{mark} {escape_hidden(agent.id)} ", style), (task, palette.text), no_wrap=True, end="")
        right = make_text(state, palette.warn if needs_answer else palette.dim, self.width // 2)
        click = ("show_agent", agent.id)
        rows = [PanelRow(align_sides(name, right, self.width), click)]
        line = ""
        for word in [] if ended else self._list_details(agent):
            if line and measure_width(f"  {line} · {word}") > self.width:
                rows.append(PanelRow(make_text(f"  {line}", palette.dim, self.width), click))
                line = ""
            line = f"{line} · {word}" if line else word
        return [*rows, PanelRow(make_text(f"  {line}", palette.dim, self.width), click)] if line else rows

    def _describe_state(self, agent: AgentStatus) -> str:
        if agent.activity.busy or agent.is_asking:
            return agent.activity.describe(self.now).text
        return "starting" if agent.state == "running" else STATE_WORDS[agent.state]

    def _list_details(self, agent: AgentStatus) -> list[str]:
        facts = self.facts
        context, spent = facts.get_context(agent.id), facts.get_usage(agent.id)
        details = (
            facts.agents.mailboxes.describe_unread(agent.id),
            f"{context.fullness:.0%} context" if context is not None and context.fullness is not None else "",
            format_cost(spent) if spent.calls else "",
            get_model_name(escape_hidden(agent.model)),
        )
        return [word for word in details if word]

    def _build_files(self) -> list[PanelRow]:
        files = list(reversed(self.facts.edited_files.files.values()))
        heading = f"Changed files ({len(files)})" if len(files) > 1 else "Changed file"
        return self._make_section(heading, files, self._build_file, MAX_FILES)

    def _build_file(self, file: EditedFile) -> PanelRow:
        palette = self.palette
        counts = Text(end="")
        if file.is_deleted:
            counts.append("deleted", palette.bad)
        elif file.is_counted:
            counts.append(f"+{file.added}", palette.good)
            counts.append(f" -{file.removed}", palette.bad)
        room = max(self.width - measure_width(counts.plain) - 1, 4)
        return PanelRow(
            align_sides(make_text(_cut_start(self._format_path(file.path), room), palette.text), counts, self.width),
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
        rows = [self._make_heading("Background")]
        for name, what in running[-MAX_PROCESSES:]:
            click = ("show_process", name)
            rows.append(replace(self._make_line(f"• {name} {what}"), click=click))
            for port, url in self.facts.ports.get(name, {}).items():
                rows.append(replace(self._make_dim_line(f"  {url or f'port {port}, closed'}"), click=click))
        if len(running) > MAX_PROCESSES:
            rows.append(self._make_dim_line(f"{len(running) - MAX_PROCESSES} more"))
        return rows

    def _build_servers(self) -> list[PanelRow]:
        servers, palette = self.facts.servers, self.palette
        ready = sum(server.state == "ready" for server in servers)
        styles = {"ready": palette.good, "failed": palette.bad, "connecting": palette.warn}

        def build(server: ServerStatus) -> PanelRow:
            name = make_text(f"{SERVER_MARKS[server.state]} {server.name}", styles.get(server.state, palette.dim))
            room = max(self.width - measure_width(name.plain) - 1, 4)
            state = make_text(describe_server_state(server), palette.dim, room)
            return PanelRow(align_sides(name, state, self.width), ("mcp",))

        return self._make_section(f"MCP ({ready} of {len(servers)} connected)", servers, build, MAX_SERVERS)

    def _build_skills(self) -> list[PanelRow]:
        """Return the skills, first those that the shown agent has used, which are green."""
        skills = self.facts.info.skills if self.facts.info is not None else ()
        used = self.facts.used_skills.get(self.agent, set())
        names = sorted((skill.name for skill in skills), key=lambda name: name not in used)

        def build(name: str) -> PanelRow:
            mark, style = (USED_MARK, self.palette.good) if name in used else ("•", self.palette.dim)
            return PanelRow(make_text(f"{mark} {name}", style, self.width))

        return self._make_section(f"Skills ({len(names)})", names, build, MAX_SKILLS)

    def _build_language_servers(self) -> list[PanelRow]:
        """Return the language servers that were started, with their problems; none if no one was."""
        servers = [server for server in self.facts.language_servers if server.status != "idle"]
        palette = self.palette
        marks = {"ready": ("•", palette.good), "failed": ("✗", palette.bad), "slow": ("•", palette.warn)}

        def build(server: LanguageServerState) -> PanelRow:
            mark, style = marks.get(server.status, ("•", palette.dim))
            counts = [f"{count} {name}" for count, name in ((server.errors, "err"), (server.warnings, "warn")) if count]
            right = " ".join(counts) or ("" if server.status == "ready" else server.status)
            name = Text.assemble((f"{mark} ", style), (escape_hidden(server.name), palette.text), no_wrap=True, end="")
            tone = palette.bad if server.errors or server.status == "failed" else palette.dim
            return PanelRow(align_sides(name, make_text(right, tone, self.width // 2), self.width))

        return self._make_section("Language servers", servers, build)

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


def _cut_start(path: str, room: int) -> str:
    """Cut a path at its start: its end says more."""
    return path if measure_width(path) <= room else f"…{path[-(room - 1) :]}"


DOCKED_WIDTH = 130
"""On screens at least this wide the panel is docked next to the transcript; on others it covers it."""


class SidePanel(Panel):
    """`user_choice` is set by toggling; None shows the panel if the settings want it and the screen is wide enough."""

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
        """True if the panel is shown next to the transcript, not over it."""
        return self.is_wanted and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.odin.size.width >= DOCKED_WIDTH

    def toggle(self) -> None:
        self.user_choice = not self.is_wanted
        self.update_placement()

    def update_placement(self) -> None:
        """Show the panel next to the transcript, over it, or not at all."""
        self.display = self.is_wanted
        self.set_class(not self._has_room, "-over")
        self.sync()

    def on_resize(self, event: events.Resize) -> None:
        self.update_placement()

    def build_rows(self, width: int) -> list[PanelRow]:
        return SideSections(self.facts, self.palette, width, self.odin.agent, self.odin.clock()).build_rows()
