"""The parts of the status line of the app and the page, in words."""

from typing import Literal

from msgspec import Struct

from odin.core.call_events import UsageTotals
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.format import format_count, format_permission_mode, format_usd, get_model_name
from odin.ui.session_facts import SessionFacts
from odin.ui.terminal import escape_hidden, shorten, shorten_home

MODE_WORDS: dict[Mode, str] = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": "edit"}

NEARLY_SPENT = 0.8

Tone = Literal["strong", "text", "dim", "accent", "warn", "agent"]


class StatusPart(Struct, frozen=True):
    """One part of the status line. If space is short, `short` replaces the text; parts with a high `rank` go first.

    `color` is that of the agent whose name `short` is.
    """

    text: str
    tone: Tone
    rank: int
    short: str = ""
    right: bool = False
    color: str = ""


def list_parts(facts: SessionFacts, mode: Mode, agent: str = "") -> list[StatusPart]:
    """Return all parts of the status line, in order, with the context and usage of the shown `agent`."""
    parts = [StatusPart(MODE_WORDS[mode], "strong", 0)]
    if agent:
        parts.insert(0, _make_agent_part(facts, agent))
    elif facts.role != DEFAULT_ROLE:
        role = shorten(escape_hidden(facts.role), 24)
        parts.insert(0, StatusPart(f"role: {role}", "accent", 1, role))
    if facts.permission_mode not in ("default", ""):
        permissions = escape_hidden(facts.permission_mode)
        label = format_permission_mode(permissions)
        parts.append(StatusPart(f"permissions: {label}", "warn", 2, permissions))
    if (loop := facts.get_loop(agent)) is not None:
        parts.append(StatusPart(f"loop {loop.iteration}/{loop.limit}", "accent", 3))
    parts.append(_make_model_part(facts, agent))
    parts += _make_context_parts(facts, agent)
    if queued := facts.count_queued(agent):
        parts.append(StatusPart(f"{queued} queued", "text", 4))
    if facts.low_limit:
        parts.append(StatusPart(f"limit: {facts.low_limit}", "warn", 5))
    parts += _make_cost_parts(facts, agent)
    parts += _make_project_parts(facts)
    return parts


def _make_agent_part(facts: SessionFacts, agent: str) -> StatusPart:
    """Name the agent on the screen, and say how it ended if it no longer accepts prompts."""
    name = escape_hidden(agent)
    status = facts.agents.all.get(agent)
    if status is not None and facts.agents.is_live(agent):
        return StatusPart(f"agent {name}", "agent", 0, name, color=status.color)
    return StatusPart(f"{name} ({status.outcome if status is not None else 'ended'})", "warn", 0, name)


def _make_model_part(facts: SessionFacts, agent: str) -> StatusPart:
    if agent:
        name = get_model_name(escape_hidden(facts.get_model(agent)))
        return StatusPart(name or "no model yet", "text", 1, name)
    running, chosen = (
        get_model_name(escape_hidden(facts.running_model)),
        get_model_name(escape_hidden(facts.chosen_model)),
    )
    if running and running != chosen:
        return StatusPart(f"{running} (instead of {chosen})", "warn", 1, f"{running}!")
    return StatusPart(chosen or "no model yet", "text", 1, chosen)


def _make_context_parts(facts: SessionFacts, agent: str) -> list[StatusPart]:
    report = facts.get_context(agent)
    if report is None or report.fullness is None:
        return []
    share = f"{'' if report.measured else '~'}{report.fullness:.0%}"
    return [StatusPart(f"context {share}", "warn" if report.is_nearly_full else "text", 1, share)]


def _make_cost_parts(facts: SessionFacts, agent: str) -> list[StatusPart]:
    spent, left = facts.get_usage(agent), facts.budget_left
    if not spent.calls:
        return []
    cost = format_cost(spent)
    if facts.budget_usd:
        cost = f"{cost}, {format_usd(left)} left"
    tone: Tone = "warn" if facts.budget_usd and left <= facts.budget_usd * (1 - NEARLY_SPENT) else "dim"
    sign = "~" if spent.estimated else ""
    parts = [StatusPart(cost, tone, 4), StatusPart(f"{sign}{format_count(spent.usage.total)} tokens", "dim", 7)]
    if spent.cache_hit_rate:
        parts.append(StatusPart(f"cache {spent.cache_hit_rate:.0%}", "dim", 9))
    return parts


def format_cost(spent: UsageTotals) -> str:
    """Return the cost so far; unpriced requests are named, not counted as free. `~` marks an estimate."""
    cost = f"{'~' if spent.estimated else ''}{format_usd(spent.cost_usd)}"
    if spent.unpriced:
        return f"{cost} + unpriced" if spent.cost_usd else "unpriced"
    return cost


def _make_project_parts(facts: SessionFacts) -> list[StatusPart]:
    info = facts.info
    if info is None:
        return []
    parts: list[StatusPart] = []
    if facts.title:
        parts.append(StatusPart(shorten(escape_hidden(facts.title), 30), "dim", 11, right=True))
    if info.sandbox:
        # The name without its details, which the side panel shows.
        name = escape_hidden(info.sandbox.split(",")[0].split(" (")[0])
        missing = name.startswith("no ")
        parts.append(StatusPart(name, "warn" if missing else "dim", 5 if missing else 8, right=True))
    if info.branch:
        parts.append(StatusPart(shorten(escape_hidden(info.branch), 28), "dim", 6, right=True))
    parts.append(StatusPart(shorten(escape_hidden(shorten_home(info.cwd)), 40), "dim", 10, right=True))
    return parts
