"""What was spent, added up for people: by day, by model, by agent and so on."""

from typing import Literal, get_args

from msgspec import Struct

UsageGrouping = Literal["day", "model", "agent", "session", "purpose", "project"]
USAGE_GROUPINGS: tuple[UsageGrouping, ...] = get_args(UsageGrouping)


class UsageRow(Struct, frozen=True):
    """One line of the report. `cost_usd` leaves out the `unpriced_tokens`, those of models whose price is not known."""

    name: str
    title: str
    calls: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost_usd: float
    unpriced_tokens: int
    cache_hit_rate: float | None


class UsageReport(Struct, frozen=True):
    period: str
    by: UsageGrouping
    rows: tuple[UsageRow, ...]
    total: UsageRow
