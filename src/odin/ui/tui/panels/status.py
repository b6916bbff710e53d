"""The start screen, the activity line above the composer, and the status line.

The start screen (name, version, model, directory, sandbox and three tips) stays until the first prompt.
"""

from typing import Any

from msgspec import Struct
from rich.style import Style
from rich.text import Text
from textual.timer import Timer

from odin.core.call_events import UsageTotals
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.format import format_count, format_permission_mode, format_seconds, format_usd, get_model_name, pluralize
from odin.core.lazy_pattern import compile_lazily
from odin.core.setup import OFFLINE_MODEL
from odin.ui.session_facts import SessionFacts
from odin.ui.terminal import escape_hidden, measure_width, shorten, shorten_home
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.panel import Panel, PanelRow, align_sides, make_text

ACTIVITY_MARKS = "·∙•∙"
MARK_S = 0.5
"""Frame time of the animated mark."""
TICK_S = 1.0
"""Refresh interval of elapsed times. No timer runs while nothing is busy."""

MIN_WIDTH_FOR_KEYS = 50
MIN_SHOWN_S = 5


MODE_WORDS: dict[Mode, str] = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": "edit"}


class ActivityLine(Panel):
    """One row about the shown agent: what it is doing and for how long, and the key that stops it."""

    DEFAULT_CSS = """
    ActivityLine { height: 1; padding: 0 1; }
    """

    def __init__(self, side: Panel, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._side = side
        self._timer: Timer | None = None

    def sync(self) -> None:
        busy = self.facts.agents.busy
        if busy and self._timer is None:
            self._timer = self.set_interval(TICK_S, self._tick)
        elif not busy and self._timer is not None:
            self._timer.stop()
            self._timer = None
        super().sync()

    def _tick(self) -> None:
        """Update the elapsed times; nothing else on the screen changes."""
        self.sync()
        self._side.sync()

    def build_rows(self, width: int) -> list[PanelRow]:
        return [PanelRow(align_sides(self._format_activity(), self._format_keys(width), width))]

    def _format_activity(self) -> Text:
        palette = self.palette
        if self.odin.info is None:
            return make_text("  opening session", palette.dim)
        agents = self.facts.agents
        now = self.odin.clock()
        words = agents.get_activity(self.odin.agent).describe(now)
        spinner = ACTIVITY_MARKS[int(now / MARK_S) % len(ACTIVITY_MARKS)]
        mark = spinner if words.is_busy else "?" if words.is_asking else "!" if words.is_failure else " "
        style = palette.warn if words.is_asking else palette.bad if words.is_failure else palette.accent
        loud = words.is_busy or words.is_asking or words.is_failure
        line = Text.assemble((f"{mark} ", style), make_text(words.text, style if loud else palette.dim))
        for more in (words.detail, self._format_others()):
            if more:
                line.append_text(make_text(f" · {more}", palette.dim))
        return line

    def _format_others(self) -> str:
        agents = self.facts.agents
        others = [agent for agent in agents.running if agent.id != self.odin.agent]
        if not others:
            return ""
        asking = sum(agent.is_asking for agent in others)
        working = sum(agent.is_working for agent in others)
        waiting = sum(agent.state == "waiting_main" for agent in others)
        words = [f"{pluralize(working, 'agent')} working"] if working else []
        words += [f"{asking} waiting for you"] if asking else []
        words += [f"{waiting} waiting for main"] if waiting else []
        return ", ".join(words) or f"{pluralize(len(others), 'agent')} idle"

    def _format_keys(self, width: int) -> Text:
        palette, keys = self.palette, self.odin.keys
        agents, agent = self.facts.agents, self.odin.agent
        shown = agents.get_activity(agent)
        if not shown.busy:
            return make_text(f"{keys.get_label('help')} help", palette.dim) if width >= MIN_WIDTH_FOR_KEYS else Text("")
        stop = f"{keys.get_label('stop')} stops"
        now = self.odin.clock()
        took = now - shown.turn_started if agent and shown.is_in_turn else agents.count_turn_seconds(now)
        if took >= MIN_SHOWN_S and width >= MIN_WIDTH_FOR_KEYS:
            stop = f"{format_seconds(took)} in all · {stop}"
        return make_text(f"  {stop}" if measure_width(stop) + 12 < width else "", palette.dim)


NEARLY_SPENT = 0.8
LAST_RANK = 1
"""Parts of this rank are dropped only after all others."""

GAP = "  "


class StatusPart(Struct, frozen=True):
    """One part of the status line. If space is short, `short` replaces the text; parts with a high `rank` go first."""

    text: str
    style: Style
    rank: int
    short: str = ""
    right: bool = False


class StatusLine(Panel):
    """One row about the session, and above it up to three that the user's own program prints."""

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; background: $surface; }
    """

    def fit(self, rows: int) -> None:
        self.styles.height = max(rows, 1)

    def build_rows(self, width: int) -> list[PanelRow]:
        parts = list_parts(self.facts, self.odin.mode, self.palette, self.odin.agent)
        own = self.facts.status_text.splitlines() if self.odin.size.height >= SHORT_HEIGHT else []
        return [*map(_make_own_row, own[:MAX_OWN_ROWS]), PanelRow(lay_out(parts, width, self.palette))]


MAX_OWN_ROWS = 3

_LINK = compile_lazily(r"\x1b\].*?(?:\x07|\x1b\\)")
"""A link or another command to the terminal: its parameters may hide any other."""

_UNSAFE = dict.fromkeys(
    (*range(32), *range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "�"
)
"""Control and direction characters, which must not reach the terminal."""


def _make_own_row(line: str) -> PanelRow:
    """Return a line of the user's program with its colors."""
    text = Text.from_ansi(_LINK.sub("", line.expandtabs()), no_wrap=True, end="")
    text.plain = text.plain.translate(_UNSAFE)
    return PanelRow(text)


