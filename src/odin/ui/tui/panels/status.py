"""The line at the bottom: how the session stands. What matters least goes first when there is no room for all."""

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from odin.core.event import Mode
from odin.ui.terminal import escape_hidden, shorten, width_of
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.amounts import format_count, format_usd, model_name_of, shorten_home
from odin.ui.tui.panels.facts import SessionFacts
from odin.ui.tui.panels.panel import Panel, PanelRow, align_sides

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
