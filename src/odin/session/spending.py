"""What a session spent, added up by day, model, agent and purpose, so that a report need not read its log again."""

import time

from msgspec import Struct

from odin.core.event import Envelope, UsageRecorded
from odin.core.spent import UsageTotals

UsageByBucket = dict[str, UsageTotals]
"""By the four words of a `Place`, as one text."""


class UsageBucket(Struct, frozen=True):
    """What something was spent on. `day` is YYYY-MM-DD in local time; the main agent has no name."""

    day: str
    model: str
    agent: str
    purpose: str


def add_usage(spending: UsageByBucket, envelope: Envelope, event: UsageRecorded) -> None:
    words = (day_of(envelope.ts), event.model, envelope.agent, event.purpose)
    key = "\t".join(word.replace("\t", " ") for word in words)
    spending[key] = spending.get(key, UsageTotals()) + UsageTotals.from_event(event)


def parse_bucket(key: str) -> UsageBucket:
    words = key.split("\t")
    return UsageBucket(*words, *("" for _ in range(4 - len(words))))


def day_of(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def get_time_zone() -> str:
    """Where days begin and end here. Sums by day that were made elsewhere do not hold."""
    return f"{time.timezone} {'/'.join(time.tzname)}"
