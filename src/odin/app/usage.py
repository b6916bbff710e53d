"""`odin usage`: what was spent, when, by which model and for what."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from odin.config import current_folder, project_root, state_dir
from odin.core.errors import UsageError
from odin.core.spent import Spent
from odin.core.usage import GROUPS, By, UsageReport, UsageRow
from odin.session.spending import day_of
from odin.session.store import Store
from odin.session.usage import Entry, entries

__all__ = ["GROUPS", "By", "Period", "UsageReport", "UsageRow", "a_day", "last_days", "project_usage", "usage_report"]

DAY_S = 86_400
LOOK_EVERY_S = 60
"""How often is looked at what other sessions cost today."""


class Period(msgspec.Struct, frozen=True):
    """From the first day to the last, both included, as YYYY-MM-DD; what is empty has no bound."""

    first: str = ""
    last: str = ""

    def holds(self, day: str) -> bool:
        return (not self.first or day >= self.first) and (not self.last or day <= self.last)

    @property
    def name(self) -> str:
        if self.first and self.first == self.last:
            return self.first
        words = [f"from {self.first}" if self.first else "", f"to {self.last}" if self.last else ""]
        return " ".join(filter(None, words)) or "all time"


def last_days(count: int, now: float | None = None) -> Period:
    """Today and the days before it, `count` in all."""
    moment = time.time() if now is None else now
    noon = time.mktime((*time.localtime(moment)[:3], 12, 0, 0, 0, 0, -1))
    return Period(day_of(noon - (count - 1) * DAY_S), day_of(noon))


def a_day(text: str) -> str:
    """A date as it is kept. Raises UsageError."""
    try:
        return time.strftime("%Y-%m-%d", time.strptime(text, "%Y-%m-%d"))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a date.", "Write it as YYYY-MM-DD.") from error


def usage_report(
    env: Mapping[str, str],
    *,
    cwd: str = "",
    everywhere: bool = False,
    session: str = "",
    period: Period,
    by: By = "day",
) -> UsageReport:
    """What this project has spent, or every project, or one session: its id, its beginning, or words of its title."""
    found = [entry for folder in _folders(env, cwd, everywhere) for entry in entries(folder)]
    return _report(found, _beginning(session, found, cwd, env), period, by)


def project_usage(folder: Path, *, session: str = "", period: Period, by: By = "day") -> UsageReport:
    """What the sessions in one project's folder have spent, or the one with this id."""
    return _report(list(entries(folder)), session, period, by)


def _report(found: Sequence[Entry], begins: str, period: Period, by: By) -> UsageReport:
    """`begins` is how the ids of the sessions that count begin."""
    counted = [entry for entry in found if period.holds(entry.place.day) and entry.session.startswith(begins)]
    name = _agent if by == "agent" and begins else _NAMES[by]
    sums: dict[str, Spent] = {}
    titles: dict[str, str] = {}
    for entry in counted:
        key = name(entry)
        sums[key] = sums.get(key, Spent()) + entry.spent
        titles[key] = _title(entry) if by == "session" else ""
    rows = [_row(key, spent, titles[key]) for key, spent in sums.items()]
    rows.sort(key=(lambda row: row.name) if by in ("day", "session") else _weight)
    total = sum((entry.spent for entry in counted), Spent())
    return UsageReport(period.name, by, tuple(rows), _row("total", total))


def _beginning(said: str, found: Sequence[Entry], cwd: str, env: Mapping[str, str]) -> str:
    """How the ids of the sessions that are meant begin. Deleted ones have only that. Raises SessionNotFound."""
    if any(entry.session.startswith(said) for entry in found):
        return said
    from odin.app.sessions import project_sessions

    return project_sessions(cwd, env).find(said) if said else ""


class Today:
    """What all sessions of all projects have cost since midnight, as far as prices are known.

    The others are looked at now and then; what our own session, whose cost so far is `own()`, adds meanwhile counts at
    once.
    """

    def __init__(self, projects: Path, own: Callable[[], float]) -> None:
        self._projects = projects
        self._own = own
        self._looked = ("", -LOOK_EVERY_S)
        self._sum = 0.0
        self._own_then = 0.0

    def __call__(self) -> float:
        day, now = day_of(time.time()), time.monotonic()
        if day != self._looked[0] or now - self._looked[1] >= LOOK_EVERY_S:
            self._looked = (day, now)
            self._own_then = self._own()
            self._sum = sum(
                entry.spent.cost_usd
                for folder in _projects(self._projects)
                for entry in entries(folder)
                if entry.place.day == day
            )
        return self._sum + self._own() - self._own_then


def _projects(base: Path) -> list[Path]:
    return sorted(path for path in base.iterdir() if path.is_dir()) if base.is_dir() else []


def _folders(env: Mapping[str, str], cwd: str, everywhere: bool) -> Iterator[Path]:
    if everywhere:
        yield from _projects(Store(state_dir(env), "").folder.parent)
        return
    folder = os.path.realpath(cwd or current_folder())
    if not Path(folder).is_dir():
        raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
    yield Store(state_dir(env), project_root(folder, env)).folder


def _agent(entry: Entry) -> str:
    return entry.place.agent or "main agent"


def _kind_of_agent(entry: Entry) -> str:
    """Names of sub-agents mean something only within one session."""
    return "sub-agents" if entry.place.agent else "main agent"


def _title(entry: Entry) -> str:
    return f"{entry.title} (deleted)" if entry.deleted else entry.title


_NAMES: dict[By, Callable[[Entry], str]] = {
    "day": lambda entry: entry.place.day,
    "model": lambda entry: entry.place.model,
    "agent": _kind_of_agent,
    "session": lambda entry: entry.session,
    "purpose": lambda entry: entry.place.purpose,
    "project": lambda entry: entry.project,
}


def _weight(row: UsageRow) -> tuple[float, int, str]:
    """What cost most stands first."""
    return -row.cost_usd, -(row.input + row.output + row.cache_read + row.cache_write + row.reasoning), row.name


def _row(name: str, spent: Spent, title: str = "") -> UsageRow:
    used, hits = spent.usage, spent.cache_hits
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
    )
