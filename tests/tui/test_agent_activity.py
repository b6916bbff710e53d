"""The text that describes the current activity of an agent."""

from typing import Any

from msgspec.structs import replace

from odin.core.call_events import (
    ActivityChanged,
    CallQueued,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAsked,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    StatusUpdated,
    ThinkingEnded,
    ThinkingStarted,
    ToolEnded,
    ToolStarted,
)
from odin.core.event import CompactionChanged, Envelope, TurnEnded, TurnStarted
from odin.ui.agent_activity import ActivityText, AgentActivity, AgentList


def describe_after(*events: Any, now: float) -> ActivityText:
    """Apply one event per second, starting at second 0, and describe the activity at `now`."""
    activity = AgentActivity()
    for second, event in enumerate(events):
        activity.apply(Envelope(second, float(second), "s", event))
    return activity.describe(now)


TURN_STARTED = TurnStarted("p1", "hello", "edit_mode")


def test_an_idle_agent_has_no_activity_text() -> None:
    assert describe_after(now=5) == ActivityText()


def test_each_activity_has_a_text_and_a_duration() -> None:
    assert describe_after(TURN_STARTED, RequestStarted(1), now=3).text == "asking the model 2 s"
    assert describe_after(TURN_STARTED, ActivityChanged("connecting"), now=3).text == "connecting to the model 2 s"
    assert (
        describe_after(TURN_STARTED, ActivityChanged("waiting_headers"), now=66).text
        == "waiting for the model 1 min 5 s"
    )
    assert describe_after(TURN_STARTED, ActivityChanged("verifying"), now=1).text == "checking the work 0 s"
    assert describe_after(TURN_STARTED, ActivityChanged("retrying_key"), now=1).text == "trying another key 0 s"


def test_consecutive_waits_for_the_model_count_as_one() -> None:
    waits = (ActivityChanged("waiting_headers"), ActivityChanged("waiting_token"))
    assert describe_after(TURN_STARTED, *waits, now=11).text == "waiting for the model 10 s"


def test_a_streamed_answer_shows_its_token_count() -> None:
    said = describe_after(TURN_STARTED, ActivityChanged("streaming"), RequestProgressed(40, 4_800), now=5)
    assert (said.text, said.detail, said.is_busy) == ("the model is answering 4 s", "about 1.2k tokens", True)


def test_a_rolled_back_reply_is_not_counted() -> None:
    assert not describe_after(
        TURN_STARTED, ActivityChanged("streaming"), RequestProgressed(1, 400), ReplyRolledBack("cut"), now=5
    ).detail


def test_thinking_is_shown_until_it_ends() -> None:
    thinking = (TURN_STARTED, ActivityChanged("streaming"), ThinkingStarted())
    assert describe_after(*thinking, now=14).text == "thinking 12 s"
    assert describe_after(*thinking, ThinkingEnded("so", 1.0), now=14).text == "the model is answering 11 s"


def test_one_tool_is_named_and_several_are_counted() -> None:
    one = ToolStarted("c1", "Bash", {"command": "make test\nrm x"})
    two = ToolStarted("c2", "Read", {"file_path": "a.py"}, "a.py")
    assert describe_after(TURN_STARTED, one, now=9).text == "running Bash make test 8 s"
    said = describe_after(TURN_STARTED, one, two, CallQueued("c3", "Edit"), now=9)
    assert (said.text, said.detail) == ("running 2 tools 8 s", "1 waiting · Bash make test, Read a.py")


def test_a_queued_call_is_not_shown_as_running() -> None:
    assert "running" not in describe_after(TURN_STARTED, CallQueued("c1", "Edit"), now=2).text


def test_a_call_that_ended_is_no_longer_running() -> None:
    ended = ToolEnded("c1", "Bash", "success", "ok")
    said = describe_after(TURN_STARTED, ToolStarted("c1", "Bash", {}), ended, now=5)
    assert said.text == "continuing 3 s"


def test_a_retry_is_counted_down() -> None:
    scheduled = RetryScheduled(2, 6, 4.0, "The server said 529.", "overloaded")
    retry = (TURN_STARTED, scheduled, ActivityChanged("retrying", "retry 2/6"))
    assert [describe_after(*retry, now=second).text for second in (1.0, 1.5, 3.2, 5.0, 9.0)] == [
        "retry 2/6 in 4 s",
        "retry 2/6 in 4 s",
        "retry 2/6 in 2 s",
        "retry 2/6 in 0 s",
        "retry 2/6 in 0 s",
    ]
    assert describe_after(*retry, now=2).detail == "The server said 529."
    assert describe_after(*retry, ActivityChanged("connecting"), now=5).text == "connecting to the model 2 s"


def test_a_cooldown_is_shown_as_a_rate_limit() -> None:
    scheduled = RetryScheduled(1, 6, 30.0, "Too many requests.", "rate_limit")
    said = describe_after(TURN_STARTED, scheduled, ActivityChanged("cooling", "cooldown 30s"), now=11)
    assert said.text == "rate limited: retry 1/6 in 20 s"


def test_a_request_takes_precedence_over_other_activities() -> None:
    asked = PermissionAsked("a1", "c1", "Bash", {}, "it may change files")
    said = describe_after(TURN_STARTED, ToolStarted("c0", "Read", {}), asked, now=6)
    assert said.is_asking
    assert (said.text, said.detail) == ("waiting for your answer: allow Bash?", "4 s")
    assert not describe_after(TURN_STARTED, asked, PermissionAnswered("a1", "c1", True), now=6).is_asking
    assert (
        describe_after(TURN_STARTED, QuestionsAsked("q", "c1", ()), now=2).text == "waiting for your answer: a question"
    )


def test_turn_time_excludes_waiting_for_the_user() -> None:
    asked = PermissionAsked("a1", "c1", "Bash", {}, "it may change files")
    agents = AgentList()

    def apply_and_count(ts: float, event: Any, agent: str = "", *, now: float) -> float:
        agents.apply(Envelope(int(ts), ts, "s", event, agent))
        return agents.count_turn_seconds(now)

    assert apply_and_count(0, TURN_STARTED, now=1) == 1
    assert apply_and_count(2, asked, now=5) == 2
    assert apply_and_count(7, PermissionAnswered("a1", "c1", True), now=9) == 4
    assert apply_and_count(10, replace(asked, ask_id="a2"), "agent-1", now=60) == 5
    assert apply_and_count(70, PermissionAnswered("a2", "c1", True), "agent-1", now=71) == 6
    assert apply_and_count(72, TurnEnded("p1", "end_turn"), now=80) == 0


def test_compaction_between_turns_is_shown() -> None:
    started = CompactionChanged("started")
    assert describe_after(started, now=3).text == "compacting the conversation 3 s"
    assert not describe_after(started, CompactionChanged("succeeded"), now=3).is_busy


def test_the_end_of_a_turn_shows_its_outcome() -> None:
    assert describe_after(TURN_STARTED, TurnEnded("p1", "end_turn", duration_ms=72_000), now=9).text == "done"
    assert describe_after(TURN_STARTED, TurnEnded("p1", "interrupted"), now=9).text == "stopped"
    failed = describe_after(TURN_STARTED, TurnEnded("p1", "error", error="x"), now=9)
    assert failed.is_failure
    assert not failed.is_busy


def test_control_characters_in_a_status_text_are_escaped() -> None:
    assert describe_after(TURN_STARTED, StatusUpdated("step\x1b[2J one"), now=1).text == "step\\x1b[2J one 0 s"
