"""`odin usage`: usage and cost from the session logs, grouped by day, model, agent, session and purpose."""

import csv
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.app.usage import UsagePeriod, make_recent_period, report_usage
from odin.core.call_events import UsageRecorded, UsageTotals
from odin.core.event import Envelope, TurnStarted
from odin.core.message import Usage
from odin.session.index import INDEX_NAME, LEDGER_NAME, read_ledger_line, read_usage, record_deleted_usage
from odin.session.lifecycle import delete_session, fork_session
from odin.session.log import LOG_FORMAT, LogHeader, SessionLog
from odin.session.store import SessionStore
from tests.conftest import Run

MODEL, OTHER = "anthropic/claude-sonnet-4-5", "ollama/qwen3"


def get_noon(day: str) -> float:
    return time.mktime((*time.strptime(day, "%Y-%m-%d")[:3], 12, 0, 0, 0, 0, -1))


Call = tuple[str, UsageRecorded, str]
"""The day, the usage event and the agent."""


def write(store: SessionStore, session: str, *calls: Call) -> SessionLog:
    """Write a session log with these calls, each at noon of its day."""
    log = SessionLog(store.get_path(session), LogHeader(LOG_FORMAT, session, "/project/shop", get_noon(calls[0][0])))
    log.append(Envelope(0, get_noon(calls[0][0]), session, TurnStarted("p", f"do {session}", "edit_mode")))
    for number, (day, event, agent) in enumerate(calls, 1):
        log.append(Envelope(number, get_noon(day), session, event, agent))
    log.close()
    return log


CALL = Usage(100, 10)


def make_usage_event(usage: Usage = CALL, cost: float = 0.5, model: str = MODEL, purpose: str = "main") -> Any:
    return UsageRecorded(model, usage, cost, 200_000, purpose)


@pytest.fixture
def store(home: Path, workspace: Path) -> SessionStore:
    return SessionStore(home / ".local/state/odin", str(workspace))


def report(
    workspace: Path, by: Any = "day", period: UsagePeriod | None = None, **more: Any
) -> dict[str, tuple[int, float]]:
    found = report_usage(os.environ, cwd=str(workspace), by=by, period=period or UsagePeriod(), **more)
    rows = {row.name: (row.calls, row.cost_usd) for row in found.rows}
    assert (found.total.calls, found.total.cost_usd) == (
        sum(calls for calls, _ in rows.values()),
        pytest.approx(sum(cost for _, cost in rows.values())),
    )
    return rows


def test_usage_can_be_grouped_by_every_key(store: SessionStore, workspace: Path) -> None:
    write(
        store, "one", ("2026-03-01", make_usage_event(cost=1), ""), ("2026-03-02", make_usage_event(cost=2), "agent-1")
    )
    write(
        store,
        "two",
        ("2026-03-02", make_usage_event(cost=4, purpose="title"), ""),
        ("2026-03-02", make_usage_event(cost=0, model=OTHER), ""),
        ("2026-03-02", make_usage_event(cost=8), "agent-2"),
    )
    assert report(workspace) == {"2026-03-01": (1, 1), "2026-03-02": (4, 14)}
    assert report(workspace, "model") == {MODEL: (4, 15), OTHER: (1, 0)}
    assert report(workspace, "agent") == {"sub-agents": (2, 10), "main agent": (3, 5)}
    assert report(workspace, "session") == {"one": (2, 3), "two": (3, 12)}
    assert report(workspace, "purpose") == {"main": (4, 11), "title": (1, 4)}
    assert report(workspace, "project") == {"/project/shop": (5, 15)}
    assert report(workspace, "agent", session="two") == {"agent-2": (1, 8), "main agent": (2, 4)}


def test_a_period_has_a_first_and_a_last_day(store: SessionStore, workspace: Path) -> None:
    days = ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
    write(store, "s", *((day, make_usage_event(), "") for day in days))
    assert list(report(workspace, period=UsagePeriod("2026-02-28", "2026-03-01"))) == days[1:3]
    assert list(report(workspace, period=UsagePeriod("2026-03-01"))) == days[2:]
    assert list(report(workspace, period=UsagePeriod(last="2026-02-27"))) == days[:1]
    assert make_recent_period(3, get_noon("2026-03-01")) == UsagePeriod("2026-02-27", "2026-03-01")
    assert make_recent_period(1, get_noon("2026-03-01") - 11.9 * 3600) == UsagePeriod("2026-03-01", "2026-03-01")


