"""What the panel at the side says, section by section. A section with nothing to say is not there."""

from dataclasses import dataclass

from rich.text import Text

from odin.core.event import Todo
from odin.ui.terminal import visible
from odin.ui.terminal import width as width_of
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.agents import AgentLine
from odin.ui.tui.panels.amounts import counted, tilde, usd
from odin.ui.tui.panels.edited import EditedFile
from odin.ui.tui.panels.facts import Facts
from odin.ui.tui.panels.panel import Row, beside, piece
from odin.ui.tui.panels.status import NEARLY_FULL, cost_words
from odin.ui.tui.panels.todos import listed

FILES, AGENTS, PROCESSES, TODOS = 12, 8, 5, 10


@dataclass(frozen=True, slots=True)
class Sections:
    """`agent` is the one that is looked at, `now` the time, `width` the room there is."""

    facts: Facts
    colours: Palette
    width: int
    agent: str = ""
    now: float = 0.0

    def rows(self) -> list[Row]:
        sections = (
            self._model(),
            self._context(),
            self._cost(),
            self._todos(),
            self._agents(),
            self._files(),
            self._processes(),
            self._place(),
        )
        found: list[Row] = []
        for section in sections:
            if section:
                found += [*([Row(Text(""))] if found else []), *section]
        return found

    def _head(self, text: str) -> Row:
        return Row(piece(text, self.colours.strong))

    def _line(self, text: str) -> Row:
        return Row(piece(text, self.colours.text, self.width))

    def _dim(self, text: str) -> Row:
        return Row(piece(text, self.colours.dim, self.width))

    def _model(self) -> list[Row]:
        facts = self.facts
        rows = [self._head("Model"), self._line(facts.chosen or "not known yet")]
        if facts.running != facts.chosen:
            rows.append(Row(piece(f"answering: {facts.running}", self.colours.warn, self.width)))
        if facts.key:
            rows.append(self._dim(facts.key))
        return rows

    def _context(self) -> list[Row]:
        report, full = self.facts.context, self.facts.fullness
        if report is None or full is None:
            return []
        colours = self.colours
        about = "" if report.measured else "about "
        cells = max(self.width - 6, 4)
        used = min(round(full * cells), cells)
        style = colours.warn if full >= NEARLY_FULL else colours.accent
        bar = Text.assemble(("━" * used, style), ("─" * (cells - used), colours.dim), (f" {full:>4.0%}", style), end="")
        until = "until a summary is made" if report.threshold else "in the window"
        room = report.threshold or report.limit
        rows = [self._head("Context"), Row(bar), self._dim(f"{about}{report.used:,} of {room:,} tokens")]
        rows.append(self._dim(until if not report.compacting else "a summary is being made"))
        return rows

    def _cost(self) -> list[Row]:
        facts, spent = self.facts, self.facts.spent
        if not spent.calls:
            return []
        rows = [self._head("Spent"), self._line(f"{cost_words(facts)} · {counted(spent.usage.total)} tokens")]
        if facts.budget_usd:
            left = max(facts.budget_usd - spent.cost_usd, 0.0)
            rows.append(self._dim(f"{usd(left)} of {usd(facts.budget_usd)} left"))
        if spent.cache_hits:
            rows.append(self._dim(f"{spent.cache_hits:.0%} came from the cache"))
        if facts.limit_low:
            rows.append(Row(piece(f"limit: {facts.limit_low}", self.colours.warn, self.width)))
        return rows

    def _todos(self) -> list[Row]:
        found = self.facts.todos.get(self.agent)
        todos: tuple[Todo, ...] = found.todos if found is not None else ()
        if not todos:
            return []
        return [self._head("Tasks"), *(Row(text) for text in listed(todos, self.colours, self.width, TODOS))]

    def _agents(self) -> list[Row]:
        agents = list(self.facts.agents.all.values())
        if not agents:
            return []
        asking = len(self.facts.agents.asking)
        head = Text.assemble(("Agents", self.colours.strong), end="")
        if asking:
            head.append(f"  {asking} waiting for you", self.colours.warn)
        return [Row(head), *(self._agent(line) for line in agents[-AGENTS:])]

    def _agent(self, line: AgentLine) -> Row:
        colours = self.colours
        words = line.doing.words(self.now)
        state = "done" if line.over == "end_turn" else line.over.replace("_", " ") or words.what or "starting"
        mark = "?" if line.asks else "✓" if line.over == "end_turn" else "✗" if line.over else "•"
        style = colours.agents[line.number % len(colours.agents)]
        task = visible(line.task.strip().split("\n")[0])
        name = Text.assemble((f"{mark} {visible(line.id)} ", style), (task, colours.text), no_wrap=True, end="")
        return Row(
            beside(name, piece(state, colours.warn if line.asks else colours.dim, self.width // 2), self.width),
            ("show_agent", line.id),
        )

    def _files(self) -> list[Row]:
        files = list(self.facts.edited.files.values())
        if not files:
            return []
        rows = [self._head(f"Changed files ({len(files)})" if len(files) > 1 else "Changed file")]
        rows += [self._file(file) for file in reversed(files[-FILES:])]
        if len(files) > FILES:
            rows.append(self._dim(f"{len(files) - FILES} more"))
        return rows

    def _file(self, file: EditedFile) -> Row:
        colours = self.colours
        counts = Text(end="")
        if file.gone:
            counts.append("deleted", colours.bad)
        elif file.counted:
            counts.append(f"+{file.added}", colours.good)
            counts.append(f" -{file.removed}", colours.bad)
        room = max(self.width - width_of(counts.plain) - 1, 4)
        return Row(
            beside(piece(_tail(self._shown(file.path), room), colours.text), counts, self.width),
            ("show_change", file.call_id),
        )

    def _shown(self, path: str) -> str:
        info = self.facts.info
        root = f"{info.cwd.rstrip('/')}/" if info is not None else ""
        return visible(path.removeprefix(root) if root and path.startswith(root) else tilde(path))

    def _processes(self) -> list[Row]:
        running = list(self.facts.processes.items())
        if not running:
            return []
        rows = [self._head("Running on")]
        rows += [self._line(f"• {name} {what}") for name, what in running[-PROCESSES:]]
        if len(running) > PROCESSES:
            rows.append(self._dim(f"{len(running) - PROCESSES} more"))
        return rows

    def _place(self) -> list[Row]:
        info = self.facts.info
        if info is None:
            return []
        rows = [self._head(visible(self.facts.title) or "Session"), self._dim(tilde(info.cwd))]
        if info.branch:
            rows.append(self._dim(f"on {info.branch}"))
        if info.sandbox:
            rows.append(self._dim(info.sandbox))
        return rows


def _tail(path: str, room: int) -> str:
    """The end of a path says more than its beginning."""
    return path if width_of(path) <= room else f"…{path[-(room - 1) :]}"
