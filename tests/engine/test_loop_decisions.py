"""Decisions of loop mode: every reason to continue and every way to end."""

import pytest

from odin.core.event_values import ExitReason
from odin.engine.loop_mode import (
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
CATEGORIES = (
    "credential_or_permission_missing",
    "dependency_unavailable",
    "required_input_missing",
    "workspace_conflict",
    "user_decision_required",
)


class TestSignals:
    def test_text_without_tags_has_no_signals(self) -> None:
        assert parse_signals("I changed it.\n\nAll good.") == LoopSignals()

    def test_done_signal_has_its_reason(self) -> None:
        assert parse_signals("So.\n<done>all tests\n pass</done>").done == "all tests pass"

    def test_done_without_a_reason_is_ignored(self) -> None:
        assert parse_signals("<done></done> <done> </done>") == LoopSignals()
        assert parse_signals("<done/>") == LoopSignals()

    @pytest.mark.parametrize("category", CATEGORIES)
    def test_blocked_signal_has_its_category(self, category: str) -> None:
        assert parse_signals(f"<blocked>{category}: why</blocked>").blocked == f"{category}: why"

    @pytest.mark.parametrize(
        ("said", "means"),
        [
            ("Dependency-Unavailable: no network", "dependency_unavailable: no network"),
            ("I need a key", "user_decision_required: I need a key"),
            ("mood: bad", "user_decision_required: mood: bad"),
        ],
    )
    def test_unknown_category_requires_a_user_decision(self, said: str, means: str) -> None:
        assert parse_signals(f"<blocked>{said}</blocked>").blocked == means

    def test_verify_not_run_signal_may_have_a_reason(self) -> None:
        assert parse_signals("<verify-not-run>no pytest here</verify-not-run>").unverified == "no pytest here"
        assert parse_signals("<verify-not-run/>").unverified == ""
        assert parse_signals("<verify-not-run></verify-not-run>").unverified == ""

    def test_quoted_tags_are_ignored(self) -> None:
        assert (
            parse_signals("I will write `<done>x</done>` when:\n```\n<blocked>a: b</blocked>\n```\n") == LoopSignals()
        )
        assert parse_signals("```\n<done>x</done>") == LoopSignals(), "a block that is not closed"

    def test_last_tag_counts_and_an_unclosed_tag_runs_to_the_end(self) -> None:
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
    def test_turn_without_an_answer_ends_the_loop(self, ended: ExitReason, action: LoopAction) -> None:
        decision = decide_next(LoopFacts(ended, DONE))
        assert decision.action == action
        assert decision.why

    def test_done_with_nothing_open_completes_the_loop(self) -> None:
        assert decide_next(LoopFacts("end_turn", DONE)) == LoopDecision("completed", why="tests pass")

    def test_blocked_wins_over_done(self) -> None:
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
    def test_unfinished_work_continues_the_loop(self, facts: LoopFacts, words: str) -> None:
        decision = decide_next(facts)
        assert decision.action == "continue_from_context"
        assert words in " ".join(decision.reasons)

    def test_unverified_work_leads_to_verification(self) -> None:
        decision = decide_next(LoopFacts("end_turn", DONE, is_unverified=True))
        assert decision.action == "verify"
        assert "nothing was run since" in decision.reasons[0]
        said = LoopSignals(done="x", unverified="no network")
        assert decide_next(LoopFacts("end_turn", said)).reasons == ("The work was not verified: no network",)

    def test_unverified_and_unfinished_work_continues_with_both_reasons(self) -> None:
        decision = decide_next(LoopFacts("end_turn", is_unverified=True))
        assert decision.action == "continue_from_context"
        assert len(decision.reasons) == 2

    def test_iterations_and_rounds_without_progress_are_limited(self) -> None:
        assert decide_next(LoopFacts("end_turn", iteration=9)).action == "continue_from_context"
        assert decide_next(LoopFacts("end_turn", iteration=10)).action == "budget_exhausted"
        assert decide_next(LoopFacts("end_turn", DONE, iteration=10)).action == "completed"
        assert decide_next(LoopFacts("end_turn", stalled=2)).action == "continue_from_context"
        assert decide_next(LoopFacts("end_turn", stalled=3)).action == "budget_exhausted"


class TestPrompts:
    def test_next_prompt_names_the_iteration_and_the_reasons(self) -> None:
        decision = LoopDecision("continue_from_context", ("1 to-do is open: a",))
        text = build_next_prompt("reach the moon", 4, 10, decision, stalled=0)
        assert "iteration 4 of 10" in text
        assert "reach the moon" in text
        assert "- 1 to-do is open: a" in text
        assert all(category in text for category in CATEGORIES)
        assert "made no progress" not in text

    def test_next_prompt_mentions_rounds_without_progress(self) -> None:
        decision = LoopDecision("continue_from_context", ("x",))
        assert "2 rounds in a row made no progress" in build_next_prompt("t", 4, 10, decision, stalled=2)
        assert "rounds in a row" not in build_next_prompt("t", 4, 10, decision, stalled=1)

    def test_prompts_ask_for_verification(self) -> None:
        assert "Verify it now" in build_next_prompt("t", 2, 10, LoopDecision("verify", ("x",)), 0)
        assert "<verify-not-run>" in build_first_prompt("t", 1, 10)
