"""What two runs say about each other, with numbers that others have computed."""

import pytest

from odin.fleet.comparison import compare, compute_sign_test, estimate_mean, estimate_share, format_comparison
from odin.fleet.engine import Outcome, TaskResult, TaskState
from odin.fleet.task import FleetTask


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662), (0, 0, 0.0, 1.0)],
)
def test_shares_have_wilson_intervals(hits: int, total: int, low: float, high: float) -> None:
    found = estimate_share(hits, total)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (8, 2, 0.109375), (6, 6, 1.0), (1, 9, 0.021484375)],
)
def test_changed_sides_have_the_exact_p_value(gained: int, lost: int, p: float) -> None:
    assert compute_sign_test(gained, lost) == pytest.approx(p)


def test_means_have_an_interval_that_repeats() -> None:
    values = [float(number % 10) for number in range(200)]
    found = estimate_mean(values)
    assert found == estimate_mean(values)
    half = 1.96 * 2.88 / 200**0.5  # of the normal distribution
    assert (found.value, found.low, found.high) == (
        4.5,
        pytest.approx(4.5 - half, abs=0.05),
        pytest.approx(4.5 + half, abs=0.05),
    )
    assert estimate_mean([2.0] * 5).low == estimate_mean([2.0]).high == 2.0


def make_run(outcomes: dict[str, Outcome], usd: float) -> list[TaskState]:
    return [
        TaskState(
            FleetTask(name, "x"), "done", 1, result=TaskResult(outcome, tokens_in=100, usd=usd, seconds=usd * 100)
        )
        for name, outcome in outcomes.items()
    ]


def test_runs_are_compared_on_the_tasks_that_both_have_done() -> None:
    first = make_run({"a": "passed", "b": "failed", "c": "failed", "d": "not_run", "x": "passed"}, 0.1)
    second = make_run({"a": "failed", "b": "passed", "c": "passed", "d": "passed", "y": "passed"}, 0.3)
    found = compare("one", first, "two", second)
    assert (found.tasks, found.left_out) == (3, ("d", "x", "y"))
    assert (found.gained, found.lost, found.p_solved) == (("b", "c"), ("a",), 1.0)
    assert (found.first.passed, found.second.passed) == (1, 2)
    assert found.differences["cost"].value == pytest.approx(0.2)
    text = format_comparison(found)
    assert "3 tasks that both have done, 3 others left out." in text
    assert "cost    $0.30            $0.90             +$0.2000 (+$0.2000 to +$0.2000)\n" in text
    assert "only the first passed: a\n" in text
    nothing = compare("one", first, "two", make_run({"z": "passed"}, 0.1))
    assert format_comparison(nothing) == "The runs have no task in common that both have done.\n"
