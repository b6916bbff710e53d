"""When something is due: once, every so often, or by a cron expression. The next time is a pure function."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from msgspec import Struct

from odin.core.errors import UsageError
from odin.core.event_values import Mode
from odin.core.format import clip_line

MIN_EVERY_S = 60.0
"""The shortest interval."""

_DAY_S = 86_400.0
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_INTERVAL = re.compile(r"(?:(\d{1,6})\s*([smhdw])\s*)+")
_TIME = re.compile(r"(\d{1,2}):(\d{2})")


class Schedule(Struct, frozen=True, omit_defaults=True):
    """One of `at`, a time, `every`, seconds, and `cron`, an expression in `timezone`; "" is the machine's."""

    at: float = 0.0
    every: float = 0.0
    cron: str = ""
    timezone: str = ""

    def describe(self) -> str:
        if self.at:
            return f"at {format_local(self.at, self.timezone)}"
        if self.every:
            return f"every {format_interval(self.every)}"
        return f"{self.cron} ({self.timezone})" if self.timezone else self.cron


class SessionSchedule(Struct, frozen=True):
    """A prompt of a session that is due again and again, at most `limit` times, or once. `due` is the next time."""

    id: str
    text: str
    schedule: Schedule
    mode: Mode
    limit: int
    due: float
    runs: int = 0

    @property
    def prompt_id(self) -> str:
        """The id of the prompt of the last run."""
        return f"schedule-{self.id}-{self.runs}"

    def describe(self) -> str:
        """Return what was typed, on one line."""
        when = f"/loop every {format_interval(self.schedule.every)}"
        return clip_line(f"{when if self.schedule.every else f'/at {format_local(self.due)}'} {self.text}", 100)

    def describe_loss(self, now: float) -> str:
        """Return what is said of it when its session is resumed; "" if it still holds, because its time is ahead."""
        if self.schedule.every:
            missed = f" It was due at {format_local(self.due)}." if self.due <= now else ""
            return f"`{self.describe()}` was on when the session ended.{missed} It does not start again by itself."
        if self.due > now:
            return ""
        return f"`{self.describe()}` was missed, because the session was closed."


class _LocalZone(tzinfo):
    """The time zone of the machine, with its changes between summer and winter time."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return dt.replace(tzinfo=None).astimezone().utcoffset() if dt is not None else None

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return dt.replace(tzinfo=None).astimezone().tzname() if dt is not None else None

    def fromutc(self, dt: datetime) -> datetime:
        return datetime.fromtimestamp(dt.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


def find_zone(name: str) -> tzinfo:
    """Return the time zone with this name, or that of the machine. Raise UsageError."""
    if not name:
        return _LocalZone()
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"Unknown time zone {name!r}.", "Use a name such as Europe/Berlin or UTC.") from error


def format_local(ts: float, timezone: str = "") -> str:
    """Return a time as people of the time zone write it."""
    shown = datetime.fromtimestamp(ts, find_zone(timezone))
    return f"{shown:%Y-%m-%d %H:%M}" + (f" {timezone}" if timezone else "")


def find_next(schedule: Schedule, last: float, now: float) -> float | None:
    """Return the first time after `now` at which it is due, or None. It was due `last`, or made then.

    What was due between the two is not returned: the caller has that already. If the clock was set back, what has run
    does not run again when its time of day comes a second time, unless the clock was wrong by more than a day.
    """
    if schedule.at:
        return schedule.at if last < schedule.at else None
    if schedule.every:
        if last > now:
            return now + schedule.every
        return last + schedule.every * ((now - last) // schedule.every + 1)
    after = last if now < last <= now + _DAY_S else now
    return _find_cron_time(schedule, after)


def count_missed(schedule: Schedule, due: float, now: float, limit: int = 1000) -> int:
    """Return how often it was due from `due` to `now`, at most `limit`."""
    if schedule.every:
        return min(int((now - due) // schedule.every) + 1, limit)
    count, at = 1, None if schedule.at else _find_cron_time(schedule, due)
    while at is not None and at <= now and count < limit:
        count, at = count + 1, _find_cron_time(schedule, at)
    return count


def _find_cron_time(schedule: Schedule, after: float) -> float | None:
    from cronsim import CronSim, CronSimError

    try:
        times = CronSim(schedule.cron, datetime.fromtimestamp(after, find_zone(schedule.timezone)))
        return next(times).timestamp()
    except StopIteration:
        return None
    except CronSimError as error:
        hint = "It has five fields, such as `0 18 * * 1-5`: minute, hour, day, month, weekday."
        raise UsageError(f"Invalid cron expression {schedule.cron!r}: {error}.", hint) from error


def make_schedule(now: float, *, at: str = "", every: str = "", cron: str = "", timezone: str = "") -> Schedule:
    """Return a schedule as it is written, with exactly one of `at`, `every` and `cron`. Raise UsageError."""
    if sum(map(bool, (at, every, cron))) != 1:
        raise UsageError("Say when: one of a time, an interval and a cron expression.")
    find_zone(timezone)
    if at:
        return Schedule(at=parse_time(at, now, timezone), timezone=timezone)
    if every:
        return Schedule(every=parse_interval(every))
    schedule = Schedule(cron=cron, timezone=timezone)
    if find_next(schedule, now, now) is None:
        raise UsageError(f"{cron!r} is never due.", "Change the day or the month.")
    return schedule


def format_interval(seconds: float) -> str:
    """Return an interval as it is written: `10m` or `1h30m`."""
    rest, text = round(seconds), ""
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text


def parse_interval(text: str) -> float:
    """Return the seconds in `10m`, `2h30m` or `1d`. Raise UsageError, also for less than a minute."""
    clean = text.strip().lower()
    if _INTERVAL.fullmatch(clean) is None:
        raise UsageError(f"Invalid interval {text!r}.", "Use e.g. 10m, 2h, 1h30m or 1d.")
    seconds = float(sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)\s*([smhdw])", clean)))
    if not MIN_EVERY_S <= seconds <= 366 * _DAY_S:
        raise UsageError(
            f"The interval {text!r} is too {'short' if seconds < MIN_EVERY_S else 'long'}.", "Use e.g. 10m."
        )
    return seconds


def parse_time(text: str, now: float, timezone: str = "") -> float:
    """Return the next `18:00`, a time with a date such as `2027-01-31 18:00`, or one `in 20m`. Raise UsageError."""
    clean, zone = text.strip(), find_zone(timezone)
    if clean.lower().startswith(("in ", "+")):
        return now + parse_interval(clean[3:] if clean[0] != "+" else clean[1:])
    hint = "Use e.g. 18:00, `2027-01-31 18:00` or `in 20m`."
    try:
        if found := _TIME.fullmatch(clean):
            today = datetime.fromtimestamp(now, zone)
            at = datetime(today.year, today.month, today.day, int(found[1]), int(found[2]), tzinfo=zone)
            if at.timestamp() <= now:
                later = at.date() + timedelta(days=1)
                at = datetime(later.year, later.month, later.day, at.hour, at.minute, tzinfo=zone)
        else:
            at = datetime.fromisoformat(clean)
            at = at if at.tzinfo is not None else at.replace(tzinfo=zone)
        seconds = at.timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"Invalid time {text!r}.", hint) from error
    if seconds <= now:
        raise UsageError(f"{text} is over already.", hint)
    return seconds
