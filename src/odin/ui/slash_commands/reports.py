"""Text and parsing of the commands that report, from /models and /usage to /status and /diff.

`ErrorLog` keeps the recent errors that /errors shows.
"""

import re
import shlex
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from odin.core.call_events import (
    CacheMissCause,
    KeyPoolChanged,
    MissedTokens,
    RateLimitUpdated,
    RetryScheduled,
    UsageGrouping,
    UsageReport,
    UsageRow,
    UsageTotals,
)
from odin.core.client import AvailableModel, ChangedFile, Client, ContextReport, SessionInfo, Snapshot
from odin.core.event import Envelope, TurnEnded, Warned
from odin.core.event_values import Event
from odin.core.format import describe_limits, format_count, format_seconds, format_usd, pluralize
from odin.core.provider import ThinkingLosses
from odin.core.slash_commands import make_argument_error, make_usage_error
from odin.ui.terminal import TextPainter, TextStyle, escape_control, escape_hidden, measure_width, shorten, shorten_home


def format_window(tokens: int) -> str:
    if not tokens:
        return ""
    return f"{tokens / 1_000_000:.3g}M" if tokens >= 1_000_000 else f"{tokens // 1000}k"


def format_prices(item: AvailableModel) -> str:
    """Return the price per million tokens; "" if unknown, so that unknown prices never look free."""
    if item.price_input is None or item.price_output is None:
        return ""
    if not item.price_input and not item.price_output:
        return "free"
    return f"${item.price_input:g} in, ${item.price_output:g} out per million"


def describe_model(info: SessionInfo) -> str:
    """Return the selected model with its pool, and the one that answers instead of it."""
    pool = f" (pool {info.pool})" if info.pool else ""
    running = info.running_model
    return f"{info.model}{pool}" + (f", answering: {running}" if running and running != info.model else "")


def describe_keys(keys: KeyPoolChanged) -> tuple[str, str]:
    """Return how many keys of a provider are healthy and which one is used, and when the next one is available."""
    using = f", using …{keys.key}" if keys.key else ""
    following = f"next key in {format_seconds(keys.next_s)}" if keys.next_s else ""
    return f"{keys.healthy} of {keys.total} keys healthy{using}", following


def format_models(models: Sequence[AvailableModel], chosen: Collection[str], columns: int, words: str = "") -> str:
    """Return a line for each model whose name or address contains all the words; `*` marks the chosen ones."""
    needles = words.casefold().split()
    matches = [item for item in models if all(word in f"{item.ref} {item.address}".casefold() for word in needles)]
    if not matches:
        return "No matching models.\n" if models else "No models found. /model NAME accepts any name.\n"
    widest = min(max(len(item.ref) for item in matches), 48)
    lines: list[str] = []
    for item in matches:
        mark = "*" if item.ref in chosen else " "
        about = ", ".join(filter(None, (format_window(item.context), format_prices(item), escape_hidden(item.note))))
        lines.append(shorten(f"{mark} {escape_hidden(item.ref):<{widest}}  {about}".rstrip(), columns - 1))
    return "\n".join(lines) + "\n"


_BAR_COLUMNS = 30
_MAX_NAME_COLUMNS = 40


def parse_budget(text: str) -> float:
    """Parse an amount in US dollars. Raise UsageError."""
    try:
        return float(text.removeprefix("$"))
    except ValueError:
        raise make_usage_error("budget", f"Not an amount in US dollars: {text!r}.") from None


def describe_budget(amount: float) -> str:
    return f"Budget of this session: {format_usd(amount)}" if amount else "This session has no budget limit."


def can_resume_work(shot: Snapshot, amount: float) -> bool:
    """True if the last turn stopped at the budget and the new budget allows it to continue."""
    stopped = bool(shot.messages) and shot.messages[-1].reason == "error_max_budget_usd" and not shot.executing
    return stopped and (amount == 0 or amount > shot.cost_usd)