def describe_status(facts: SessionFacts, now: float) -> dict[str, Any]:
    """Return what the program of the status line reads, in the form of Claude Code's."""
    info, context, spent, last = facts.info, facts.context, facts.get_usage(""), facts.last_usage
    if info is None:
        return {}
    files = facts.edited_files.files.values()
    sizes: dict[str, Any] = {}
    if context is not None:
        used = round((context.fullness or 0.0) * 100)
        sizes = {"context_window_size": context.room, "used_percentage": used, "remaining_percentage": 100 - used}
    return {
        "session_name": facts.title,
        "version": info.version,
        "model": {"id": facts.running_model, "display_name": get_model_name(facts.running_model)},
        "workspace": {
            "current_dir": info.cwd,
            "project_dir": info.root or info.cwd,
            "added_dirs": [root.path for root in info.roots],
        },
        "output_style": {"name": info.output_style},
        "effort": {"level": info.effort},
        "cost": {
            "total_cost_usd": spent.cost_usd,
            "total_duration_ms": int((now - facts.started) * 1000) if facts.started else 0,
            "total_lines_added": sum(file.added for file in files),
            "total_lines_removed": sum(file.removed for file in files),
        },
        "context_window": {
            **sizes,
            "total_input_tokens": spent.usage.input + spent.usage.cache_read + spent.usage.cache_write,
            "total_output_tokens": spent.usage.output + spent.usage.reasoning,
            "current_usage": {
                "input_tokens": last.input,
                "output_tokens": last.output + last.reasoning,
                "cache_creation_input_tokens": last.cache_write,
                "cache_read_input_tokens": last.cache_read,
            },
        },
        "exceeds_200k_tokens": context is not None and context.used > 200_000,
    }


def list_parts(facts: SessionFacts, mode: Mode, palette: Palette, agent: str = "") -> list[StatusPart]:
    """Return all parts of the status line, in order, with the context and usage of the shown `agent`."""
    parts = [StatusPart(MODE_WORDS[mode], palette.strong, 0)]
    if agent:
        parts.insert(0, _make_agent_part(facts, palette, agent))
    elif facts.role != DEFAULT_ROLE:
        role = shorten(escape_hidden(facts.role), 24)
        parts.insert(0, StatusPart(f"role: {role}", palette.accent, 1, role))
    if facts.permission_mode not in ("default", ""):
        permissions = escape_hidden(facts.permission_mode)
        label = format_permission_mode(permissions)
        parts.append(StatusPart(f"permissions: {label}", palette.warn, 2, permissions))
    if (loop := facts.get_loop(agent)) is not None:
        parts.append(StatusPart(f"loop {loop.iteration}/{loop.limit}", palette.accent, 3))
    parts.append(_make_model_part(facts, palette, agent))
    parts += _make_context_parts(facts, palette, agent)
    if queued := facts.count_queued(agent):
        parts.append(StatusPart(f"{queued} queued", palette.text, 4))
    if facts.low_limit:
        parts.append(StatusPart(f"limit: {facts.low_limit}", palette.warn, 5))
    parts += _make_cost_parts(facts, palette, agent)
    parts += _make_project_parts(facts, palette)
    return parts


def _make_agent_part(facts: SessionFacts, palette: Palette, agent: str) -> StatusPart:
    """Name the agent on the screen, and say how it ended if it no longer accepts prompts."""
    name = escape_hidden(agent)
    status = facts.agents.all.get(agent)
    if status is not None and facts.agents.is_live(agent):
        return StatusPart(f"agent {name}", palette.get_agent_style(agent, status.color), 0, name)
    return StatusPart(f"{name} ({status.outcome if status is not None else 'ended'})", palette.warn, 0, name)


def _make_model_part(facts: SessionFacts, palette: Palette, agent: str) -> StatusPart:
    if agent:
        name = get_model_name(escape_hidden(facts.get_model(agent)))
        return StatusPart(name or "no model yet", palette.text, 1, name)
    running, chosen = (
        get_model_name(escape_hidden(facts.running_model)),
        get_model_name(escape_hidden(facts.chosen_model)),
    )
    if running and running != chosen:
        return StatusPart(f"{running} (instead of {chosen})", palette.warn, 1, f"{running}!")
    return StatusPart(chosen or "no model yet", palette.text, 1, chosen)


