"""What model calls came to."""

from msgspec import Struct

from odin.core.event import UsageRecorded
from odin.core.message import Usage


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