@pytest.mark.parametrize("zone", ["Pacific/Auckland", "America/Los_Angeles"])
def test_days_follow_the_local_time_zone(
    store: SessionStore, workspace: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        late = get_noon("2026-03-01") + (11.5 * 3600 if zone.startswith("Pacific") else -11.5 * 3600)
        log = SessionLog(store.get_path("s"), LogHeader(LOG_FORMAT, "s", "", late))
        log.append(Envelope(0, late, "s", make_usage_event()))
        log.close()
        assert list(report(workspace)) == ["2026-03-01"]
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert list(report(workspace)) == ["2026-03-02" if zone.startswith("Pacific") else "2026-02-28"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_new_events_of_a_log_are_added(store: SessionStore, workspace: Path) -> None:
    log = write(store, "s", ("2026-03-01", make_usage_event(), ""))
    assert report(workspace) == {"2026-03-01": (1, 0.5)}
    log.append(Envelope(2, get_noon("2026-03-01"), "s", make_usage_event()))
    log.append(Envelope(3, get_noon("2026-03-03"), "s", make_usage_event(cost=2)))
    log.close()
    assert report(workspace) == {"2026-03-01": (2, 1.0), "2026-03-03": (1, 2)}
    (store.folder / INDEX_NAME).write_bytes(b"nonsense")
    assert report(workspace) == {"2026-03-01": (2, 1.0), "2026-03-03": (1, 2)}


def test_usage_copied_by_a_fork_counts_once(store: SessionStore, workspace: Path) -> None:
    log = write(
        store, "first", ("2026-03-01", make_usage_event(cost=1), ""), ("2026-03-02", make_usage_event(cost=2), "")
    )
    copy = fork_session(store, log, str(workspace), session="second").log
    copy.append(Envelope(3, get_noon("2026-03-02"), "second", make_usage_event(cost=4)))
    again = fork_session(store, copy, str(workspace), session="third").log
    copy.close()
    again.append(Envelope(4, get_noon("2026-03-03"), "third", make_usage_event(cost=8)))
    again.close()
    assert report(workspace, "session") == {"first": (2, 3), "second": (1, 4), "third": (1, 8)}
    delete_session(store, "first")
    assert report(workspace) == {"2026-03-01": (1, 1), "2026-03-02": (2, 6), "2026-03-03": (1, 8)}


def test_usage_of_a_deleted_session_is_kept(store: SessionStore, workspace: Path, run_odin: Run) -> None:
    write(
        store, "gone", ("2026-03-01", make_usage_event(cost=1), ""), ("2026-03-02", make_usage_event(cost=2), "agent-1")
    )
    write(store, "here", ("2026-03-02", make_usage_event(cost=4), ""))
    before = list(read_usage(store.folder))
    assert run_odin("sessions", "delete", "gone", "--yes").returncode == 0
    assert [row.id for row in store.list()] == ["here"]
    assert sorted(map(repr, before)) == sorted(
        repr(msgspec.structs.replace(entry, deleted=False)) for entry in read_usage(store.folder)
    )
    assert "do gone (deleted)" in run_odin("usage", "--all", "--by", "session").stdout


def test_interrupted_deletion_counts_usage_once(store: SessionStore, workspace: Path) -> None:
    log = write(store, "s", ("2026-03-01", make_usage_event(), ""))
    assert record_deleted_usage(store.folder, read_ledger_line(log.path))
    assert report(workspace) == {"2026-03-01": (1, 0.5)}
    with (store.folder / LEDGER_NAME).open("ab") as file:
        file.write(b'{"session": "torn')
    delete_session(store, "s")
    assert report(workspace) == {"2026-03-01": (1, 0.5)}


def test_unwritable_ledger_does_not_prevent_deletion(store: SessionStore, workspace: Path) -> None:
    log = write(store, "s", ("2026-03-01", make_usage_event(), ""))
    (store.folder / LEDGER_NAME).mkdir()
    assert not record_deleted_usage(store.folder, read_ledger_line(log.path))
    delete_session(store, "s")
    assert not log.path.exists()


def test_everywhere_includes_all_projects(store: SessionStore, home: Path, workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write(store, "a", ("2026-03-01", make_usage_event(cost=1), ""))
    write(SessionStore(home / ".local/state/odin", str(other)), "b", ("2026-03-01", make_usage_event(cost=2), ""))
    assert report(workspace, "session") == {"a": (1, 1)}
    assert report(other, "session") == {"b": (1, 2)}
    assert report(workspace, "session", everywhere=True) == {"a": (1, 1), "b": (1, 2)}


@pytest.mark.slow
def test_thousands_of_sessions_are_read_once(store: SessionStore, workspace: Path) -> None:
    """The second report reads no log: the logs are unreadable by then."""
    for number in range(3_000):
        session = f"s{number:04}"
        folder = store.folder / session
        folder.mkdir(parents=True)
        header = LogHeader(LOG_FORMAT, session, "", get_noon("2026-03-01"))
        line = Envelope(0, get_noon(f"2026-03-{number % 28 + 1:02}"), session, make_usage_event(cost=0.25))
        store.get_path(session).write_bytes(b"\n".join([msgspec.json.encode(header), msgspec.json.encode(line), b""]))
    first = report(workspace)
    assert sum(calls for calls, _ in first.values()) == 3_000
    for number in range(3_000):
        path = store.get_path(f"s{number:04}")
        info = path.stat()
        path.write_bytes(b"x" * info.st_size)
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert report(workspace) == first


# --- odin usage ---


@pytest.fixture
def spent_today(store: SessionStore) -> str:
    today = time.strftime("%Y-%m-%d")
    write(
        store,
        "s",
        (today, make_usage_event(Usage(1_000, 20, 3_000, 0, 5), 1.25), ""),
        (today, make_usage_event(Usage(7, 3), 0, OTHER), ""),
        ("2020-01-01", make_usage_event(cost=9), ""),
    )
    return today


def test_table_output(run_odin: Run, spent_today: str) -> None:
    ran = run_odin("usage", "--today", "--by", "model")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert lines[0] == ["Usage,", spent_today]
    assert [MODEL, "1", "1,000", "3,000", "0", "20", "5", "75%", "$1.2500"] in lines
    assert [OTHER, "1", "7", "0", "0", "3", "0", "0%", "unknown"] in lines
    assert ["total", "2", "1,007", "3,000", "0", "23", "5", "75%", "$1.2500", "+", "unknown"] in lines
    assert "10 tokens of models with unknown prices are not included" in ran.stdout


def test_json_and_csv_output(run_odin: Run, spent_today: str) -> None:
    raw = json.loads(run_odin("usage", "--date", spent_today, "--json").stdout)
    assert (raw["by"], raw["period"], len(raw["rows"])) == ("day", spent_today, 1)
    assert raw["total"] == {**raw["rows"][0], "name": "total"}
    assert raw["total"]["unpriced_tokens"] == 10
    assert raw["total"]["cache_hit_rate"] == pytest.approx(3_000 / 4_007, abs=1e-4)
    rows = list(csv.DictReader(io.StringIO(run_odin("usage", "--all", "--csv").stdout)))
    assert [(row["day"], float(row["cost_usd"])) for row in rows] == [("2020-01-01", 9), (spent_today, 1.25)]


@pytest.mark.parametrize(
    ("flags", "cost"),
    [
        ((), 1.25),
        (("--days", "7"), 1.25),
        (("--all",), 10.25),
        (("--from", "2020-01-01", "--to", "2020-12-31"), 9),
        (("--to", "2020-01-01"), 9),
        (("--from", "2020-01-02"), 1.25),
        (("--date", "2020-01-01"), 9),
        (("--session", "s"), 10.25),
        (("--session", "s", "--today"), 1.25),
    ],
)
def test_flags_that_select_a_period(run_odin: Run, spent_today: str, flags: tuple[str, ...], cost: float) -> None:
    assert json.loads(run_odin("usage", "--json", *flags).stdout)["total"]["cost_usd"] == cost


def test_session_is_found_by_title_and_a_missing_one_is_reported(run_odin: Run, spent_today: str) -> None:
    assert run_odin("sessions", "rename", "s", "The login page").returncode == 0
    found = run_odin("usage", "--json", "--session", "login page")
    assert json.loads(found.stdout)["total"]["cost_usd"] == 10.25
    assert "There is no session nothing." in run_odin("usage", "--session", "nothing").stderr


@pytest.mark.parametrize(
    "flags",
    [
        ("--date", "yesterday"),
        ("--date", "2026-02-30"),
        ("--days", "0"),
        ("--today", "--all"),
        ("--json", "--csv"),
        ("--by", "colour"),
        ("--session", "other"),
    ],
)
def test_invalid_flags_are_refused(run_odin: Run, flags: tuple[str, ...]) -> None:
    ran = run_odin("usage", *flags)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("odin: ")


def test_report_without_usage(run_odin: Run) -> None:
    assert run_odin("usage", "--all").stdout == "No usage (all time).\n"
    assert json.loads(run_odin("usage", "--all", "--everywhere", "--json").stdout)["rows"] == []


def test_cost_of_zero_is_unknown_unless_marked_as_free() -> None:
    assert UsageTotals.from_event(make_usage_event(Usage(3, 4), 0)).unpriced == 7
    free = msgspec.structs.replace(make_usage_event(Usage(3, 4), 0), free=True)
    assert UsageTotals.from_event(free).unpriced == 0
    assert UsageTotals().cache_hit_rate is None