def format_context(report: ContextReport) -> str:
    """Return how full the context window is, with a line for each source, largest first."""
    about = "" if report.measured else "about "
    limit = f" of {report.room:,}" if report.room else ""
    lines = [f"{escape_hidden(report.model)}: {about}{report.used:,} tokens{limit}"]
    if report.fullness is not None:
        part = min(1.0, report.fullness)
        lines[0] += f" ({report.fullness:.0%})"
        lines.append(f"[{'#' * round(part * _BAR_COLUMNS):<{_BAR_COLUMNS}}]")
    else:
        lines[0] += "; window size unknown"
    widest = max((len(part.source) for part in report.parts), default=0)
    for part in sorted(report.parts, key=lambda part: -part.tokens):
        share = part.tokens / report.used if report.used else 0
        count = f"   ({part.count} items)" if part.count > 1 else ""
        lines.append(f"  {escape_hidden(part.source):<{widest}}  {part.tokens:>9,}  {share:>4.0%}{count}")
    if report.instructions:
        lines.append("Instructions:")
        widest = min(max(len(item.name) for item in report.instructions), _MAX_NAME_COLUMNS)
        for item in report.instructions:
            why = f"   ({escape_hidden(item.why)})" if item.why else ""
            lines.append(f"  {escape_hidden(item.name):<{widest}}  {item.tokens:>9,}{why}")
    if report.budget:
        lines.append(f"{report.limit - report.budget:,} of the {report.limit:,} tokens of the window are kept free.")
    if report.threshold:
        lines.append(f"Auto-compacts at {report.threshold:,} tokens. /compact does it now.")
    if report.compacting:
        lines.append("Compaction is running. /compact cancel stops it.")
    lines.append(
        "The total was measured by the provider; the parts are estimates."
        if report.measured
        else "All numbers are estimates until the next reply."
    )
    return "\n".join(lines) + "\n"


def format_usage(shot: Snapshot, info: SessionInfo, columns: int) -> str:
    """Return the tokens and cost of this session as a table by model, and by agent if there are several."""
    total = sum(shot.spent_by_model.values(), UsageTotals())
    if not total.calls:
        return "No usage yet.\n"
    lines = _format_totals("model", shot.spent_by_model, columns)
    if len(shot.spent_by_agent) > 1:
        agents = {name or "main agent": spent for name, spent in shot.spent_by_agent.items()}
        lines += ["", *_format_totals("agent", agents, columns)]
    lines += [*describe_misses(total.missed), *describe_caveats(total.unpriced, total.estimated)]
    if info.budget_usd:
        lines.append(f"Budget: {format_usd(info.budget_usd)}. /budget USD changes it, /budget 0 removes it.")
    lines.append("/stats shows more; `odin usage` covers all sessions.")
    return "\n".join(lines) + "\n"


def _format_totals(by: UsageGrouping, groups: Mapping[str, UsageTotals], columns: int) -> list[str]:
    rows = tuple(_make_row(name, spent) for name, spent in groups.items())
    lines = format_table(
        UsageReport("", by, rows, _make_row("total", sum(groups.values(), UsageTotals()))), columns - 1
    )
    return lines if len(rows) > 1 else lines[:-1]


def _make_row(name: str, spent: UsageTotals) -> UsageRow:
    used = spent.usage
    return UsageRow(
        name,
        "",
        spent.calls,
        used.input,
        used.output,
        used.cache_read,
        used.cache_write,
        used.reasoning,
        spent.cost_usd,
        spent.unpriced,
        spent.cache_hit_rate,
        spent.estimated,
        spent.missed,
    )


def format_cost(usd: float, unpriced: int) -> str:
    """Return the cost; unknown prices never look free."""
    if unpriced:
        return f"{format_usd(usd)} + unknown" if usd else "cost unknown"
    return format_usd(usd)


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
NO_USAGE = "No usage in this period."

_SCOPE_WORDS: dict[str, StatsScope] = {name: name for name in STATS_SCOPES}
_VIEW_WORDS: dict[str, StatsView] = {name: name for name in STATS_VIEWS}
_DAY_WORDS = {"today": 1, "all": 0}
_WIDE_COLUMNS = 76


class StatsRequest(NamedTuple):
    """Which usage /stats shows; `days` 0 means all time."""

    scope: StatsScope = "session"
    view: StatsView = "overview"
    days: int = 0


def parse_stats(text: str) -> StatsRequest:
    """Parse the arguments of /stats. Raise UsageError."""
    request = StatsRequest()
    for word in text.casefold().split():
        if word in _SCOPE_WORDS:
            request = request._replace(scope=_SCOPE_WORDS[word])
        elif word in _VIEW_WORDS:
            request = request._replace(view=_VIEW_WORDS[word])
        else:
            request = request._replace(days=_parse_days(word))
    return request


