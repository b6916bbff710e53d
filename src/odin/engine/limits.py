"""What stops an agent: a spent cost budget, and a model that goes in circles.

`CostBudget` is checked before every request to any model. `RepetitionGuard` finds a call that is repeated, or two calls
that alternate. A repeated call with different results is not a circle: the model may be polling a build.
`StallDetector` compares results, which stay the same even if a counter in the arguments makes the calls differ.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

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


STALE_ROUNDS = 10
"""Consecutive replies without a new result that count as a stall."""

RESPITE_ROUNDS = 2
"""Replies the model gets after each warning to try another way."""

_REMEMBERED_RESULTS = 200
_COMPARED_CHARS = 20_000
_NUMBER = re.compile(r"\d+")


class StallDetector:
    """Counts replies in a row whose results were all seen before."""

    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=_REMEMBERED_RESULTS)
        self._stale_rounds = 0
        self._has_results = False
        self._has_news = False

    @property
    def is_stalled(self) -> bool:
        return self._stale_rounds >= STALE_ROUNDS

    def record_result(
        self, name: str, args: dict[str, Any], text: str, *, failed: bool, runs: bool = False, edits: bool = False
    ) -> None:
        """Remember the result of a call. `runs`: it is a command. `edits`: it changes files.

        Commands and successful calls are compared with their arguments: a command may do much and print nothing, and
        "not found" is news for each name. A successful edit is always progress.
        """
        result = _remove_arguments(text[:_COMPARED_CHARS], args)
        if failed:
            result = _NUMBER.sub("#", result)
        arguments = _NUMBER.sub("#", msgspec.json.encode(args, order="sorted").decode()) if runs or not failed else ""
        key = hash((name, failed, result, arguments))
        self._has_results = True
        self._has_news = self._has_news or key not in self._seen or (edits and not failed)
        self._seen.append(key)

    def end_round(self, *, changed: bool) -> None:
        """End the calls of one reply. `changed`: files have changed, which is progress."""
        if self._has_news or changed:
            self._stale_rounds = 0
        elif self._has_results:
            self._stale_rounds += 1
        self._has_results = self._has_news = False

    def grant_respite(self) -> None:
        self._stale_rounds = STALE_ROUNDS - RESPITE_ROUNDS


def _remove_arguments(text: str, args: dict[str, Any]) -> str:
    """Return a result without the argument values it repeats, such as the name of a missing file."""
    values = sorted((value for value in args.values() if isinstance(value, str) and len(value) > 1), key=len)
    for value in reversed(values):
        text = text.replace(value, "·")
    return text


MAX_SAME_IN_A_ROW = 3
CALL_WINDOW = 10
MAX_IN_WINDOW = 5
ALTERNATIONS = 6
MAX_WARNINGS = 3

_TIMES = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|sec|seconds?|min|minutes?)\b|\b\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?\b")
"""Durations and times of day, which differ between two results although nothing has changed."""


class _SeenCall:
    """One call, with the hash of its result once that is known."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.result: int | None = None


class RepetitionGuard:
    """Refuses repeated calls of one turn. Refused calls count as well, so a model that insists ends the turn."""

    def __init__(self) -> None:
        self._recent: deque[_SeenCall] = deque(maxlen=CALL_WINDOW)
        self._has_refused = False
        self._warnings = 0
        self._stall_detector = StallDetector()

    @property
    def is_hopeless(self) -> bool:
        """True if the model was warned several times and still repeats itself."""
        return self._warnings >= MAX_WARNINGS

    def record_result(
        self, name: str, args: dict[str, Any], text: str, *, failed: bool, runs: bool = False, edits: bool = False
    ) -> None:
        """Remember the result of a call that was not refused. `runs`: it is a command. `edits`: it changes files."""
        self._stall_detector.record_result(name, args, text, failed=failed, runs=runs, edits=edits)
        key = _key_of(name, args)
        call = next((call for call in self._recent if call.key == key and call.result is None), None)
        if call is not None:
            call.result = hash((failed, _TIMES.sub("#", text)))

    def end_round(self, *, changed: bool = False) -> None:
        """End the calls of one reply. Several refusals in one reply count as one warning.

        `changed`: files have changed, which is progress whatever the results look like.
        """
        if self._has_refused and self._stall_detector.is_stalled:
            self._stall_detector.grant_respite()
        else:
            self._stall_detector.end_round(changed=changed)
        self._warnings += self._has_refused
        self._has_refused = False

    def check_call(self, name: str, args: dict[str, Any]) -> str:
        """Count this call and return why it is refused, or ""."""
        self._recent.append(_SeenCall(_key_of(name, args)))
        reason = _repetition_reason_of(list(self._recent)) or (
            _STALLED_REASON if self._stall_detector.is_stalled else ""
        )
        self._has_refused = self._has_refused or bool(reason)
        return reason

    def would_refuse(self, calls: Iterable[tuple[str, dict[str, Any]]]) -> bool:
        """True if the last of these calls would be refused if all were made in order. They are not counted."""
        recent = deque(self._recent, maxlen=CALL_WINDOW)
        recent.extend(_SeenCall(_key_of(name, args)) for name, args in calls)
        return self._stall_detector.is_stalled or bool(_repetition_reason_of(list(recent)))


_STALLED_REASON = (
    f"loop detected: the calls of the last {STALE_ROUNDS} steps returned nothing new. "
    "Try something different, or answer with what you know."
)


def _key_of(name: str, args: dict[str, Any]) -> bytes:
    return msgspec.json.encode([name, args], order="deterministic")


def _repetition_reason_of(recent: list[_SeenCall]) -> str:
    """Return why the newest call is refused, or ""."""
    keys = [call.key for call in recent]
    key = keys[-1]
    same = [call for call in recent if call.key == key]
    if not _has_new_result(same):
        if len(keys) >= MAX_SAME_IN_A_ROW and all(item == key for item in keys[-MAX_SAME_IN_A_ROW:]):
            return (
                f"loop detected: this is the same call {MAX_SAME_IN_A_ROW} times in a row. Change something or answer."
            )
        if len(same) > MAX_IN_WINDOW:
            return f"loop detected: the same call came {len(same)} times in the last {len(keys)}. Try another way."
    tail = keys[-ALTERNATIONS:]
    if len(tail) == ALTERNATIONS and tail[0] != tail[1] and tail == tail[:2] * (ALTERNATIONS // 2):
        pair = recent[-ALTERNATIONS:]
        if not _has_new_result(pair[::2]) and not _has_new_result(pair[1::2]):
            return "loop detected: two calls are taking turns without progress. Try another way or answer."
    return ""


def _has_new_result(same: list[_SeenCall]) -> bool:
    """True if the last two results of this call differ."""
    results = [call.result for call in same if call.result is not None]
    return len(results) > 1 and results[-1] != results[-2]
