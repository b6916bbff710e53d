"""A summary takes the place of what it covers, in every history that follows and after every resume."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core.event import (
    AgentStarted,
    AnyEvent,
    ContextAdded,
    ContextSummarized,
    NoteAdded,
    Rewound,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import PromptMessage, ToolMessage
from odin.session.history import SUMMARIZED_RESULT
from odin.session.state import SessionState

from .test_state import assert_legal, ended, reply, turn_events, wrap


def texts(state: SessionState, agent: str = "") -> dict[str, str]:
    found = (message for message in state.build_history(agent) if isinstance(message, ToolMessage))
    return {result.call_id: result.text for message in found for result in message.results}


def begun(number: str = "t", *notes: str) -> TurnStarted:
    return TurnStarted(number, "do it", "edit_mode", notes)


TALK: tuple[AnyEvent, ...] = (
    ContextAdded("port = 1", path="/w/a.toml"),
    begun("t", "Date: today", "Context from /w/a.toml:\nport = 1"),
    reply("a", "b"),
    ended("a", "old text"),
    ended("b", "other text"),
    reply("c"),
    ended("c", "newest"),
    reply("sum"),
    ended("sum", "The summary."),
    ContextSummarized("The summary.", ("a", "b")),
)


def test_covered_results_and_context_become_one_line_and_one_item():
    state = SessionState.fold(wrap(*TALK))
    assert texts(state) == {"a": SUMMARIZED_RESULT, "b": SUMMARIZED_RESULT, "c": "newest", "sum": "The summary."}
    assert state.build_history()[0] == PromptMessage("do it", ("Date: today",))
    assert [item.content for item in state.snapshot().context] == ["The summary."]
    assert_legal(state.build_history())


def test_what_is_collected_leaves_out_the_running_call_and_what_was_summarised():
    running = SessionState.fold(wrap(*TALK[:-2]))
    found = running.list_collected()
    assert [(item.call_id, item.text) for item in found] == [
        ("", "port = 1"),
        ("a", "old text"),
        ("b", "other text"),
        ("c", "newest"),
    ]
    assert found[0].title == "Context from /w/a.toml"
    assert found[1].title == 'Read {"n":"a"}'
    after = SessionState.fold(wrap(*TALK)).list_collected()
    assert [item.text for item in after] == [
        "The summary.",
        SUMMARIZED_RESULT,
        SUMMARIZED_RESULT,
        "newest",
        "The summary.",
    ]


def test_a_later_call_of_the_same_name_is_not_covered():
    state = SessionState.fold(wrap(*TALK, TurnEnded("t", "end_turn"), begun("u"), reply("a"), ended("a", "new text")))
    assert texts(state)["a"] == "new text"
    first = state.build_history()[2]
    assert isinstance(first, ToolMessage)
    assert first.results[0].text == SUMMARIZED_RESULT


def test_a_sub_agents_summary_leaves_the_main_thread_and_the_context_alone():
    main = wrap(
        ContextAdded("kept"), begun(), reply("a", "agent"), ended("a", "main text"), AgentStarted("s", "x", "ask_mode")
    )
    sub = wrap(
        begun("s"),
        reply("a"),
        ended("a", "sub text"),
        reply("sum"),
        ended("sum", "short"),
        ContextSummarized("short", ("a",)),
        agent="s",
    )
    state = SessionState.fold([*main, *sub])
    assert texts(state, "s")["a"] == SUMMARIZED_RESULT
    assert texts(state)["a"] == "main text"
    assert [item.content for item in state.snapshot().context] == ["kept"]
    assert [item.text for item in state.list_collected("s")] == [SUMMARIZED_RESULT, "short"]


def test_going_back_to_before_the_summary_brings_the_originals_back():
    before = wrap(begun("t"), reply("a"), ended("a", "old text"), TurnEnded("t", "end_turn", "ok"))
    later = wrap(begun("u"), reply("sum"), ended("sum", "short"), ContextSummarized("short", ("a",)))
    state = SessionState.fold([*before, *later])
    assert texts(state)["a"] == SUMMARIZED_RESULT
    back = SessionState.fold([*before, *later, *wrap(TurnEnded("u", "end_turn"), Rewound("r", "u", False, True))])
    assert texts(back) == {"a": "old text"}
    again = [*wrap(TurnEnded("u", "end_turn"), Rewound("r", "u", False, True), begun("v"), reply("x"), ended("x", "y"))]
    assert texts(SessionState.fold([*before, *later, *again])) == {"a": "old text", "x": "y"}


summaries = st.lists(st.sampled_from("abcdx"), max_size=4).map(lambda calls: ContextSummarized("s", tuple(calls)))


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.one_of(turn_events, summaries, st.just(NoteAdded("n"))), max_size=16))
def test_every_prefix_gives_a_legal_history_with_summaries_anywhere(events: list[AnyEvent]):
    log = wrap(*events)
    for length in range(len(log) + 1):
        assert_legal(SessionState.fold(log[:length]).build_history())
