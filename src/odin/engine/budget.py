"""What a session may cost: asked before every call of a model, whoever makes it."""

from collections.abc import Callable

from odin.core.errors import BudgetSpent, UsageError
from odin.core.event import BudgetSet, Warned
from odin.core.provider import ModelInfo
from odin.engine.recorder import Recorder

_SESSION_HINT = "Raise it with --max-budget-usd, in a conversation with /budget, and go on with --continue."
_DAY_HINT = "Raise max_budget_usd_per_day in odinconfig.json, or go on tomorrow."


class CostBudget:
    """The limit of one session, sub-agents and small jobs included, and of all sessions in a day. 0 means none.

    `chosen` was asked for just now and wins over what was set in the session `earlier`; `usual` holds otherwise.
    `today` gives what all sessions have cost today.
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
        """From the next call on."""
        if not 0 <= usd < float("inf"):
            raise UsageError("A budget is a number of US dollars, 0 for none.")
        self.limit = usd
        self._recorder.emit(BudgetSet(usd))

    def get_refusal(self) -> BudgetSpent | None:
        """Why no model may be asked now."""
        spent = self._recorder.state.totals.cost_usd
        if self.limit and spent >= self.limit:
            return BudgetSpent(
                f"The budget of this session, {format_dollars(self.limit)}, is used up: "
                f"it has cost {format_dollars(spent)}.",
                _SESSION_HINT,
            )
        if self._per_day and (today := self._today()) >= self._per_day:
            return BudgetSpent(
                f"The budget of today, {format_dollars(self._per_day)}, is used up: "
                f"all sessions together have cost {format_dollars(today)}.",
                _DAY_HINT,
            )
        return None

    def check(self, info: ModelInfo) -> None:
        """Before a call to this model. Raises BudgetSpent."""
        self.warn_if_unpriced(info)
        if refusal := self.get_refusal():
            raise refusal

    def warn_if_unpriced(self, info: ModelInfo) -> None:
        """A model whose price is not known cannot be kept within a budget, which is said once."""
        if (self.limit or self._per_day) and not info.has_price and not self._warned:
            self._warned = True
            name = f"{info.provider}/{info.id}" if info.provider else info.id
            self._recorder.emit(Warned(f"The price of {name} is not known, so the budget cannot hold it back."))


def format_dollars(usd: float) -> str:
    """With as many digits as it takes to see it."""
    return f"${usd:.2f}" if usd == 0 or usd >= 0.1 else f"${usd:.4f}"
