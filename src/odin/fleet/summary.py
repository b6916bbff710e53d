"""A run in numbers, from the states of its tasks: for boards and reports."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from odin.fleet.engine import TaskState

_WINDOW = 30
"""How many of the latest tasks the rate is measured on: it follows a change of the speed."""


class FleetSummary(Struct, frozen=True):
    """Counts of tasks, costs, and the rate at which they end.

    `eta_s` is how long the rest takes at this rate; None if that is not known. `reasons` are those of failures and of
    tasks that did not run, the most frequent first.
    """

    total: int = 0
    passed: int = 0
    failed: int = 0
    cancelled: int = 0
    not_run: int = 0
    running: int = 0
    waiting: int = 0
    paused: int = 0
    usd: float = 0.0
    tokens: int = 0
    requests: int = 0
    seconds: float = 0.0
    tasks_per_minute: float = 0.0
    usd_per_hour: float = 0.0
    eta_s: float | None = None
    reasons: tuple[tuple[str, int], ...] = ()

    @property
    def done(self) -> int:
        return self.passed + self.failed + self.cancelled + self.not_run

    @property
    def is_over(self) -> bool:
        return not self.running and not self.waiting


def get_status(state: TaskState) -> str:
    """Return the outcome of a task, or its status if it has none yet."""
    return state.result.outcome if state.result is not None else state.status


def get_usd(state: TaskState) -> float:
    """Return what a task has cost, with what its user had repeated."""
    return state.earlier_usd + (state.progress.usd if state.result is None else state.result.usd)


def get_tokens(state: TaskState) -> int:
    return state.progress.tokens if state.result is None else state.result.tokens_in + state.result.tokens_out


def get_seconds(state: TaskState, now: float) -> float:
    """Return how long a task has been running, or how long its last attempt took; 0 if it waits or is paused."""
    if state.result is not None and state.result.seconds:
        return state.result.seconds
    if state.status in ("waiting", "paused"):
        return 0.0
    return max((state.ended or now) - state.started, 0.0) if state.started else 0.0


def summarize(states: Sequence[TaskState], now: float, since: float = 0.0) -> FleetSummary:
    """`since`: the rate counts from here, such as from when the run went on."""
    counts = Counter(map(get_status, states))
    reasons = Counter(
        state.result.reason or state.result.outcome
        for state in states
        if state.result is not None and state.result.outcome in ("failed", "not_run")
    )
    started = min((state.started for state in states if state.started), default=0.0)
    ends = sorted(
        state.ended for state in states if get_status(state) in ("passed", "failed", "not_run") and state.ended > since
    )
    until = now if counts["running"] else max(ends, default=started)
    # While it runs, the latest tasks count; a run that was away for a night is as fast as it is now.
    begin = started
    if counts["running"]:
        begin = ends[-_WINDOW - 1] if len(ends) > _WINDOW else max(started, since)
    rate = sum(end > begin for end in ends) / (until - begin) if until > begin else 0.0
    seconds = until - started if started else 0.0
    usd = sum(map(get_usd, states))
    worked = sum(get_seconds(state, now) for state in states)
    lanes = counts["running"] or (worked / seconds if seconds else 0.0)
    left = counts["running"] + counts["waiting"]
    return FleetSummary(
        total=len(states),
        passed=counts["passed"],
        failed=counts["failed"],
        cancelled=counts["cancelled"],
        not_run=counts["not_run"],
        running=counts["running"],
        waiting=counts["waiting"],
        paused=counts["paused"],
        usd=usd,
        tokens=sum(map(get_tokens, states)),
        requests=sum((state.result or state.progress).requests for state in states),
        seconds=seconds,
        tasks_per_minute=rate * 60,
        usd_per_hour=usd / worked * lanes * 3600 if worked else 0.0,
        eta_s=left / rate if rate and counts["running"] else None,
        reasons=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )
