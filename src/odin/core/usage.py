"""Token usage and cost, summed up."""

from typing import Literal, get_args

from msgspec import Struct

from odin.core.call_events import UsageRecorded
from odin.core.message import Usage

UsageGrouping = Literal["day", "model", "agent", "session", "purpose", "project"]
USAGE_GROUPINGS: tuple[UsageGrouping, ...] = get_args(UsageGrouping)


class UsageRow(Struct, frozen=True):
    """One line of a usage report. `cost_usd` excludes `unpriced_tokens`, the tokens of models without a known price.

    `estimated_tokens` belong to replies that were cut off before the provider had reported their usage.
    """

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
    estimated_tokens: int = 0


class UsageReport(Struct, frozen=True):
    period: str
    by: UsageGrouping
    rows: tuple[UsageRow, ...]
    total: UsageRow


class UsageTotals(Struct, frozen=True, omit_defaults=True):
    """The sum of model requests. `unpriced` counts tokens without a known price; `cost_usd` excludes them.

    `estimated` counts the tokens of replies that were cut off before the provider had reported them all.
    """

    calls: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    unpriced: int = 0
    estimated: int = 0

    @classmethod
    def from_event(cls, event: UsageRecorded) -> "UsageTotals":
        """Return the totals of one request. A cost of 0 means unknown unless the model is free."""
        unknown = event.cost_usd == 0 and not event.free
        tokens = event.usage.total
        return cls(1, event.usage, event.cost_usd, tokens if unknown else 0, tokens if event.estimated else 0)

    def __add__(self, other: "UsageTotals") -> "UsageTotals":
        return UsageTotals(
            self.calls + other.calls,
            self.usage + other.usage,
            self.cost_usd + other.cost_usd,
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
        )

    @property
    def cache_hit_rate(self) -> float | None:
        """Return the share of input tokens served from the provider's cache, 0 to 1; None without input."""
        sent = self.usage.input + self.usage.cache_read + self.usage.cache_write
        return self.usage.cache_read / sent if sent else None
