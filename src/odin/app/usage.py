"""Usage reports: tokens and cost by day, model, agent, session, purpose or project."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from odin.config import find_project_root, get_state_dir, resolve_folder
from odin.config.paths import find_worktree_origin
from odin.core.call_events import USAGE_GROUPINGS, UsageGrouping, UsageReport, UsageRow, UsageTotals
from odin.core.errors import UsageError
from odin.session.index import UsageEntry, format_day, read_usage
from odin.session.store import SessionStore

__all__ = [
    "USAGE_GROUPINGS",
    "UsageGrouping",
    "UsagePeriod",
    "UsageReport",
    "UsageRow",
    "make_recent_period",
    "parse_day",
    "report_project_usage",
    "report_usage",
]

DAY_S = 86_400
REFRESH_S = 60
"""How often `TodaysCost` reads the cost of other sessions."""


class UsagePeriod(msgspec.Struct, frozen=True):
    """An inclusive range of days as YYYY-MM-DD. An empty bound is open."""

    first: str = ""
    last: str = ""

    def contains_day(self, day: str) -> bool:
        return (not self.first or day >= self.first) and (not self.last or day <= self.last)

    @property
    def name(self) -> str:
        if self.first and self.first == self.last:
            return self.first
        words = [f"from {self.first}" if self.first else "", f"to {self.last}" if self.last else ""]
        return " ".join(filter(None, words)) or "all time"


def make_recent_period(count: int, now: float | None = None) -> UsagePeriod:
    """Return the last `count` days, including today."""
    moment = time.time() if now is None else now
    noon = time.mktime((*time.localtime(moment)[:3], 12, 0, 0, 0, 0, -1))
    return UsagePeriod(format_day(noon - (count - 1) * DAY_S), format_day(noon))


def parse_day(text: str) -> str:
    """Return a date as YYYY-MM-DD. Raise UsageError."""
    try:
        return time.strftime("%Y-%m-%d", time.strptime(text, "%Y-%m-%d"))
    except ValueError as error:
        raise UsageError(f"Invalid date {text!r}.", "Use YYYY-MM-DD.") from error


def report_usage(
    env: Mapping[str, str],
    *,
    cwd: str = "",
    everywhere: bool = False,
    session: str = "",
    period: UsagePeriod,
    by: UsageGrouping = "day",
) -> UsageReport:
    """Return the usage of this project, of all projects, or of one session (ID, start of an ID, or title words)."""
    found = [entry for folder in _list_folders(env, cwd, everywhere) for entry in read_usage(folder)]
    return _build_report(found, _resolve_session_prefix(session, found, cwd, env), period, by)


def report_project_usage(
    folder: Path, *, session: str = "", period: UsagePeriod, by: UsageGrouping = "day"
) -> UsageReport:
    """Return the usage of all sessions in a project's folder, or of the one with this ID."""
    return _build_report(list(read_usage(folder)), session, period, by)


def _build_report(found: Sequence[UsageEntry], prefix: str, period: UsagePeriod, by: UsageGrouping) -> UsageReport:
    """Build a report of the sessions whose IDs start with `prefix`."""
    counted = [entry for entry in found if period.contains_day(entry.bucket.day) and entry.session.startswith(prefix)]
    name = _get_agent if by == "agent" and prefix else _GROUP_KEYS[by]
    sums: dict[str, UsageTotals] = {}
    titles: dict[str, str] = {}
    for entry in counted:
        key = name(entry)
        sums[key] = sums.get(key, UsageTotals()) + entry.spent
        titles[key] = _get_title(entry) if by == "session" else ""
    rows = [_build_row(key, spent, titles[key]) for key, spent in sums.items()]
    rows.sort(key=(lambda row: row.name) if by in ("day", "session") else _get_sort_key)
    total = sum((entry.spent for entry in counted), UsageTotals())
    return UsageReport(period.name, by, tuple(rows), _build_row("total", total))


def _resolve_session_prefix(name: str, found: Sequence[UsageEntry], cwd: str, env: Mapping[str, str]) -> str:
    """Return the ID or ID prefix that `name` stands for. Raise SessionNotFound.

    Deleted sessions can only be found by ID.
    """
    if any(entry.session.startswith(name) for entry in found):
        return name
    return _open_store(cwd, env).find(name) if name else ""


class TodaysCost:
    """The cost of all sessions of all projects since midnight, as far as prices are known.

    Other sessions are read once a minute; the cost of this session, `own()`, is always current.
    """

    def __init__(self, projects: Path, own: Callable[[], float]) -> None:
        self._projects = projects
        self._own_cost = own
        self._last_check = ("", -REFRESH_S)
        self._cost_at_check = 0.0
        self._own_cost_at_check = 0.0

    def __call__(self) -> float:
        day, now = format_day(time.time()), time.monotonic()
        if day != self._last_check[0] or now - self._last_check[1] >= REFRESH_S:
            self._last_check = (day, now)
            self._own_cost_at_check = self._own_cost()
            self._cost_at_check = sum(
                entry.spent.cost_usd
                for folder in _list_projects(self._projects)
                for entry in read_usage(folder)
                if entry.bucket.day == day
            )
        return self._cost_at_check + self._own_cost() - self._own_cost_at_check


def _list_projects(base: Path) -> list[Path]:
    return sorted(path for path in base.iterdir() if path.is_dir()) if base.is_dir() else []


def _list_folders(env: Mapping[str, str], cwd: str, everywhere: bool) -> Iterator[Path]:
    if everywhere:
        yield from _list_projects(SessionStore(get_state_dir(env), "").folder.parent)
        return
    yield _open_store(cwd, env).folder


def _open_store(cwd: str, env: Mapping[str, str]) -> SessionStore:
    state = get_state_dir(env)
    return SessionStore(state, find_worktree_origin(find_project_root(resolve_folder(cwd), env), state))


def _get_agent(entry: UsageEntry) -> str:
    return entry.bucket.agent or "main agent"


def _get_agent_kind(entry: UsageEntry) -> str:
    """Group all sub-agents: their names are only meaningful within one session."""
    return "sub-agents" if entry.bucket.agent else "main agent"


def _get_title(entry: UsageEntry) -> str:
    return f"{entry.title} (deleted)" if entry.deleted else entry.title


_GROUP_KEYS: dict[UsageGrouping, Callable[[UsageEntry], str]] = {
    "day": lambda entry: entry.bucket.day,
    "model": lambda entry: entry.bucket.model,
    "agent": _get_agent_kind,
    "session": lambda entry: entry.session,
    "purpose": lambda entry: entry.bucket.purpose,
    "project": lambda entry: entry.project,
}


def _get_sort_key(row: UsageRow) -> tuple[float, int, str]:
    """Sort by cost, then tokens, highest first."""
    return -row.cost_usd, -(row.input + row.output + row.cache_read + row.cache_write + row.reasoning), row.name


def _build_row(name: str, spent: UsageTotals, title: str = "") -> UsageRow:
    used, hits = spent.usage, spent.cache_hit_rate
    return UsageRow(
        name,
        title,
        spent.calls,
        used.input,
        used.output,
        used.cache_read,
        used.cache_write,
        used.reasoning,
        round(spent.cost_usd, 9),
        spent.unpriced,
        None if hits is None else round(hits, 4),
        spent.estimated,
        spent.missed,
    )
