"""Context summaries: a summary replaces the results and context it covers, also after a resume."""

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


def list_result_texts(state: SessionState, agent: str = "") -> dict[str, str]:
    found = (message for message in state.build_history(agent) if isinstance(message, ToolMessage))
    return {result.call_id: result.text for message in found for result in message.results}


def started(number: str = "t", *notes: str) -> TurnStarted:
    return TurnStarted(number, "do it", "edit_mode", notes=notes)


TALK: tuple[AnyEvent, ...] = (
    ContextAdded("port = 1", path="/w/a.toml"),
    started("t", "Date: today", "Context from /w/a.toml:\nport = 1"),
    reply("a", "b"),
    ended("a", "old text"),
    ended("b", "other text"),
    reply("c"),
    ended("c", "newest"),
    reply("sum"),
    ended("sum", "The summary."),
    ContextSummarized("The summary.", ("a", "b")),
)


def test_summarized_results_and_context_are_replaced():
    state = SessionState.fold(wrap(*TALK))
    assert list_result_texts(state) == {
        "a": SUMMARIZED_RESULT,
        "b": SUMMARIZED_RESULT,
        "c": "newest",
        "sum": "The summary.",
    }
    assert state.build_history()[0] == PromptMessage("do it", ("Date: today",))
    assert [item.content for item in state.snapshot().context] == ["The summary."]
    assert_legal(state.build_history())


def test_collected_texts_exclude_the_running_call():
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


def test_later_call_with_the_same_id_is_not_replaced():
    state = SessionState.fold(wrap(*TALK, TurnEnded("t", "end_turn"), started("u"), reply("a"), ended("a", "new text")))
    assert list_result_texts(state)["a"] == "new text"
    first = state.build_history()[2]
    assert isinstance(first, ToolMessage)
    assert first.results[0].text == SUMMARIZED_RESULT


def test_summary_of_a_sub_agent_changes_only_its_own_thread():
    main = wrap(
        ContextAdded("kept"),
        started(),
        reply("a", "agent"),
        ended("a", "main text"),
        AgentStarted("s", "x", "ask_mode"),
    )
    sub = wrap(
        started("s"),
        reply("a"),
        ended("a", "sub text"),
        reply("sum"),
        ended("sum", "short"),
        ContextSummarized("short", ("a",)),
        agent="s",
    )
    state = SessionState.fold([*main, *sub])
    assert list_result_texts(state, "s")["a"] == SUMMARIZED_RESULT
    assert list_result_texts(state)["a"] == "main text"
    assert [item.content for item in state.snapshot().context] == ["kept"]
    assert [item.text for item in state.list_collected("s")] == [SUMMARIZED_RESULT, "short"]


def test_rewind_to_before_a_summary_restores_the_results():
    before = wrap(started("t"), reply("a"), ended("a", "old text"), TurnEnded("t", "end_turn", "ok"))
    later = wrap(started("u"), reply("sum"), ended("sum", "short"), ContextSummarized("short", ("a",)))
    state = SessionState.fold([*before, *later])
    assert list_result_texts(state)["a"] == SUMMARIZED_RESULT
    back = SessionState.fold([*before, *later, *wrap(TurnEnded("u", "end_turn"), Rewound("r", "u", False, True))])
    assert list_result_texts(back) == {"a": "old text"}
    again = [
        *wrap(TurnEnded("u", "end_turn"), Rewound("r", "u", False, True), started("v"), reply("x"), ended("x", "y"))
    ]
    assert list_result_texts(SessionState.fold([*before, *later, *again])) == {"a": "old text", "x": "y"}


summaries = st.lists(st.sampled_from("abcdx"), max_size=4).map(lambda calls: ContextSummarized("s", tuple(calls)))


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.one_of(turn_events, summaries, st.just(NoteAdded("n"))), max_size=16))
def test_every_prefix_gives_a_legal_history_with_summaries_anywhere(events: list[AnyEvent]):
    log = wrap(*events)
    for length in range(len(log) + 1):
        assert_legal(SessionState.fold(log[:length]).build_history())
