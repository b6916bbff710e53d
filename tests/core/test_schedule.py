"""When a schedule is due: a pure function, also where clocks change."""

from datetime import datetime

import pytest

from odin.core.errors import UsageError
from odin.core.schedule import Schedule, count_missed, find_next, make_schedule

BERLIN = "Europe/Berlin"


def ts(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("schedule", "last", "now", "due"),
    [
        # summer time begins: 02:30 does not exist, and comes as soon as it is over
        (Schedule(cron="30 2 * * *", timezone=BERLIN), "2026-03-28T02:30+01:00", "", "2026-03-29T03:00+02:00"),
        (Schedule(cron="0 18 * * *", timezone=BERLIN), "2026-03-28T18:00+01:00", "", "2026-03-29T18:00+02:00"),
        # it ends: 02:30 comes twice, and the job once; one that is due all the time goes on
        (Schedule(cron="30 2 * * *", timezone=BERLIN), "2026-10-25T02:30+02:00", "", "2026-10-26T02:30+01:00"),
        (Schedule(cron="*/30 * * * *", timezone=BERLIN), "2026-10-25T02:30+02:00", "", "2026-10-25T02:00+01:00"),
        (Schedule(cron="0 9 29 2 *", timezone="UTC"), "2026-03-01T00:00+00:00", "", "2028-02-29T09:00+00:00"),
        # the computer slept, or the gateway did not run: what was missed is not returned
        (Schedule(cron="0 * * * *"), "2026-05-01T10:00+00:00", "2026-05-01T15:20+00:00", "2026-05-01T16:00+00:00"),
        (Schedule(every=600), "2026-05-01T10:00+00:00", "2026-05-01T15:25+00:00", "2026-05-01T15:30+00:00"),
        # the clock was set back, by an hour and by a year
        (Schedule(cron="0 12 * * *"), "2026-05-01T12:00+00:00", "2026-05-01T11:00+00:00", "2026-05-02T12:00+00:00"),
        (Schedule(cron="0 12 * * *"), "2027-05-01T12:00+00:00", "2026-05-01T11:00+00:00", "2026-05-01T12:00+00:00"),
        (Schedule(every=600), "2027-05-01T12:00+00:00", "2026-05-01T11:00+00:00", "2026-05-01T11:10+00:00"),
        (Schedule(at=ts("2026-05-01T12:00+00:00")), "2026-05-01T11:00+00:00", "", "2026-05-01T12:00+00:00"),
        (Schedule(at=ts("2026-05-01T12:00+00:00")), "2026-05-01T12:00+00:00", "", ""),
    ],
)
def test_the_next_time(schedule: Schedule, last: str, now: str, due: str) -> None:
    found = find_next(schedule, ts(last), ts(now or last))
    assert (datetime.fromtimestamp(found).astimezone() if found else "") == (datetime.fromisoformat(due) if due else "")


def test_missed_times() -> None:
    due, now = ts("2026-05-01T10:00+00:00"), ts("2026-05-01T12:30+00:00")
    for schedule, count in ((Schedule(every=600), 16), (Schedule(cron="0 * * * *"), 3), (Schedule(at=due), 1)):
        assert count_missed(schedule, due, now) == count


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({"at": "18:00"}, "2026-03-28T18:00+01:00"),
        ({"at": "11:00"}, "2026-03-29T11:00+02:00"),
        ({"at": "2026-03-29 02:30"}, "2026-03-29T03:30+02:00"),
        ({"at": "in 1h30m"}, "2026-03-28T13:30+01:00"),
        ({"every": "2h"}, "2026-03-28T14:00+01:00"),
        ({"cron": "0 9 * * 1-5"}, "2026-03-30T09:00+02:00"),
    ],
)
def test_what_people_write(given: dict[str, str], due: str) -> None:
    now = ts("2026-03-28T12:00+01:00")
    found = find_next(make_schedule(now, **given, timezone=BERLIN), now, now)
    assert found == ts(due)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"at": "25:00"}, "Invalid time '25:00'"),
        ({"at": "tomorrow"}, "Invalid time"),
        ({"at": "2020-01-01 10:00"}, "is over already"),
        ({"every": "10"}, "Invalid interval"),
        ({"every": "5s"}, "too short"),
        ({"every": "9999w"}, "too long"),
        ({"cron": "0 9 * *"}, "Invalid cron expression"),
        ({"cron": "0 9 30 2 *"}, "Invalid cron expression|is never due"),
        ({"cron": "0 9 * * *", "timezone": "Mars/Base"}, "Unknown time zone"),
        ({"at": "18:00", "every": "10m"}, "one of"),
        ({}, "one of"),
    ],
)
def test_what_cannot_be_read(given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_schedule(ts("2026-03-28T12:00+01:00"), **given)
