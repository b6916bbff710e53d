"""Session state: every prefix of a log folds to a history that every provider accepts."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core.call_events import (
    Replied,
    ReplyDiscarded,
    StatusUpdated,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    ChecksRan,
    Envelope,
    NoteAdded,
    PromptQueued,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import Todo, Verification
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage, Usage
from odin.session.state import SessionState
from odin.session.thread import INTERRUPTED, NOT_STARTED

from ..core.strategies import envelopes


def wrap(*events: AnyEvent, agent: str = "") -> list[Envelope]:
    return [Envelope(number, float(number), "s", event, agent) for number, event in enumerate(events)]


def reply(*calls: str, text: str = "on it") -> Replied:
    parts = (*((Text(text),) if text else ()), *(ToolCall(name, "Read", {"n": name}) for name in calls))
    return Replied(ReplyMessage(parts))


def ended(call: str, text: str = "done") -> ToolEnded:
    return ToolEnded(call, "Read", "success", text)


def assert_legal(history: tuple[Message, ...]) -> None:
    """Check the rules of the strictest API: results follow their calls at once, one each, in order; no empty reply."""
    expecting: list[str] = []
    for message in history:
        if isinstance(message, ToolMessage):
            assert [result.call_id for result in message.results] == expecting
            expecting = []
            continue
        assert not expecting
        if isinstance(message, ReplyMessage):
            assert message.text.strip() or message.calls
            expecting = [call.id for call in message.calls]
    assert not expecting


turn_events = st.one_of(
    st.builds(TurnStarted, id=st.just("t"), text=st.text(min_size=1, max_size=4), mode=st.just("edit_mode")),
    st.lists(st.sampled_from("abcd"), unique=True, max_size=3).map(lambda calls: reply(*calls)),
    st.just(reply(text="")),
    st.sampled_from("abcdx").map(ended),
    st.just(NoteAdded("by the way")),
    st.just(ReplyDiscarded("cut")),
    st.just(TurnEnded("t", "end_turn", "ok")),
)


@settings(max_examples=300)
@given(st.lists(turn_events, max_size=14))
def test_every_prefix_gives_a_legal_history(events: list[AnyEvent]) -> None:
    log = wrap(*events)
    for length in range(len(log) + 1):
        assert_legal(SessionState.fold(log[:length]).build_history())


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(envelopes, max_size=12))
def test_any_events_fold_in_any_order(log: list[Envelope]) -> None:
    state = SessionState.fold(log)
    msgspec.json.encode(state.snapshot())


def test_results_are_in_the_order_of_the_calls() -> None:
    log = wrap(TurnStarted("t", "hi", "edit_mode"), reply("a", "b", "c"), ended("c"), ended("a"), ended("b"))
    last = SessionState.fold(log).build_history()[-1]
    assert isinstance(last, ToolMessage)
    assert [result.call_id for result in last.results] == ["a", "b", "c"]


def test_a_crash_between_two_calls_leaves_a_result_for_each() -> None:
    state = SessionState.fold(wrap(TurnStarted("t", "hi", "edit_mode"), reply("a", "b"), ended("a", "fine")))
    last = state.build_history()[-1]
    assert isinstance(last, ToolMessage)
    assert [(result.text, result.is_error) for result in last.results] == [("fine", False), (NOT_STARTED, True)]
    assert [call.id for call in state.get_thread().open_calls] == ["b"]


def test_interrupted_result_differs_for_started_and_unstarted_calls() -> None:
    started_call = ToolStarted("a", "ExecuteCommand", {}, "")
    state = SessionState.fold(wrap(TurnStarted("t", "hi", "edit_mode"), reply("a", "b"), started_call))
    last = state.build_history()[-1]
    assert isinstance(last, ToolMessage)
    assert [result.text for result in last.results] == [INTERRUPTED, NOT_STARTED]


def test_note_after_a_discarded_reply_keeps_the_sent_messages() -> None:
    before = SessionState.fold(wrap(TurnStarted("t", "hi", "edit_mode")))
    after = SessionState.fold(wrap(TurnStarted("t", "hi", "edit_mode"), ReplyDiscarded("cut"), NoteAdded("smaller")))
    assert after.build_history()[: len(before.build_history())] == before.build_history()
    assert after.build_history()[-1] == PromptMessage("smaller", origin="odin")


def test_history_says_what_was_denied_and_which_prompts_are_notes() -> None:
    denied = ToolEnded("a", "Read", "denied", "No.", error_kind="NeedsConfirmation")
    checks = ChecksRan(Verification("failed"), continues=True)
    events = (reply("a"), denied, reply(), checks, NoteAdded("red"), reply(), NoteAdded("more"))
    history = SessionState.fold(wrap(TurnStarted("t", "hi", "edit_mode"), *events)).build_history()
    results = [one for message in history if isinstance(message, ToolMessage) for one in message.results]
    assert [(one.is_denied, one.error_kind) for one in results] == [(True, "NeedsConfirmation")]
    prompts = [(one.text, one.origin) for one in history if isinstance(one, PromptMessage)]
    assert prompts == [("hi", "user"), ("red", "checks"), ("more", "odin")]


def test_note_before_a_request_joins_the_newest_message() -> None:
    state = SessionState.fold(wrap(TurnStarted("t", "hi", "edit_mode"), NoteAdded("x")))
    assert state.build_history() == (PromptMessage("hi", ("x",)),)


def test_turn_records_updates_todos_and_tool_calls() -> None:
    todo = Todo("1", "look", "pending")
    events = (
        TurnStarted("t", "hi", "ask_mode"),
        StatusUpdated("reading"),
        reply("a"),
        ToolEnded("a", "Read", "success", "text", note="read a", files=("/a",)),
        TodosChanged((todo,)),
    )
    running = SessionState.fold(wrap(*events))
    (turn,) = running.turns
    assert running.conversation.is_executing
    assert (turn.body, turn.mode, turn.updates, turn.todos) == ("hi", "ask_mode", ("reading",), (todo,))
    assert turn.tool_history[0].files == ("/a",)
    done = SessionState.fold(wrap(*events, TurnEnded("t", "end_turn", "answer")))
    (turn,) = done.turns
    assert not done.conversation.is_executing
    assert (turn.answer_summary, turn.updates, turn.reason) == ("answer", (), "end_turn")


def test_a_failed_turn_resets_executing_and_updates() -> None:
    state = SessionState.fold(
        wrap(TurnStarted("t", "hi", "ask_mode"), StatusUpdated("x"), TurnEnded("t", "error", error="boom"))
    )
    assert not state.conversation.is_executing
    assert state.turns[0].updates == ()


def test_sub_agents_are_listed_with_their_todos_until_they_end() -> None:
    todo = Todo("1", "dig", "in_progress")
    log = [
        *wrap(AgentStarted("a-1", "dig", "ask_mode")),
        *wrap(TodosChanged((todo,)), agent="a-1"),
    ]
    (record,) = SessionState.fold(log).snapshot().sub_agents
    assert (record.id, record.todos) == ("a-1", (todo,))
    assert SessionState.fold([*log, *wrap(AgentEnded("a-1", "error"))]).snapshot().sub_agents == ()
    assert SessionState.fold([*log, *wrap(SessionOpened("/w", "m", "1", resumed=True))]).snapshot().sub_agents == ()


def test_usage_is_summed_by_model_and_agent() -> None:
    first, second = Usage(10, 5, 100, 20, 1), Usage(1, 2, 3, 4, 5)
    log = [
        *wrap(UsageRecorded("m", first, 0.5, 1000)),
        *wrap(UsageRecorded("n", second, 0.25, 1000), agent="a-1"),
        *wrap(UsageRecorded("m", second, 0.25, 1000)),
    ]
    shot = SessionState.fold(log).snapshot()
    assert shot.usage == first + second + second
    assert shot.usage_by_model == {"m": first + second, "n": second}
    assert shot.usage_by_agent == {"": first + second, "a-1": second}
    assert (shot.cost_usd, shot.context_tokens, shot.context_limit) == (1.0, second.total, 1000)


def test_snapshot_is_a_copy() -> None:
    state = SessionState.fold(wrap(SessionOpened("/w", "m", "1", config={"a": 1}), TurnStarted("t", "hi", "ask_mode")))
    state.snapshot().config["a"] = 2
    assert state.snapshot().config == {"a": 1}
    assert isinstance(state.build_history(), tuple)
    queued = SessionState.fold(wrap(PromptQueued("q", "later", "plan_mode")))
    assert queued.queue[0].mode == "plan_mode"


def test_two_thousand_events_fold_to_a_legal_history() -> None:
    block = (TurnStarted("t", "hi", "edit_mode"), reply("a"), ended("a"), reply(), TurnEnded("t", "end_turn", "ok"))
    log = wrap(*itertools.chain.from_iterable(itertools.repeat(block, 400)))
    state = SessionState.fold(log)
    assert len(state.turns) == 400
    assert_legal(state.build_history())


def test_agents_that_continue_each_other_have_an_empty_history() -> None:
    started = [AgentStarted("a", "t", "edit_mode", continues="b"), AgentStarted("b", "t", "edit_mode", continues="a")]
    log = [Envelope(number, 0.0, "s", event) for number, event in enumerate(started)]
    assert SessionState.fold(log).build_history("b") == ()


def test_continued_agents_are_read_from_the_log_once_if_running() -> None:
    """Otherwise, the resume of a session with many of them would read the log once for each pair."""
    log: list[Envelope] = []
    for number in range(1, 31):
        continues = f"a-{number - 1}" if number > 1 else ""
        log += wrap(AgentStarted(f"a-{number}", "dig", "edit_mode", continues=continues))
        log += wrap(TurnStarted(f"t-{number}", f"part {number}", "edit_mode"), reply(), agent=f"a-{number}")
        log += wrap(TurnEnded(f"t-{number}", "end_turn", "ok"), agent=f"a-{number}")
        log += wrap(AgentEnded(f"a-{number}", "end_turn")) if number < 30 else []
    reads: list[int] = []

    def read_log() -> list[Envelope]:
        reads.append(len(log))
        return log

    live = SessionState.fold(iter(log), read_log=read_log)
    assert len(reads) == 1
    prompts = [message.text for message in live.build_history("a-30") if isinstance(message, PromptMessage)]
    assert prompts == [f"part {number}" for number in range(1, 31)]
    log += wrap(AgentEnded("a-30", "end_turn"))
    ended = SessionState.fold(iter(log), read_log=read_log)
    assert (len(reads), ended.sub_agents.threads) == (1, {})
    (started,) = wrap(AgentStarted("a-31", "dig", "edit_mode", continues="a-30"))
    ended.apply(started)
    assert (len(reads), ended.build_history("a-31")) == (2, live.build_history("a-30"))
