"""Decisions of loop mode: every reason to continue and every way to end."""

import pytest

from odin.core.event_values import ExitReason
from odin.engine.loop_mode import (
    CATEGORIES,
    MAX_ITERATIONS,
    LoopAction,
    LoopDecision,
    LoopFacts,
    LoopSignals,
    build_first_prompt,
    build_next_prompt,
    decide_next,
    parse_signals,
)

DONE = LoopSignals(done="tests pass")


class TestSignals:
    def test_none(self) -> None:
        assert parse_signals("I changed it.\n\nAll good.") == LoopSignals()

    def test_done_with_its_reason(self) -> None:
        assert parse_signals("So.\n<done>all tests\n pass</done>").done == "all tests pass"

    def test_done_without_a_reason_is_none(self) -> None:
        assert parse_signals("<done></done> <done> </done>") == LoopSignals()
        assert parse_signals("<done/>") == LoopSignals()

    @pytest.mark.parametrize("category", CATEGORIES)
    def test_blocked(self, category: str) -> None:
        assert parse_signals(f"<blocked>{category}: why</blocked>").blocked == f"{category}: why"

    @pytest.mark.parametrize(
        ("said", "means"),
        [
            ("Dependency-Unavailable: no network", "dependency_unavailable: no network"),
            ("I need a key", "user_decision_required: I need a key"),
            ("mood: bad", "user_decision_required: mood: bad"),
        ],
    )
    def test_what_names_no_category_is_a_persons_to_decide(self, said: str, means: str) -> None:
        assert parse_signals(f"<blocked>{said}</blocked>").blocked == means

    def test_not_verified_with_and_without_a_reason(self) -> None:
        assert parse_signals("<verify-not-run>no pytest here</verify-not-run>").unverified == "no pytest here"
        assert parse_signals("<verify-not-run/>").unverified == ""
        assert parse_signals("<verify-not-run></verify-not-run>").unverified == ""

    def test_what_is_quoted_does_not_count(self) -> None:
        assert (
            parse_signals("I will write `<done>x</done>` when:\n```\n<blocked>a: b</blocked>\n```\n") == LoopSignals()
        )
        assert parse_signals("```\n<done>x</done>") == LoopSignals(), "a block that is not closed"

    def test_the_last_one_counts_and_one_not_closed_goes_on(self) -> None:
        assert parse_signals("<done>one</done> more <done>two</done>").done == "two"
        assert parse_signals("<done>the end").done == "the end"

    def test_a_long_reason_is_cut(self) -> None:
        assert len(parse_signals(f"<done>{'x' * 9999}</done>").done) == 300


class TestDecide:
    @pytest.mark.parametrize(
        ("ended", "action"),
        [
            ("interrupted", "none"),
            ("aborted", "none"),
            ("error", "none"),
            ("error_max_budget_usd", "budget_exhausted"),
            ("max_turns", "budget_exhausted"),
            ("loop_detected", "budget_exhausted"),
        ],
    )
    def test_a_turn_without_an_answer_ends_it(self, ended: ExitReason, action: LoopAction) -> None:
        decision = decide_next(LoopFacts(ended, DONE))
        assert decision.action == action
        assert decision.why

    def test_done_and_nothing_open(self) -> None:
        assert decide_next(LoopFacts("end_turn", DONE)) == LoopDecision("completed", why="tests pass")

    def test_blocked_wins(self) -> None:
        facts = LoopFacts("end_turn", LoopSignals(done="x", blocked="workspace_conflict: y"), todos=("a",), stalled=3)
        assert decide_next(facts) == LoopDecision("blocked", why="workspace_conflict: y")

    @pytest.mark.parametrize(
        ("facts", "words"),
        [
            (LoopFacts("end_turn"), "did not say that everything is done"),
            (LoopFacts("end_turn", DONE, todos=("a",)), "1 to-do is open: a"),
            (LoopFacts("end_turn", DONE, todos=("a", "b")), "2 to-dos are open: a, b"),
            (LoopFacts("end_turn", DONE, agents=1), "A sub-agent is at work."),
            (LoopFacts("end_turn", DONE, agents=2), "2 sub-agents are at work."),
            (LoopFacts("max_tokens", DONE), "cut off"),
        ],
    )
    def test_it_goes_on(self, facts: LoopFacts, words: str) -> None:
        decision = decide_next(facts)
        assert decision.action == "continue_from_context"
        assert words in " ".join(decision.reasons)

    def test_what_is_only_unverified_is_verified(self) -> None:
        decision = decide_next(LoopFacts("end_turn", DONE, is_unverified=True))
        assert decision.action == "verify"
        assert "nothing was run since" in decision.reasons[0]
        said = LoopSignals(done="x", unverified="no network")
        assert decide_next(LoopFacts("end_turn", said)).reasons == ("The work was not verified: no network",)

    def test_unverified_and_unfinished_goes_on_with_both_reasons(self) -> None:
        decision = decide_next(LoopFacts("end_turn", is_unverified=True))
        assert decision.action == "continue_from_context"
        assert len(decision.reasons) == 2

    def test_its_limits(self) -> None:
        assert decide_next(LoopFacts("end_turn", iteration=MAX_ITERATIONS - 1)).action == "continue_from_context"
        assert decide_next(LoopFacts("end_turn", iteration=MAX_ITERATIONS)).action == "budget_exhausted"
        assert decide_next(LoopFacts("end_turn", DONE, iteration=MAX_ITERATIONS)).action == "completed"
        assert decide_next(LoopFacts("end_turn", stalled=2)).action == "continue_from_context"
        assert decide_next(LoopFacts("end_turn", stalled=3)).action == "budget_exhausted"


class TestWords:
    def test_the_continuation_says_how_far_it_is_and_why(self) -> None:
        decision = LoopDecision("continue_from_context", ("1 to-do is open: a",))
        text = build_next_prompt("reach the moon", 4, 10, decision, stalled=0)
        assert "iteration 4 of 10" in text
        assert "reach the moon" in text
        assert "- 1 to-do is open: a" in text
        assert all(category in text for category in CATEGORIES)
        assert "made no progress" not in text

    def test_a_stall_is_said(self) -> None:
        decision = LoopDecision("continue_from_context", ("x",))
        assert "2 rounds in a row made no progress" in build_next_prompt("t", 4, 10, decision, stalled=2)
        assert "rounds in a row" not in build_next_prompt("t", 4, 10, decision, stalled=1)

    def test_verifying_is_asked_for(self) -> None:
        assert "Verify it now" in build_next_prompt("t", 2, 10, LoopDecision("verify", ("x",)), 0)
        assert "<verify-not-run>" in build_first_prompt("t", 1, 10)