def _parse_days(word: str) -> int:
    number = word.removesuffix("d")
    if word in _DAY_WORDS:
        return _DAY_WORDS[word]
    if not number.isdecimal() or len(number) > 4:
        raise make_argument_error("stats", word)
    return int(number)


def format_stats(report: UsageReport, view: StatsView, columns: int) -> str:
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
    return "\n".join([*rows, *list_caveats(report.total)]) + "\n"


def format_overview(total: UsageRow) -> list[tuple[str, str]]:
    rows = [
        ("cost", format_row_cost(total)),
        ("model calls", f"{total.calls:,}"),
        ("input", f"{total.input:,} tokens"),
        ("cache read", f"{total.cache_read:,} tokens"),
        ("cache write", f"{total.cache_write:,} tokens"),
        ("output", f"{total.output:,} tokens"),
        ("reasoning", f"{total.reasoning:,} tokens" if total.reasoning else ""),
        ("cache hit rate", format_hit_rate(total)),
    ]
    return [(name, value) for name, value in rows if value]


def format_table(report: UsageReport, columns: int) -> list[str]:
    """Return the header, one line for each row (newest day first) and the total."""
    rows = list(reversed(report.rows)) if report.by == "day" else list(report.rows)
    wide = columns >= _WIDE_COLUMNS
    heads = ("calls", "input", "output", "cache", "cost") if wide else ("tokens", "cost")
    names = max(measure_width(escape_hidden(row.name)) for row in [*rows, report.total]) + 2
    room = max(12, min(names, columns - sum(map(_get_column_width, heads))))
    lines = [f"{report.by:<{room}}" + "".join(f"{head:>{_get_column_width(head)}}" for head in heads)]
    for row in [*rows, report.total]:
        cells = _format_cells(row) if wide else (f"{_count_tokens(row):,}", format_row_cost(row))
        name = shorten(escape_hidden(row.name), room - 1)
        lines.append(
            f"{name:<{room}}"
            + "".join(f"{cell:>{_get_column_width(head)}}" for head, cell in zip(heads, cells, strict=True))
        )
    return lines


def _get_column_width(head: str) -> int:
    return {"calls": 7, "input": 13, "output": 11, "cache": 7, "cost": 18}.get(head, 14)


def _format_cells(row: UsageRow) -> tuple[str, ...]:
    sent = row.input + row.cache_read + row.cache_write
    return f"{row.calls:,}", f"{sent:,}", f"{row.output:,}", format_hit_rate(row) or "–", format_row_cost(row)


def _count_tokens(row: UsageRow) -> int:
    return row.input + row.cache_read + row.cache_write + row.output


def format_calls(row: UsageRow) -> str:
    return pluralize(row.calls, "call")


def format_hit_rate(row: UsageRow) -> str:
    return "" if row.cache_hit_rate is None else f"{row.cache_hit_rate:.0%}"


def format_row_cost(row: UsageRow) -> str:
    return format_cost(row.cost_usd, row.unpriced_tokens)


_CAUSES: dict[CacheMissCause, str] = {
    "model": "another model",
    "tools": "other tools",
    "system": "another system prompt",
    "settings": "another effort or way of thinking",
    "history": "edited history",
    "expired": "expired",
    "dropped": "dropped by the provider",
}


def describe_misses(missed: Mapping[CacheMissCause, MissedTokens]) -> list[str]:
    """Return a line with the tokens that were sent again because the cache did not have them, the most first."""
    parts = [
        f"{_CAUSES[cause]}: {found.tokens:,} tokens" + (f" in {found.times} requests" if found.times > 1 else "")
        for cause, found in sorted(missed.items(), key=lambda item: -item[1].tokens)
    ]
    return [f"Missed in the provider's cache: {'; '.join(parts)}."] if parts else []


def list_caveats(total: UsageRow) -> list[str]:
    return [*describe_misses(total.cache_misses), *describe_caveats(total.unpriced_tokens, total.estimated_tokens)]


def describe_caveats(unpriced: int, estimated: int) -> list[str]:
    """Return what makes the sums inexact, one sentence each."""
    caveats: list[str] = []
    if unpriced:
        caveats.append(f"{unpriced:,} tokens of models with unknown prices are not included in the cost.")
    if estimated:
        caveats.append(f"{estimated:,} tokens are estimated: the provider did not report them.")
    return caveats


DOCTOR_HINT = "Run `odin doctor` to check settings, keys and this machine."


