"""What the panel at the side says, section by section. A section with nothing to say is not there."""

from dataclasses import dataclass

from rich.text import Text

from odin.core.event import Todo
from odin.ui.terminal import escape_hidden
from odin.ui.terminal import width_of as width_of
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.agents import AgentStatus
from odin.ui.tui.panels.amounts import format_count, format_usd, shorten_home
from odin.ui.tui.panels.edited import EditedFile
from odin.ui.tui.panels.facts import SessionFacts
from odin.ui.tui.panels.panel import PanelRow, align_sides, make_text
from odin.ui.tui.panels.status import NEARLY_FULL, format_cost
from odin.ui.tui.panels.todos import format_todos

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
