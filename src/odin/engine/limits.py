"""What stops an agent: a spent cost budget, and a model that goes in circles.

`CostBudget` is checked before every request to any model. `RepetitionGuard` finds calls that are repeated again and
again with the same results. Only really repeated calls count: a call with other arguments, a result that differs from
the last time and a changed file are progress. The model may be polling a build, or look for many things that are not
there.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from odin.core.errors import BudgetSpent, NoProgress, UsageError
from odin.core.event import BudgetSet, Warned
from odin.core.format import format_usd
from odin.core.lazy_pattern import compile_lazily
from odin.core.provider import ModelInfo
from odin.engine.recorder import Recorder

_SESSION_HINT = "Raise it with /budget, or resume with --continue --max-budget-usd."
_PRICE_HINT = (
    "Set price_input and price_output of the model in odinconfig.json, or run without --max-budget-usd (/budget 0)."
)
_DAY_HINT = "Raise max_budget_usd_per_day in odinconfig.json, or continue tomorrow."


class CostBudget:
    """Limits in US dollars for one session, sub-agents and small jobs included, and for all sessions of a day. 0: none.

    The cost is that of the folded session state, so failed attempts count and a resumed session continues its sum.
    `chosen` (command line) wins over `earlier` (set in the session), which wins over `usual` (configuration). A chosen
    one is meant for runs that nobody watches: a model without a known price gets no request. Others warn once.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        usual: float = 0.0,
        chosen: float | None = None,
        earlier: float | None = None,
    ) -> None:
        self._recorder = recorder
        self.limit = next(limit for limit in (chosen, earlier, usual) if limit is not None)
        self._is_strict = bool(chosen)
        self._per_day = 0.0
        self._today: Callable[[], float] = lambda: 0.0
        self._warned = False

    def limit_per_day(self, usd: float, today: Callable[[], float]) -> None:
        """Limit the cost of all sessions of a day. `today` returns what they have cost so far."""
        self._per_day, self._today = usd, today

    def set(self, usd: float) -> None:
        """Set the limit of the session, from the next request on."""
        if not 0 <= usd < float("inf"):
            raise UsageError("The budget must be a number of US dollars; 0 means no limit.")
        self.limit = usd
        self._recorder.emit(BudgetSet(usd))

    def get_refusal(self, info: ModelInfo | None = None) -> BudgetSpent | None:
        """Return the error if a budget is spent, or cannot limit a request to the model; otherwise None."""
        if info is not None and (self.limit or self._per_day) and not info.has_price:
            name = f"{info.provider}/{info.id}" if info.provider else info.id
            if self._is_strict and self.limit:
                return BudgetSpent(
                    f"The price of {name} is unknown, so the budget cannot limit it. Nothing was sent.", _PRICE_HINT
                )
            if not self._warned:
                self._warned = True
                self._recorder.emit(Warned(f"The price of {name} is unknown, so the budget does not limit it."))
        spent = self._recorder.state.totals.cost_usd
        if self.limit and spent >= self.limit:
            return BudgetSpent(
                f"The session budget of {format_usd(self.limit)} is used up: {format_usd(spent)} spent.",
                _SESSION_HINT,
            )
        if self._per_day and (today := self._today()) >= self._per_day:
            return BudgetSpent(
                f"The daily budget of {format_usd(self._per_day)} is used up: "
                f"all sessions spent {format_usd(today)} today.",
                _DAY_HINT,
            )
        return None

    def check(self, info: ModelInfo) -> None:
        """Check before a request to this model. Raise BudgetSpent."""
        if refusal := self.get_refusal(info):
            raise refusal


SAME_NOTED = 3
"""The identical call from which on its result says that nothing has changed."""

SAME_REFUSED = 5
"""The identical call that is refused."""

MAX_REFUSALS = 3
"""Replies in a row with a refused call after which the turn ends."""

_SHOWN_CHARS = 600
_SMALL_STEP_HINT = "Try a smaller step, name the files and what to change in them, or use a larger model with --model."

_TIMES = compile_lazily(r"\d+(?:\.\d+)? ?(?:ms|s|sec|seconds?|min|minutes?)\b|\b\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?\b")
"""Durations and times of day, which differ between two results although nothing has changed."""


class RepetitionGuard:
    """Counts the identical calls of one turn since its last progress, and refuses the fifth of a kind."""

    def __init__(self) -> None:
        self._results: dict[int, int] = {}
        self._counts = Counter[int]()
        self._pending: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._failures: dict[int, int] = {}
        self._repeated_failure = ""
        self._has_refused = False
        self._refusals = 0

    @property
    def is_stuck(self) -> bool:
        """True if calls were refused several times and the model still repeats them."""
        return self._refusals >= MAX_REFUSALS

    def check_call(self, call_id: str, name: str, args: dict[str, Any]) -> str:
        """Return why this call is refused, or "". Then it counts once its result is recorded."""
        key = hash(msgspec.json.encode([name, args], order="deterministic"))
        number = self._counts[key] + list(self._pending.values()).count(key) + 1
        self._names[key] = name
        if number < SAME_REFUSED:
            self._pending[call_id] = key
            return ""
        self._has_refused = True
        return (
            f"loop detected: this is the same call for the {_to_ordinal(number)} time, and nothing has changed since. "
            "Change something, or answer with what you know."
        )

    def record_result(self, call_id: str, text: str, *, failed: bool, changed: bool = False) -> str:
        """Record the result of a call and return what the model should know about it, or "".

        `changed`: files have changed, which is progress whatever the result looks like.
        """
        key = self._pending.pop(call_id, None)
        if key is None:
            return ""
        result = hash((failed, _TIMES.sub("#", text)))
        failure = result if failed else 0
        if changed:
            self._failures.clear()
        elif failure and self._failures.get(key) == failure:
            self._repeated_failure = f"{self._names[key]} failed twice in the same way: {text.strip()[:_SHOWN_CHARS]}"
        if failure:
            self._failures[key] = failure
        if changed or self._results.get(key) != result:
            self._results[key] = result
            self._counts.clear()
            self._refusals = 0
        self._counts[key] += 1
        if self._counts[key] < SAME_NOTED:
            return ""
        return (
            f"This is the same call for the {_to_ordinal(self._counts[key])} time, with the same result. "
            f"The {_to_ordinal(SAME_REFUSED)} is refused."
        )

    def raise_if_stuck(self, get_info: Callable[[], ModelInfo]) -> None:
        """Raise NoProgress if a small model repeats a call that has failed. Others find another way by themselves."""
        if self._repeated_failure and get_info().is_small:
            raise NoProgress(self._repeated_failure, _SMALL_STEP_HINT)

    def end_round(self) -> None:
        """End the calls of one reply. Several refusals in one reply count as one."""
        self._refusals += self._has_refused
        self._has_refused = False
        self._pending.clear()


def _to_ordinal(number: int) -> str:
    words = ("first", "second", "third", "fourth", "fifth")
    return words[number - 1] if number <= len(words) else f"{number}th"
