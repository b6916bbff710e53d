"""What was spent, in words and tables: by a session or the whole project, as a whole, by model, by agent or by day."""

from typing import Literal, NamedTuple

from odin.core.errors import UsageError
from odin.core.usage import UsageGrouping, UsageReport, UsageRow
from odin.ui.commands.spending import format_usd
from odin.ui.terminal import escape_hidden, shorten

StatsScope = Literal["session", "project"]
StatsView = Literal["overview", "models", "agents", "dates"]

STATS_SCOPES: tuple[StatsScope, ...] = ("session", "project")
STATS_VIEWS: tuple[StatsView, ...] = ("overview", "models", "agents", "dates")
VIEW_GROUPINGS: dict[StatsView, UsageGrouping] = {
    "overview": "purpose",
    "models": "model",
    "agents": "agent",
    "dates": "day",
}
NO_USAGE = "No model was asked in this time."
STATS_USAGE = "Write /stats [session|project] [overview|models|agents|dates] [today|7d|30d|90d|all]."

_SCOPE_WORDS: dict[str, StatsScope] = {name: name for name in STATS_SCOPES}
_VIEW_WORDS: dict[str, StatsView] = {name: name for name in STATS_VIEWS}
_DAY_WORDS = {"today": 1, "all": 0}
_WIDE_COLUMNS = 76


class StatsRequest(NamedTuple):
    """Whose, of what, and of how many days; 0 for ever."""

    scope: StatsScope = "session"
    view: StatsView = "overview"
    days: int = 0


def parse_stats(text: str) -> StatsRequest:
    """What was typed after /stats. Raises UsageError."""
    found = StatsRequest()
    for word in text.casefold().split():
        if word in _SCOPE_WORDS:
            found = found._replace(scope=_SCOPE_WORDS[word])
        elif word in _VIEW_WORDS:
            found = found._replace(view=_VIEW_WORDS[word])
        else:
            found = found._replace(days=_parse_days(word, text))
    return found


def _parse_days(word: str, text: str) -> int:
    number = word.removesuffix("d")
    if word in _DAY_WORDS:
        return _DAY_WORDS[word]
    if not number.isdecimal() or len(number) > 4:
        raise UsageError(f"/stats does not know {text.strip()!r}.", STATS_USAGE)
    return int(number)


def format_stats(report: UsageReport, view: StatsView, columns: int) -> str:
    """The whole report as lines."""
    if not report.total.calls:
        return f"{NO_USAGE}\n"
    if view == "overview":
        rows = [f"{name:<16}{value}" for name, value in format_overview(report.total)]
        rows += [
            f"{escape_hidden(row.name):<16}{format_calls(row)}, {format_row_cost(row)}"
            for row in report.rows
            if len(report.rows) > 1
        ]
    else:
        rows = format_table(report, columns - 1)
    return "\n".join(filter(None, [*rows, format_unpriced(report.total)])) + "\n"


def format_overview(total: UsageRow) -> list[tuple[str, str]]:
    rows = [
        ("cost", format_row_cost(total)),
        ("model calls", f"{total.calls:,}"),
        ("input", f"{total.input:,} tokens"),
        ("from the cache", f"{total.cache_read:,} tokens"),
        ("into the cache", f"{total.cache_write:,} tokens"),
        ("output", f"{total.output:,} tokens"),
        ("reasoning", f"{total.reasoning:,} tokens" if total.reasoning else ""),
        ("cache hit rate", format_hit_rate(total)),
    ]
    return [(name, value) for name, value in rows if value]


def format_table(report: UsageReport, columns: int) -> list[str]:
    """The head, a line for each row, the newest day first, and the sum."""
    rows = list(reversed(report.rows)) if report.by == "day" else list(report.rows)
    wide = columns >= _WIDE_COLUMNS
    heads = ("calls", "input", "output", "cache", "cost") if wide else ("tokens", "cost")
    room = max(12, columns - sum(map(_column_width_of, heads)))
    lines = [f"{'':<{room}}" + "".join(f"{head:>{_column_width_of(head)}}" for head in heads)]
    for row in [*rows, report.total]:
        cells = _format_cells(row) if wide else (f"{_count_tokens(row):,}", format_row_cost(row))
        name = shorten(escape_hidden(row.name), room - 1)
        lines.append(
            f"{name:<{room}}"
            + "".join(f"{cell:>{_column_width_of(head)}}" for head, cell in zip(heads, cells, strict=True))
        )
    return lines


def _column_width_of(head: str) -> int:
    return {"calls": 8, "cache": 8, "cost": 18}.get(head, 14)


def _format_cells(row: UsageRow) -> tuple[str, ...]:
    sent = row.input + row.cache_read + row.cache_write
    return f"{row.calls:,}", f"{sent:,}", f"{row.output:,}", format_hit_rate(row) or "–", format_row_cost(row)


def _count_tokens(row: UsageRow) -> int:
    return row.input + row.cache_read + row.cache_write + row.output


def format_calls(row: UsageRow) -> str:
    return f"{row.calls:,} {'call' if row.calls == 1 else 'calls'}"


def format_hit_rate(row: UsageRow) -> str:
    return "" if row.cache_hit_rate is None else f"{row.cache_hit_rate:.0%}"


def format_row_cost(row: UsageRow) -> str:
    """What is not known is never shown as free."""
    if row.unpriced_tokens:
        return f"{format_usd(row.cost_usd)} + unknown" if row.cost_usd else "cost unknown"
    return format_usd(row.cost_usd)


def format_unpriced(total: UsageRow) -> str:
    if not total.unpriced_tokens:
        return ""
    return f"{total.unpriced_tokens:,} tokens are of models whose price is not known; they are in no cost."
