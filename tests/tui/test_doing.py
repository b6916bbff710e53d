"""How the activity of an agent is described at each moment."""

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
from odin.ui.tui.panels.agent_activity import ActivityText, AgentActivity, AgentList


def told(*events: Any, now: float) -> ActivityText:
    """Apply one event per second, starting at second 0, and describe the activity at `now`."""
    doing = AgentActivity()
    for second, event in enumerate(events):
        doing.apply(Envelope(second, float(second), "s", event))
    return doing.describe(now)


BEGUN = TurnStarted("p1", "hello", "edit_mode")


def test_nothing_is_said_when_nothing_happens() -> None:
    assert told(now=5) == ActivityText()


def test_the_activities_have_words_and_a_time_of_their_own() -> None:
    assert told(BEGUN, RequestStarted(1), now=3).text == "asking the model 2 s"
    assert told(BEGUN, ActivityChanged("connecting"), now=3).text == "connecting to the model 2 s"
    assert told(BEGUN, ActivityChanged("waiting_headers"), now=66).text == "waiting for the model 1 min 5 s"
    assert told(BEGUN, ActivityChanged("verifying"), now=1).text == "checking the work 0 s"
    assert told(BEGUN, ActivityChanged("retrying_key"), now=1).text == "trying another key 0 s"


def test_one_wait_after_another_for_the_same_thing_goes_on_counting() -> None:
    waits = (ActivityChanged("waiting_headers"), ActivityChanged("waiting_token"))
    assert told(BEGUN, *waits, now=11).text == "waiting for the model 10 s"


def test_an_answer_says_how_much_has_arrived() -> None:
    said = told(BEGUN, ActivityChanged("streaming"), RequestProgressed(40, 4_800), now=5)
    assert (said.text, said.detail, said.is_busy) == ("the model is answering 4 s", "about 1.2k tokens", True)


def test_what_was_taken_back_is_not_counted() -> None:
    assert not told(
        BEGUN, ActivityChanged("streaming"), RequestProgressed(1, 400), ReplyRolledBack("cut"), now=5
    ).detail


def test_thinking_is_said_and_over_when_it_is_over() -> None:
    thinking = (BEGUN, ActivityChanged("streaming"), ThinkingStarted())
    assert told(*thinking, now=14).text == "thinking 12 s"
    assert told(*thinking, ThinkingEnded("so", 1.0), now=14).text == "the model is answering 11 s"


def test_one_tool_is_named_and_several_are_counted() -> None:
    one = ToolStarted("c1", "Bash", {"command": "make test\nrm x"})
    two = ToolStarted("c2", "Read", {"file_path": "a.py"}, "a.py")
    assert told(BEGUN, one, now=9).text == "running Bash make test 8 s"
    said = told(BEGUN, one, two, CallQueued("c3", "Edit"), now=9)
    assert (said.text, said.detail) == ("running 2 tools 8 s", "1 waiting · Bash make test, Read a.py")


def test_a_queued_call_is_not_said_to_run() -> None:
    assert "running" not in told(BEGUN, CallQueued("c1", "Edit"), now=2).text


def test_a_call_that_ended_is_no_longer_running() -> None:
    ended = ToolEnded("c1", "Bash", "success", "ok")
    said = told(BEGUN, ToolStarted("c1", "Bash", {}), ended, now=5)
    assert said.text == "continuing 3 s"


def test_a_retry_is_counted_down() -> None:
    scheduled = RetryScheduled(2, 6, 4.0, "The server said 529.", "overloaded")
    retry = (BEGUN, scheduled, ActivityChanged("retrying", "retry 2/6"))
    assert [told(*retry, now=second).text for second in (1.0, 1.5, 3.2, 5.0, 9.0)] == [
        "retry 2/6 in 4 s",
        "retry 2/6 in 4 s",
        "retry 2/6 in 2 s",
        "retry 2/6 in 0 s",
        "retry 2/6 in 0 s",
    ]
    assert told(*retry, now=2).detail == "The server said 529."
    assert told(*retry, ActivityChanged("connecting"), now=5).text == "connecting to the model 2 s"


def test_a_cooldown_says_who_asks_for_it() -> None:
    scheduled = RetryScheduled(1, 6, 30.0, "Too many requests.", "rate_limit")
    said = told(BEGUN, scheduled, ActivityChanged("cooling", "cooldown 30s"), now=11)
    assert said.text == "rate limited: retry 1/6 in 20 s"


def test_a_question_comes_before_everything_else() -> None:
    asked = PermissionAsked("a1", "c1", "Bash", {}, "it may change files")
    said = told(BEGUN, ToolStarted("c0", "Read", {}), asked, now=6)
    assert said.is_asking
    assert (said.text, said.detail) == ("waiting for your answer: allow Bash?", "4 s")
    assert not told(BEGUN, asked, PermissionAnswered("a1", "c1", True), now=6).is_asking
    assert told(BEGUN, QuestionsAsked("q", "c1", ()), now=2).text == "waiting for your answer: a question"


def test_the_time_of_a_turn_leaves_out_what_the_user_takes_to_answer() -> None:
    asked = PermissionAsked("a1", "c1", "Bash", {}, "it may change files")
    agents = AgentList()

    def after(ts: float, event: Any, agent: str = "", *, now: float) -> float:
        agents.apply(Envelope(int(ts), ts, "s", event, agent))
        return agents.count_turn_seconds(now)

    assert after(0, BEGUN, now=1) == 1
    assert after(2, asked, now=5) == 2
    assert after(7, PermissionAnswered("a1", "c1", True), now=9) == 4
    assert after(10, replace(asked, ask_id="a2"), "agent-1", now=60) == 5
    assert after(70, PermissionAnswered("a2", "c1", True), "agent-1", now=71) == 6
    assert after(72, TurnEnded("p1", "end_turn"), now=80) == 0


def test_a_summary_made_while_nothing_runs_is_said() -> None:
    started = CompactionChanged("started")
    assert told(started, now=3).text == "compacting the conversation 3 s"
    assert not told(started, CompactionChanged("succeeded"), now=3).is_busy


def test_the_end_says_how_it_ended() -> None:
    assert told(BEGUN, TurnEnded("p1", "end_turn", duration_ms=72_000), now=9).text == "done"
    assert told(BEGUN, TurnEnded("p1", "interrupted"), now=9).text == "stopped"
    failed = told(BEGUN, TurnEnded("p1", "error", error="x"), now=9)
    assert failed.is_failure
    assert not failed.is_busy


def test_a_line_of_progress_is_shown_without_what_could_steer_the_terminal() -> None:
    assert told(BEGUN, StatusUpdated("step\x1b[2J one"), now=1).text == "step\\x1b[2J one 0 s"