def _make_context_parts(facts: SessionFacts, palette: Palette, agent: str) -> list[StatusPart]:
    report = facts.get_context(agent)
    if report is None or report.fullness is None:
        return []
    share = f"{'' if report.measured else '~'}{report.fullness:.0%}"
    return [StatusPart(f"context {share}", palette.warn if report.is_nearly_full else palette.text, 1, share)]


def _make_cost_parts(facts: SessionFacts, palette: Palette, agent: str) -> list[StatusPart]:
    spent, left = facts.get_usage(agent), facts.budget_left
    if not spent.calls:
        return []
    cost = format_cost(spent)
    if facts.budget_usd:
        cost = f"{cost}, {format_usd(left)} left"
    style = palette.warn if facts.budget_usd and left <= facts.budget_usd * (1 - NEARLY_SPENT) else palette.dim
    sign = "~" if spent.estimated else ""
    parts = [StatusPart(cost, style, 4), StatusPart(f"{sign}{format_count(spent.usage.total)} tokens", palette.dim, 7)]
    if spent.cache_hit_rate:
        parts.append(StatusPart(f"cache {spent.cache_hit_rate:.0%}", palette.dim, 9))
    return parts


def format_cost(spent: UsageTotals) -> str:
    """Return the cost so far; unpriced requests are named, not counted as free. `~` marks an estimate."""
    cost = f"{'~' if spent.estimated else ''}{format_usd(spent.cost_usd)}"
    if spent.unpriced:
        return f"{cost} + unpriced" if spent.cost_usd else "unpriced"
    return cost


def _make_project_parts(facts: SessionFacts, palette: Palette) -> list[StatusPart]:
    info = facts.info
    if info is None:
        return []
    parts: list[StatusPart] = []
    if facts.title:
        parts.append(StatusPart(shorten(escape_hidden(facts.title), 30), palette.dim, 11, right=True))
    if info.sandbox:
        # The name without its details, which the side panel shows.
        name = escape_hidden(info.sandbox.split(",")[0].split(" (")[0])
        missing = name.startswith("no ")
        parts.append(StatusPart(name, palette.warn if missing else palette.dim, 5 if missing else 8, right=True))
    if info.branch:
        parts.append(StatusPart(shorten(escape_hidden(info.branch), 28), palette.dim, 6, right=True))
    parts.append(StatusPart(shorten(escape_hidden(shorten_home(info.cwd)), 40), palette.dim, 10, right=True))
    return parts


def lay_out(parts: list[StatusPart], room: int, palette: Palette) -> Text:
    """Return the parts that fit into `room` cells: shorten or drop the least important ones first."""
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
        side.append(GAP if side.plain else "", palette.dim)
        side.append(text, parts[index].style)
    if not sides[True].plain:
        sides[False].truncate(room, overflow="ellipsis")
    return align_sides(sides[False], sides[True], room)


def _measure_width(chosen: dict[int, str]) -> int:
    return sum(measure_width(text) for text in chosen.values()) + len(GAP) * (len(chosen) - 1)


FULL_HEIGHT, SHORT_HEIGHT = 18, 12
"""From how many rows of the screen on everything is shown, or only the facts."""


class StartPanel(Panel):
    DEFAULT_CSS = """
    StartPanel { padding: 0 2; }
    """

    def fit(self, rows: int) -> None:
        self.styles.height = rows

    def build_rows(self, width: int) -> list[PanelRow]:
        info, height = self.facts.info, self.odin.size.height
        if info is None or self.facts.has_prompts or height < SHORT_HEIGHT:
            return []
        model = self.facts.chosen_model
        palette = self.palette
        branch = f" ({info.branch})" if info.branch else ""
        rows = [Text.assemble(("Odin", palette.user), (f" {info.version}", palette.dim), no_wrap=True, end="")]
        for label, value in (
            ("model", model),
            ("directory", f"{shorten_home(info.cwd)}{branch}"),
            ("sandbox", info.sandbox or "none"),
        ):
            line = Text.assemble((f"{label:<11}", palette.dim), no_wrap=True, end="")
            rows.append(line.append_text(make_text(value, palette.text, max(width - 11, 1))))
        if model == OFFLINE_MODEL:
            rows.append(make_text("No model connected. /setup connects one.", palette.warn, width))
        if height >= FULL_HEIGHT:
            tips = (make_text(f"• {tip}", self.palette.dim, width) for tip in list_tips(self.odin.keys))
            rows += [Text(""), *tips, Text("")]
        return [PanelRow(row) for row in rows]


def list_tips(keys: KeyTable) -> tuple[str, ...]:
    """Return the tips, with the keys that the user has set. Each fits in 60 columns."""
    role, mode, permissions = (keys.get_label(name) for name in ("next_role", "next_mode", "permissions"))
    return (
        "Describe a task. @ mentions a file, ! runs a command.",
        f"{role} switches roles, {mode} modes, {permissions} permission modes.",
        f"/ lists commands, {keys.get_label('help')} the keys. /init writes AGENTS.md.",
    )
