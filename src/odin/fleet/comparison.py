"""Two runs on the tasks that both have done: solved, cost, tokens, time, and how far chance explains a difference.

Tasks that did not run in one of them say nothing about the agent and are left out. Runs of the same task are pairs:
what makes a task hard is the same for both, so differences are those within pairs.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from odin.core.format import format_seconds, format_usd, pluralize
from odin.fleet.engine import TaskState
from odin.fleet.summary import get_seconds, get_tokens, get_usd

_LEVEL = 0.95
_RESAMPLES = 2000
_SEED = 42
_MAX_CHANGED = 20

Measure = Literal["cost", "tokens", "time"]


class Interval(Struct, frozen=True):
    """A number, and between what bounds it lies with 95 % confidence."""

    value: float
    low: float
    high: float


class ComparedRun(Struct, frozen=True):
    """`solved` is a share from 0 to 1; the others are sums over the common tasks, time in seconds."""

    name: str
    passed: int
    solved: Interval
    usd: float
    tokens: int
    seconds: float


class FleetComparison(Struct, frozen=True):
    """`gained` are tasks that only the second run passed, `lost` those that only the first one did.

    `p_solved` is how often tasks that change sides at random are split at least as unevenly. `differences` are means
    per task, the second run less the first. `left_out` are tasks that one run lacks, has not ended or never ran.
    """

    tasks: int
    left_out: tuple[str, ...]
    first: ComparedRun
    second: ComparedRun
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    p_solved: float
    differences: dict[Measure, Interval]


def compare(first: str, states: Sequence[TaskState], second: str, other_states: Sequence[TaskState]) -> FleetComparison:
    ones, others = ({state.task.id: state for state in run} for run in (states, other_states))
    names = list(dict.fromkeys((*ones, *others)))
    pairs = [
        (ones[name], others[name])
        for name in names
        if name in ones and name in others and _is_judged(ones[name]) and _is_judged(others[name])
    ]
    common = {one.task.id for one, _ in pairs}
    gained = tuple(two.task.id for one, two in pairs if _has_passed(two) and not _has_passed(one))
    lost = tuple(one.task.id for one, two in pairs if _has_passed(one) and not _has_passed(two))
    return FleetComparison(
        len(pairs),
        tuple(name for name in names if name not in common),
        _sum_up(first, [one for one, _ in pairs]),
        _sum_up(second, [two for _, two in pairs]),
        gained,
        lost,
        compute_sign_test(len(gained), len(lost)),
        {
            "cost": estimate_mean([get_usd(two) - get_usd(one) for one, two in pairs]),
            "tokens": estimate_mean([float(get_tokens(two) - get_tokens(one)) for one, two in pairs]),
            "time": estimate_mean([_get_time(two) - _get_time(one) for one, two in pairs]),
        },
    )


def _is_judged(state: TaskState) -> bool:
    return state.result is not None and state.result.outcome in ("passed", "failed")


def _has_passed(state: TaskState) -> bool:
    return state.result is not None and state.result.outcome == "passed"


def _get_time(state: TaskState) -> float:
    return get_seconds(state, state.ended)


def _sum_up(name: str, states: Sequence[TaskState]) -> ComparedRun:
    passed = sum(map(_has_passed, states))
    return ComparedRun(
        name,
        passed,
        estimate_share(passed, len(states)),
        sum(map(get_usd, states)),
        sum(map(get_tokens, states)),
        sum(map(_get_time, states)),
    )


# --- statistics ---


def estimate_share(hits: int, total: int) -> Interval:
    """Return a share with its Wilson interval, which is right also for few tasks and shares near 0 and 1."""
    if not total:
        return Interval(0.0, 0.0, 1.0)
    z = statistics.NormalDist().inv_cdf((1 + _LEVEL) / 2)
    share = hits / total
    scale = 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / scale
    return Interval(share, max(middle - half, 0.0), min(middle + half, 1.0))


def compute_sign_test(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test."""
    changed = gained + lost
    tail = sum(math.comb(changed, number) for number in range(min(gained, lost) + 1)) / 2**changed
    return min(2 * tail, 1.0)


def estimate_mean(values: Sequence[float]) -> Interval:
    """Return the mean with the interval of a bootstrap, the same for the same values."""
    if not values:
        return Interval(0.0, 0.0, 0.0)
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Interval(mean, mean, mean)
    import random

    chance = random.Random(_SEED)
    means = [statistics.fmean(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    cuts = statistics.quantiles(means, n=round(2 / (1 - _LEVEL)))
    return Interval(mean, cuts[0], cuts[-1])


# --- as text ---


def format_comparison(found: FleetComparison) -> str:
    if not found.tasks:
        return "The runs have no task in common that both have done.\n"
    one, two = found.first, found.second
    rows = [
        ("", one.name, two.name, "difference per task (95 %)"),
        ("solved", _format_solved(one, found.tasks), _format_solved(two, found.tasks), _describe_sides(found)),
        ("", _format_share(one), _format_share(two), f"p = {found.p_solved:.3f}"),
        ("cost", format_usd(one.usd), format_usd(two.usd), _format_interval(found.differences["cost"], "${:+,.4f}")),
        ("tokens", f"{one.tokens:,}", f"{two.tokens:,}", _format_interval(found.differences["tokens"], "{:+,.0f}")),
        (
            "time",
            format_seconds(one.seconds),
            format_seconds(two.seconds),
            _format_interval(found.differences["time"], "{:+,.1f} s"),
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    left_out = f", {pluralize(len(found.left_out), 'other')} left out" if found.left_out else ""
    lines = [f"{pluralize(found.tasks, 'task')} that both have done{left_out}.", "", *lines]
    for title, names in (("only the second passed", found.gained), ("only the first passed", found.lost)):
        if names:
            more = f" and {len(names) - _MAX_CHANGED:,} more" if len(names) > _MAX_CHANGED else ""
            lines += ["", f"{title}: {', '.join(names[:_MAX_CHANGED])}{more}"]
    return "\n".join(lines) + "\n"


def _format_solved(run: ComparedRun, total: int) -> str:
    return f"{run.passed:,} of {total:,}"


def _format_share(run: ComparedRun) -> str:
    share = run.solved
    return f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%})"


def _describe_sides(found: FleetComparison) -> str:
    return f"+{len(found.gained):,} -{len(found.lost):,}"


def _format_interval(found: Interval, form: str) -> str:
    value, low, high = (
        form.format(number).replace("$+", "+$").replace("$-", "-$") for number in (found.value, found.low, found.high)
    )
    return f"{value} ({low} to {high})"
