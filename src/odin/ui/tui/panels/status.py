"""The line above the composer: what Odin is doing, for how long, and how to stop it.

The line at the bottom: how the session stands. What matters least goes first when there is no room for all.
"""

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.timer import Timer

from odin.core.event import Mode
from odin.ui.terminal import escape_hidden, shorten, width_of
from odin.ui.tui.format import format_count, format_seconds, format_usd, model_name_of, shorten_home
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.facts import SessionFacts
from odin.ui.tui.panels.panel import Panel, PanelRow, align_sides, make_text

ACTIVITY_MARKS = "·∙•∙"
MARK_S = 0.5
"""How long the mark stays as it is when something happens all the time."""
TICK_S = 1.0
"""How often both are looked at while something runs and nothing happens. When nothing runs, no clock ticks."""

MIN_WIDTH_FOR_KEYS = 50
MIN_SHOWN_S = 5


class ActivityLine(Panel):
    """Always one row, so that nothing jumps when work begins or ends. It is about the agent that is looked at."""

    DEFAULT_CSS = """
    ActivityLine { height: 1; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timer: Timer | None = None

    def sync(self) -> None:
        self._set_ticking(self.facts.agents.busy)
        super().sync()

    def _set_ticking(self, busy: bool) -> None:
        if busy and self._timer is None:
            self._timer = self.set_interval(TICK_S, self._tick)
        elif not busy and self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _tick(self) -> None:
        """Only the time goes on: what else there is on the screen stays as it is."""
        self.sync()
        self.odin.side.sync()

    def build_rows(self, width: int) -> list[PanelRow]:
        return [PanelRow(align_sides(self._format_activity(), self._format_keys(width), width))]

    def _format_activity(self) -> Text:
        colours = self.palette
        if self.odin.info is None:
            return make_text("  opening the session", colours.dim)
        agents = self.facts.agents
        now = self.odin.clock()
        words = agents.activity_of(self.odin.agent).describe(now)
        mark = (
            ACTIVITY_MARKS[int(now / MARK_S) % len(ACTIVITY_MARKS)]
            if words.is_busy
            else "?"
            if words.is_asking
            else "!"
            if words.is_failure
            else " "
        )
        style = colours.warn if words.is_asking else colours.bad if words.is_failure else colours.accent
        loud = words.is_busy or words.is_asking or words.is_failure
        said = Text.assemble((f"{mark} ", style), make_text(words.text, style if loud else colours.dim))
        for more in (words.detail, self._format_others()):
            if more:
                said.append_text(make_text(f" · {more}", colours.dim))
        return said

    def _format_others(self) -> str:
        agents = self.facts.agents
        others = [line for line in agents.running if line.id != self.odin.agent]
        if not others:
            return ""
        asking = sum(line.is_asking for line in others)
        count = f"{len(others)} {'agent' if len(others) == 1 else 'agents'} at work"
        return f"{count}, {asking} waiting for you" if asking else count

    def _format_keys(self, width: int) -> Text:
        colours, keys = self.palette, self.odin.keys
        main = self.facts.agents.main
        if not main.busy:
            return make_text(f"{keys.label_of('help')} help", colours.dim) if width >= MIN_WIDTH_FOR_KEYS else Text("")
        stop = f"{keys.label_of('stop')} stops"
        took = self.odin.clock() - main.turn_started if main.is_in_turn else 0.0
        if took >= MIN_SHOWN_S and width >= MIN_WIDTH_FOR_KEYS:
            stop = f"{format_seconds(took)} in all · {stop}"
        return make_text(f"  {stop}" if width_of(stop) + 12 < width else "", colours.dim)


MODE_LABELS: dict[Mode, str] = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": "edit"}
NEARLY_FULL = 0.8
LAST_RANK = 1
"""The rank of what is left out only when nothing else is there any more."""

GAP = "  "


@dataclass(frozen=True, slots=True)
class StatusPart:
    """One thing the line says. The highest `rank` is left out first; `short` takes its place before that."""

    text: str
    style: Style
    rank: int
    short: str = ""
    right: bool = False


class StatusLine(Panel):
    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; background: $surface; }
    """

    def build_rows(self, width: int) -> list[PanelRow]:
        return [PanelRow(lay_out(parts_of(self.facts, self.odin.mode, self.palette), width, self.palette))]


def parts_of(facts: SessionFacts, mode: Mode, colours: Palette) -> list[StatusPart]:
    """Everything there is to say, in the order of the line."""
    found = [StatusPart(MODE_LABELS[mode], colours.strong, 0)]
    if facts.permission_mode not in ("default", ""):
        permissions = escape_hidden(facts.permission_mode)
        found.append(StatusPart(f"permissions: {permissions}", colours.warn, 2, permissions))
    if facts.loop is not None:
        loop = facts.loop
        found.append(StatusPart(f"loop {loop.iteration}/{loop.limit}", colours.accent, 3))
    found.append(_make_model_part(facts, colours))
    found += _make_context_parts(facts, colours)
    if facts.queued:
        found.append(StatusPart(f"{len(facts.queued)} queued", colours.text, 4))
    if facts.low_limit:
        found.append(StatusPart(f"limit: {facts.low_limit}", colours.warn, 5))
    found += _make_cost_parts(facts, colours)
    found += _make_project_parts(facts, colours)
    return found


def _make_model_part(facts: SessionFacts, colours: Palette) -> StatusPart:
    running, chosen = (
        model_name_of(escape_hidden(facts.running_model)),
        model_name_of(escape_hidden(facts.chosen_model)),
    )
    if running and running != chosen:
        return StatusPart(f"{running} (instead of {chosen})", colours.warn, 1, f"{running}!")
    return StatusPart(chosen or "no model yet", colours.text, 1, chosen)


def _make_context_parts(facts: SessionFacts, colours: Palette) -> list[StatusPart]:
    full = facts.fullness
    if full is None:
        return []
    about = "" if facts.context is not None and facts.context.measured else "~"
    style = colours.warn if full >= NEARLY_FULL else colours.text
    return [StatusPart(f"context {about}{full:.0%}", style, 1, f"{about}{full:.0%}")]


def _make_cost_parts(facts: SessionFacts, colours: Palette) -> list[StatusPart]:
    spent = facts.usage_totals
    if not spent.calls:
        return []
    left = facts.budget_usd - spent.cost_usd if facts.budget_usd else 0.0
    cost = format_cost(facts)
    if facts.budget_usd:
        cost = f"{cost}, {format_usd(max(left, 0.0))} left"
    style = colours.warn if facts.budget_usd and left <= facts.budget_usd * (1 - NEARLY_FULL) else colours.dim
    parts = [StatusPart(cost, style, 4), StatusPart(f"{format_count(spent.usage.total)} tokens", colours.dim, 7)]
    if spent.cache_hit_rate:
        parts.append(StatusPart(f"cache {spent.cache_hit_rate:.0%}", colours.dim, 9))
    return parts


def format_cost(facts: SessionFacts) -> str:
    """What is not known is never shown as free."""
    spent = facts.usage_totals
    if spent.unpriced:
        return f"{format_usd(spent.cost_usd)} + unpriced" if spent.cost_usd else "unpriced"
    return format_usd(spent.cost_usd)


def _make_project_parts(facts: SessionFacts, colours: Palette) -> list[StatusPart]:
    info = facts.info
    if info is None:
        return []
    parts: list[StatusPart] = []
    if facts.title:
        parts.append(StatusPart(shorten(escape_hidden(facts.title), 30), colours.dim, 11, right=True))
    if info.sandbox:
        parts.append(_make_sandbox_part(info.sandbox, colours))
    if info.branch:
        parts.append(StatusPart(shorten(escape_hidden(info.branch), 28), colours.dim, 6, right=True))
    parts.append(StatusPart(shorten(escape_hidden(shorten_home(info.cwd)), 40), colours.dim, 10, right=True))
    return parts


def _make_sandbox_part(described: str, colours: Palette) -> StatusPart:
    """What commands run in, without the details: those stand in the panel at the side."""
    name = escape_hidden(described.split(",")[0].split(" (")[0])
    missing = name.startswith("no ")
    return StatusPart(name, colours.warn if missing else colours.dim, 5 if missing else 8, right=True)


def lay_out(parts: list[StatusPart], room: int, colours: Palette) -> Text:
    """As much of it as fits: the least important goes first, and the last ones become short before they go."""
    chosen = {index: part.text for index, part in enumerate(parts)}
    least_first = sorted(range(len(parts)), key=lambda index: (-parts[index].rank, -index))
    for index in least_first:
        if _measure_width(chosen) > room and parts[index].short:
            chosen[index] = parts[index].short
        if _measure_width(chosen) > room and parts[index].rank > LAST_RANK:
            del chosen[index]
    for index in least_first:
        if _measure_width(chosen) > room and index in chosen and len(chosen) > 1:
            del chosen[index]
    sides = {False: Text(end=""), True: Text(end="")}
    for index, text in chosen.items():
        side = sides[parts[index].right]
        side.append(GAP if side.plain else "", colours.dim)
        side.append(text, parts[index].style)
    if not sides[True].plain:
        sides[False].truncate(room, overflow="ellipsis")
    return align_sides(sides[False], sides[True], room)


def _measure_width(chosen: dict[int, str]) -> int:
    return sum(width_of(text) for text in chosen.values()) + len(GAP) * (len(chosen) - 1)
