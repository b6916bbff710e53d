"""The line at the bottom: how the session stands. What matters least goes first when there is no room for all."""

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from odin.core.event import Mode
from odin.ui.terminal import shorten, visible, width
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.amounts import counted, model_name, tilde, usd
from odin.ui.tui.panels.facts import Facts
from odin.ui.tui.panels.panel import Panel, Row, beside

MODES: dict[Mode, str] = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": "edit"}
NEARLY_FULL = 0.8
LAST = 1
"""The rank of what is left out only when nothing else is there any more."""

GAP = "  "


@dataclass(frozen=True, slots=True)
class Part:
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

    def rows(self, width: int) -> list[Row]:
        return [Row(laid_out(parts_of(self.facts, self.odin.mode, self.palette), width, self.palette))]


def parts_of(facts: Facts, mode: Mode, colours: Palette) -> list[Part]:
    """Everything there is to say, in the order of the line."""
    found = [Part(MODES[mode], colours.strong, 0)]
    if facts.permission_mode not in ("default", ""):
        permissions = visible(facts.permission_mode)
        found.append(Part(f"permissions: {permissions}", colours.warn, 2, permissions))
    if facts.loop is not None:
        loop = facts.loop
        found.append(Part(f"loop {loop.iteration}/{loop.limit}", colours.accent, 3))
    found.append(_model(facts, colours))
    found += _context(facts, colours)
    if facts.queued:
        found.append(Part(f"{len(facts.queued)} queued", colours.text, 4))
    if facts.limit_low:
        found.append(Part(f"limit: {facts.limit_low}", colours.warn, 5))
    found += _spent(facts, colours)
    found += _place(facts, colours)
    return found


def _model(facts: Facts, colours: Palette) -> Part:
    running, chosen = model_name(visible(facts.running)), model_name(visible(facts.chosen))
    if running and running != chosen:
        return Part(f"{running} (instead of {chosen})", colours.warn, 1, f"{running}!")
    return Part(chosen or "no model yet", colours.text, 1, chosen)


def _context(facts: Facts, colours: Palette) -> list[Part]:
    full = facts.fullness
    if full is None:
        return []
    about = "" if facts.context is not None and facts.context.measured else "~"
    style = colours.warn if full >= NEARLY_FULL else colours.text
    return [Part(f"context {about}{full:.0%}", style, 1, f"{about}{full:.0%}")]


def _spent(facts: Facts, colours: Palette) -> list[Part]:
    spent = facts.spent
    if not spent.calls:
        return []
    left = facts.budget_usd - spent.cost_usd if facts.budget_usd else 0.0
    cost = cost_words(facts)
    if facts.budget_usd:
        cost = f"{cost}, {usd(max(left, 0.0))} left"
    style = colours.warn if facts.budget_usd and left <= facts.budget_usd * (1 - NEARLY_FULL) else colours.dim
    parts = [Part(cost, style, 4), Part(f"{counted(spent.usage.total)} tokens", colours.dim, 7)]
    if spent.cache_hits:
        parts.append(Part(f"cache {spent.cache_hits:.0%}", colours.dim, 9))
    return parts


def cost_words(facts: Facts) -> str:
    """What is not known is never shown as free."""
    spent = facts.spent
    if spent.unpriced:
        return f"{usd(spent.cost_usd)} + unpriced" if spent.cost_usd else "unpriced"
    return usd(spent.cost_usd)


def _place(facts: Facts, colours: Palette) -> list[Part]:
    info = facts.info
    if info is None:
        return []
    parts: list[Part] = []
    if facts.title:
        parts.append(Part(shorten(visible(facts.title), 30), colours.dim, 11, right=True))
    if info.sandbox:
        parts.append(_sandbox(info.sandbox, colours))
    if info.branch:
        parts.append(Part(shorten(visible(info.branch), 28), colours.dim, 6, right=True))
    parts.append(Part(shorten(visible(tilde(info.cwd)), 40), colours.dim, 10, right=True))
    return parts


def _sandbox(described: str, colours: Palette) -> Part:
    """What commands run in, without the details: those stand in the panel at the side."""
    name = visible(described.split(",")[0].split(" (")[0])
    missing = name.startswith("no ")
    return Part(name, colours.warn if missing else colours.dim, 5 if missing else 8, right=True)


def laid_out(parts: list[Part], room: int, colours: Palette) -> Text:
    """As much of it as fits: the least important goes first, and the last ones become short before they go."""
    chosen = {index: part.text for index, part in enumerate(parts)}
    least_first = sorted(range(len(parts)), key=lambda index: (-parts[index].rank, -index))
    for index in least_first:
        if _width(chosen) > room and parts[index].short:
            chosen[index] = parts[index].short
        if _width(chosen) > room and parts[index].rank > LAST:
            del chosen[index]
    for index in least_first:
        if _width(chosen) > room and index in chosen and len(chosen) > 1:
            del chosen[index]
    sides = {False: Text(end=""), True: Text(end="")}
    for index, text in chosen.items():
        side = sides[parts[index].right]
        side.append(GAP if side.plain else "", colours.dim)
        side.append(text, parts[index].style)
    if not sides[True].plain:
        sides[False].truncate(room, overflow="ellipsis")
    return beside(sides[False], sides[True], room)


def _width(chosen: dict[int, str]) -> int:
    return sum(width(text) for text in chosen.values()) + len(GAP) * (len(chosen) - 1)