def list_facts(info: SessionInfo) -> list[tuple[str, str]]:
    """Return the session's setup as label and value pairs."""
    return [
        ("session", info.session),
        ("folder", info.cwd),
        *(("added", f"{root.path} ({root.describe()})") for root in info.roots),
        ("model", info.model),
        ("version", info.version),
        ("role", info.role),
        ("permissions", info.permission_mode),
        ("sandbox", info.sandbox or "none"),
        ("budget", f"${info.budget_usd:g}" if info.budget_usd else "no limit"),
        ("tools", f"{len(info.tools)}"),
        *([("skills", f"{len(info.skills)}")] if info.skills else []),
        *([("log file", info.log_file)] if info.log_file else []),
    ]


MAX_ERRORS_KEPT = 80
MAX_DETAIL_CHARS = 4_000
"""Longer error texts are cut."""

DUPLICATE_WINDOW_S = 2.0
_FINE_REASONS = ("end_turn", "interrupted")
_SECRET = re.compile(
    r"""(?ix)
      (?P<name> (?: api[-_]?key | x-api-key | token | secret | password | authorization ) ["']? \s* [:=] \s* ["']?
                (?: bearer \s+ | basic \s+ )? | \bbearer \s+ )
      (?P<value> [^\s"',;&]{6,} )
    | (?P<shape> \b (?: sk | pk | rk | gsk | ghp | gho | ghs | glpat | xox[abprs] | AIza | AKIA | hf | nvapi )
                [-_]? [A-Za-z0-9_\-]{12,} )
    """
)


class ErrorEntry(Struct, frozen=True):
    """One error. `agent` is "" for the main agent; the first line of `detail` is the summary."""

    ts: float
    kind: str
    detail: str
    agent: str = ""

    @property
    def line(self) -> str:
        return next(iter(self.detail.splitlines()), "")


class ErrorLog:
    """The most recent errors of this run, across sessions, with secrets masked."""

    def __init__(self) -> None:
        self._entries: deque[ErrorEntry] = deque(maxlen=MAX_ERRORS_KEPT)
        self.count = 0

    @property
    def newest_first(self) -> list[ErrorEntry]:
        return list(reversed(self._entries))

    def add(self, ts: float, kind: str, detail: str, agent: str = "") -> None:
        """Add an error. A repetition within two seconds is skipped: an event may also arrive as a notice."""
        detail = mask_secrets(detail.strip())[:MAX_DETAIL_CHARS]
        last = self._entries[-1] if self._entries else None
        if last is not None and last.detail == detail and abs(ts - last.ts) < DUPLICATE_WINDOW_S:
            return
        self.count += 1
        self._entries.append(ErrorEntry(ts, kind, detail, agent))

    # --- as a session observer ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        return None

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        error = _describe_error(envelope.event) if live else None
        if error is not None:
            self.add(envelope.ts, *error, envelope.agent)

    def draw_frame(self) -> None:
        return None


def mask_secrets(text: str) -> str:
    """Return the text with the middle of everything that looks like a secret replaced by an ellipsis."""
    return _SECRET.sub(lambda found: f"{found['name'] or ''}{_mask_secret(found['value'] or found['shape'])}", text)


def _mask_secret(secret: str) -> str:
    return f"{secret[:4]}…{secret[-2:]}" if len(secret) >= 12 else "…"


def _describe_error(event: Event) -> tuple[str, str] | None:
    """Return the kind and detail of the error that an event reports, or None."""
    if isinstance(event, TurnEnded) and (event.error or event.reason not in _FINE_REASONS):
        lines = [event.error or f"The turn ended: {event.reason}.", event.hint]
        codes = (("status", event.error_status), ("code", event.error_code), ("type", event.error_type))
        lines += [f"{name}: {value}" for name, value in codes if value]
        return event.error_kind or event.reason, "\n".join(filter(None, lines))
    if isinstance(event, RetryScheduled):
        again = f"Attempt {event.number}; retried after {event.delay_s:.1f} s."
        return event.error_kind or "retry", f"{event.error}\n{again}"
    if isinstance(event, Warned) and event.level != "info":
        return "warning" if event.level == "warn" else "error", event.text
    return None


async def gather_status(client: Client) -> list[tuple[str, str]]:
    """Return the status of a session as pairs of label and value. Asks no server."""
    info, shot, models = await client.get_info(), await client.snapshot(), await client.list_models()
    return [(label, escape_hidden(value)) for label, value in _list_status(info, shot, models) if value]


