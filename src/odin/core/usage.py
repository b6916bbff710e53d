"""What was spent, added up for people: by day, by model, by agent and so on.

What model calls came to.
"""

from typing import Literal, get_args

from msgspec import Struct

from odin.core.event import UsageRecorded
from odin.core.message import Usage

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


class UsageTotals(Struct, frozen=True, omit_defaults=True):
    """Calls added up. `unpriced` counts the tokens of calls whose price is not known: they are not in `cost_usd`."""

    calls: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    unpriced: int = 0

    @classmethod
    def from_event(cls, event: UsageRecorded) -> "UsageTotals":
        """One call. A price of nothing is unknown, unless somebody said that the model is free."""
        unknown = event.cost_usd == 0 and not event.free
        return cls(1, event.usage, event.cost_usd, event.usage.total if unknown else 0)

    def __add__(self, other: "UsageTotals") -> "UsageTotals":
        return UsageTotals(
            self.calls + other.calls,
            self.usage + other.usage,
            self.cost_usd + other.cost_usd,
            self.unpriced + other.unpriced,
        )

    @property
    def cache_hit_rate(self) -> float | None:
        """Which part of what was sent came out of the provider's cache, from 0 to 1; None when nothing was sent."""
        sent = self.usage.input + self.usage.cache_read + self.usage.cache_write
        return self.usage.cache_read / sent if sent else None
