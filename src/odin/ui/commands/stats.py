"""What was spent, in words and tables: by a session or the whole project, as a whole, by model, by agent or by day."""

from typing import Literal, NamedTuple

from odin.core.errors import UsageError
from odin.core.usage import By, UsageReport, UsageRow
from odin.ui.commands.spending import usd
from odin.ui.terminal import shorten, visible

Scope = Literal["session", "project"]
View = Literal["overview", "models", "agents", "dates"]

SCOPES: tuple[Scope, ...] = ("session", "project")
VIEWS: tuple[View, ...] = ("overview", "models", "agents", "dates")
BY: dict[View, By] = {"overview": "purpose", "models": "model", "agents": "agent", "dates": "day"}
NOTHING = "No model was asked in this time."
HOW = "Write /stats [session|project] [overview|models|agents|dates] [today|7d|30d|90d|all]."

_SCOPES: dict[str, Scope] = {name: name for name in SCOPES}
_VIEWS: dict[str, View] = {name: name for name in VIEWS}
_DAYS = {"today": 1, "all": 0}
_WIDE = 76


class Wanted(NamedTuple):
    """Whose, of what, and of how many days; 0 for ever."""

    scope: Scope = "session"
    view: View = "overview"
    days: int = 0


def wanted_stats(text: str) -> Wanted:
    """What was typed after /stats. Raises UsageError."""
    found = Wanted()
    for word in text.casefold().split():
        if word in _SCOPES:
            found = found._replace(scope=_SCOPES[word])
        elif word in _VIEWS:
            found = found._replace(view=_VIEWS[word])
        else:
            found = found._replace(days=_days(word, text))
    return found


def _days(word: str, text: str) -> int:
    number = word.removesuffix("d")
    if word in _DAYS:
        return _DAYS[word]
    if not number.isdecimal() or len(number) > 4:
        raise UsageError(f"/stats does not know {text.strip()!r}.", HOW)
    return int(number)


def stats_text(report: UsageReport, view: View, columns: int) -> str:
    """The whole report as lines."""
    if not report.total.calls:
        return f"{NOTHING}\n"
    if view == "overview":
        rows = [f"{name:<16}{value}" for name, value in overview(report.total)]
        rows += [f"{visible(row.name):<16}{calls(row)}, {cost(row)}" for row in report.rows if len(report.rows) > 1]
    else:
        rows = table(report, columns - 1)
    return "\n".join(filter(None, [*rows, unpriced(report.total)])) + "\n"


def overview(total: UsageRow) -> list[tuple[str, str]]:
    rows = [
        ("cost", cost(total)),
        ("model calls", f"{total.calls:,}"),
        ("input", f"{total.input:,} tokens"),
        ("from the cache", f"{total.cache_read:,} tokens"),
        ("into the cache", f"{total.cache_write:,} tokens"),
        ("output", f"{total.output:,} tokens"),
        ("reasoning", f"{total.reasoning:,} tokens" if total.reasoning else ""),
        ("cache hit rate", rate(total)),
    ]
    return [(name, value) for name, value in rows if value]


def table(report: UsageReport, columns: int) -> list[str]:
    """The head, a line for each row, the newest day first, and the sum."""
    rows = list(reversed(report.rows)) if report.by == "day" else list(report.rows)
    wide = columns >= _WIDE
    heads = ("calls", "input", "output", "cache", "cost") if wide else ("tokens", "cost")
    room = max(12, columns - sum(map(_column, heads)))
    lines = [f"{'':<{room}}" + "".join(f"{head:>{_column(head)}}" for head in heads)]
    for row in [*rows, report.total]:
        cells = _cells(row) if wide else (f"{_tokens(row):,}", cost(row))
        name = shorten(visible(row.name), room - 1)
        lines.append(
            f"{name:<{room}}" + "".join(f"{cell:>{_column(head)}}" for head, cell in zip(heads, cells, strict=True))
        )
    return lines


def _column(head: str) -> int:
    return {"calls": 8, "cache": 8, "cost": 18}.get(head, 14)


def _cells(row: UsageRow) -> tuple[str, ...]:
    sent = row.input + row.cache_read + row.cache_write
    return f"{row.calls:,}", f"{sent:,}", f"{row.output:,}", rate(row) or "–", cost(row)


def _tokens(row: UsageRow) -> int:
    return row.input + row.cache_read + row.cache_write + row.output


def calls(row: UsageRow) -> str:
    return f"{row.calls:,} {'call' if row.calls == 1 else 'calls'}"


def rate(row: UsageRow) -> str:
    return "" if row.cache_hit_rate is None else f"{row.cache_hit_rate:.0%}"


def cost(row: UsageRow) -> str:
    """What is not known is never shown as free."""
    if row.unpriced_tokens:
        return f"{usd(row.cost_usd)} + unknown" if row.cost_usd else "cost unknown"
    return usd(row.cost_usd)


def unpriced(total: UsageRow) -> str:
    if not total.unpriced_tokens:
        return ""
    return f"{total.unpriced_tokens:,} tokens are of models whose price is not known; they are in no cost."