def _list_status(info: SessionInfo, shot: Snapshot, models: Iterable[AvailableModel]) -> list[tuple[str, str]]:
    # The entry of the model, or of another one of its provider: both are reached with the same key.
    ref = info.model
    same_provider = [item for item in models if item.ref.partition("/")[0] == ref.partition("/")[0]]
    entry = next((item for item in same_provider if item.ref == ref), same_provider[0] if same_provider else None)
    provider = info.model.partition("/")[0]
    address = f" ({entry.address})" if entry is not None and entry.address else ""
    title = f" ({shot.title})" if shot.title else ""
    return [
        ("version", info.version),
        ("model", describe_model(info)),
        ("effort", info.effort),
        ("provider", f"{provider}{address}"),
        ("proxy", info.proxy),
        *((f"keys of {keys.provider}", ", ".join(filter(None, describe_keys(keys)))) for keys in info.keys),
        *((f"rate limit of {item.provider}", _describe_rate_limit(item)) for item in info.rate_limits),
        *((f"thinking of {name}", _describe_losses(lost)) for name, lost in info.thinking_losses.items()),
        ("key", entry.note.removeprefix("key: ") if entry is not None else "unknown"),
        ("directory", shorten_home(info.cwd)),
        *(("added", f"{shorten_home(root.path)} ({root.describe()})") for root in info.roots),
        ("branch", info.branch),
        ("sandbox", info.sandbox or "none"),
        ("role", info.role),
        ("permissions", info.permission_mode),
        ("session", f"{info.session}{title}"),
        ("usage", _describe_usage(shot)),
        ("warnings", f"{pluralize(len(info.warnings), 'warning')}; /diagnostics shows them" if info.warnings else ""),
    ]


def _describe_losses(lost: ThinkingLosses) -> str:
    replies = pluralize(lost.left_out, "reply", "replies")
    parts = (
        f"left out of {replies}, because something before has changed" if lost.left_out else "",
        f"{pluralize(lost.dropped, 'block')} dropped by the API" if lost.dropped else "",
        f"refused in {lost.refused}" if lost.refused else "",
    )
    return "; ".join(filter(None, parts))


def _describe_rate_limit(limits: RateLimitUpdated) -> str:
    key = f"…{limits.key}: " if limits.key else ""
    reset = f", reset in {format_seconds(limits.reset_s)}" if limits.reset_s else ""
    return f"{key}{describe_limits(limits)}{reset}"


def _describe_usage(shot: Snapshot) -> str:
    total = sum(shot.spent_by_model.values(), UsageTotals())
    if not total.calls:
        return "none yet"
    used = total.usage
    tokens = used.input + used.cache_read + used.cache_write + used.output
    cost = format_cost(total.cost_usd, total.unpriced)
    return f"{pluralize(total.calls, 'model call')}, {format_count(tokens)} tokens, {cost}"


NO_CHANGES = "No uncommitted changes."


def parse_paths(rest: str) -> list[str]:
    """Parse the arguments of /diff. Raise UsageError for an open quote."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise make_usage_error("diff", f"Cannot parse the path: {error}.") from None


def summarize_changes(files: Sequence[ChangedFile]) -> str:
    """Return a line such as `3 files changed, +12 −4`."""
    counts = f"+{sum(file.added for file in files):,} −{sum(file.removed for file in files):,}"
    return f"{pluralize(len(files), 'file')} changed, {counts}"


def describe_changed_file(file: ChangedFile) -> str:
    """Return a line such as `src/a.py (added, +12 −0)`."""
    counts = f", +{file.added:,} −{file.removed:,}" if file.added or file.removed else ""
    return f"{escape_hidden(file.path)} ({file.status}{counts})"


def format_changes(files: Sequence[ChangedFile], painter: TextPainter) -> str:
    if not files:
        return f"{NO_CHANGES}\n"
    lines: list[str] = []
    for file in files:
        lines.append(painter.paint(describe_changed_file(file), "bold"))
        hunks = file.diff.split("\n")[2:]
        lines += [_paint_line(escape_control(line.replace("\r", "")), painter) for line in hunks]
        lines.append("")
    return "\n".join([*lines, summarize_changes(files), ""])


_SIGN_STYLES: dict[str, TextStyle] = {"+": "green", "-": "red", "@": "cyan"}


def _paint_line(line: str, painter: TextPainter) -> str:
    style = _SIGN_STYLES.get(line[:1])
    return painter.paint(line, style) if style else line
