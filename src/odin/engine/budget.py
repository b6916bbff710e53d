"""The cost budget of a session, checked before every request to any model."""

from collections.abc import Callable

from odin.core.errors import BudgetSpent, UsageError
from odin.core.event import BudgetSet, Warned
from odin.core.provider import ModelInfo
from odin.engine.recorder import Recorder

_SESSION_HINT = "Raise it with /budget, or resume with --continue --max-budget-usd."
_DAY_HINT = "Raise max_budget_usd_per_day in odinconfig.json, or continue tomorrow."


class CostBudget:
    """Limits in US dollars for one session, sub-agents and small jobs included, and for all sessions of a day. 0: none.

    The cost is that of the folded session state, so failed attempts count and a resumed session continues its sum.
    `chosen` (command line) wins over `earlier` (set in the session), which wins over `usual` (configuration). `today`
    returns the cost of all sessions today.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        usual: float = 0.0,
        chosen: float | None = None,
        earlier: float | None = None,
        per_day: float = 0.0,
        today: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._recorder = recorder
        self.limit = next(limit for limit in (chosen, earlier, usual) if limit is not None)
        self._per_day = per_day
        self._today = today
        self._warned = False

    def set(self, usd: float) -> None:
        """Set the limit of the session, from the next request on."""
        if not 0 <= usd < float("inf"):
            raise UsageError("The budget must be a number of US dollars; 0 means no limit.")
        self.limit = usd
        self._recorder.emit(BudgetSet(usd))

    def get_refusal(self) -> BudgetSpent | None:
        """Return the error if a budget is spent, otherwise None."""
        spent = self._recorder.state.totals.cost_usd
        if self.limit and spent >= self.limit:
            return BudgetSpent(
                f"The session budget of {format_dollars(self.limit)} is used up: {format_dollars(spent)} spent.",
                _SESSION_HINT,
            )
        if self._per_day and (today := self._today()) >= self._per_day:
            return BudgetSpent(
                f"The daily budget of {format_dollars(self._per_day)} is used up: "
                f"all sessions spent {format_dollars(today)} today.",
                _DAY_HINT,
            )
        return None

    def check(self, info: ModelInfo) -> None:
        """Check before a request to this model. Raise BudgetSpent."""
        self.warn_if_unpriced(info)
        if refusal := self.get_refusal():
            raise refusal

    def warn_if_unpriced(self, info: ModelInfo) -> None:
        """Warn once that a model without a known price cannot be kept within the budget."""
        if (self.limit or self._per_day) and not info.has_price and not self._warned:
            self._warned = True
            name = f"{info.provider}/{info.id}" if info.provider else info.id
            self._recorder.emit(Warned(f"The price of {name} is unknown, so the budget does not limit it."))


def format_dollars(usd: float) -> str:
    """Format an amount with two digits, or four if it is below ten cents."""
    return f"${usd:.2f}" if usd == 0 or usd >= 0.1 else f"${usd:.4f}"
