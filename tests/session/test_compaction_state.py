"""State after compaction: whatever the log contains, every provider accepts the history."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core.call_events import FileCached, ReplyDiscarded, ToolStarted
from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextSummarized,
    Envelope,
    MessageRemoved,
    NoteAdded,
    Redone,
    ResultsPruned,
    Rewound,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import CachedFile
from odin.core.message import Image, PromptMessage, ReplyMessage, ToolMessage, ToolResult
from odin.session.history import SUMMARY_OPENING, find_paths_in_view, is_pruned
from odin.session.state import SessionState

from .test_state import assert_legal, ended, reply, wrap

IDS = ("a", "b", "c", "d")

EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.integers(0, 5).map(lambda number: TurnStarted(f"t{number}", f"prompt {number}", "edit_mode", notes=("a note",))),
    st.lists(st.sampled_from(IDS), max_size=3, unique=True).map(lambda ids: reply(*ids)),
    st.sampled_from(IDS).map(lambda one: ToolStarted(one, "Read", {})),
    st.sampled_from(IDS).map(lambda one: ended(one, f"the text of {one}" * 30)),
    st.integers(0, 5).map(lambda number: TurnEnded(f"t{number}", "end_turn", "answer")),
    st.just(NoteAdded("by the way")),
    st.just(ReplyDiscarded("cut off")),
    st.just(MessageRemoved()),
    st.builds(
        Compacted,
        text=st.just("the summary"),
        kept_messages=st.integers(-1, 9),
        user_prompts=st.sampled_from([(), ("older prompt",)]),
    ),
    st.builds(ResultsPruned, calls=st.lists(st.sampled_from(IDS), max_size=3).map(tuple)),
    st.builds(ContextSummarized, text=st.just("gist"), calls=st.lists(st.sampled_from(IDS), max_size=2).map(tuple)),
    st.integers(0, 5).map(lambda number: Rewound("r", f"t{number}", files=True, chat=True)),
    st.just(Redone("r")),
)


def number_events(events: list[AnyEvent]) -> list[Envelope]:
    return [Envelope(number, 1.0, "s", event) for number, event in enumerate(events)]


def list_visible_parts(state: SessionState) -> tuple[object, ...]:
    thread = state.get_thread()
    return state.build_history(), thread.summary, thread.prompt, state.turns, state.conversation.tokens, state.files


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(EVENTS, max_size=40), st.data())
def test_folding_a_prefix_and_applying_the_rest_equals_folding_all(events: list[AnyEvent], data: st.DataObject) -> None:
    log = number_events(events)
    for end in range(len(log) + 1):
        assert_legal(SessionState.fold(log[:end]).build_history())
    cut = data.draw(st.integers(0, len(log)))
    state = SessionState.fold(log[:cut], read_log=lambda: log)
    for envelope in log[cut:]:
        state.apply(envelope)
    assert list_visible_parts(state) == list_visible_parts(SessionState.fold(log))


def make_conversation() -> list[AnyEvent]:
    found: list[AnyEvent] = []
    for number in range(4):
        found += [
            TurnStarted(f"t{number}", f"prompt {number}", "edit_mode"),
            reply(f"c{number}"),
            ended(f"c{number}", "long text " * 40),
            TurnEnded(f"t{number}", "end_turn", "answer"),
        ]
    return found


def test_compaction_drops_older_messages_and_keeps_calls_with_results() -> None:
    state = SessionState.fold(wrap(*make_conversation(), Compacted("S", 3, ("prompt 2",))))
    history = state.build_history()
    assert_legal(history)
    assert [message.text for message in history if isinstance(message, PromptMessage)] == ["prompt 2", "prompt 3"]
    assert isinstance(history[-1], ToolMessage)
    assert state.get_thread().summary == "S"


def test_boundary_between_call_and_result_moves_before_the_call() -> None:
    state = SessionState.fold(wrap(*make_conversation(), Compacted("S", 1)))
    assert_legal(state.build_history())
    assert isinstance(state.build_history()[0], PromptMessage)
    assert [type(message) for message in state.build_history()[1:]] == [ReplyMessage, ToolMessage]
    assert state.build_history()[0] == PromptMessage(SUMMARY_OPENING)


def test_pruned_result_is_one_line_that_names_the_file_with_the_text() -> None:
    state = SessionState.fold(wrap(*make_conversation(), ResultsPruned(("c0", "c2"), (), "/s/results-1.md")))
    results = [
        result for message in state.build_history() if isinstance(message, ToolMessage) for result in message.results
    ]
    assert [is_pruned(result) for result in results] == [True, False, True, False]
    assert "\n" not in results[0].text
    assert "400 characters" in results[0].text
    assert "/s/results-1.md under c0" in results[0].text


def test_pruned_image_is_removed_and_the_text_stays() -> None:
    picture = Image("/s/1.png", "image/png")
    shown = ended("x", "a picture")
    from msgspec.structs import replace

    state = SessionState.fold(
        wrap(
            TurnStarted("t", "look", "edit_mode"),
            reply("x"),
            replace(shown, images=(picture,)),
            ResultsPruned((), ("/s/1.png",)),
        )
    )
    (result,) = [
        result for message in state.build_history() if isinstance(message, ToolMessage) for result in message.results
    ]
    assert result.images == ()
    assert result.text.startswith("a picture\n(image removed")


def test_rewind_to_before_a_summary_restores_messages_from_the_log() -> None:
    log = number_events(
        [*make_conversation(), Compacted("S", 1), ResultsPruned(("c3",)), Rewound("r", "t1", files=False, chat=True)]
    )
    state = SessionState.fold(iter(log), read_log=lambda: log)
    assert state.build_history() == SessionState.fold(log[:4]).build_history()
    assert state.get_thread().summary == ""
    state.apply(Envelope(len(log), 1.0, "s", Redone("r")))
    assert state.get_thread().summary == "S"


def test_rewind_without_a_log_gives_an_empty_history() -> None:
    log = number_events([*make_conversation(), Compacted("S", 1), Rewound("r", "t1", files=False, chat=True)])
    assert SessionState.fold(iter(log)).build_history() == ()


def test_cached_files_whose_text_left_the_history_are_forgotten() -> None:
    from odin.core.call_events import Replied
    from odin.core.message import ToolCall

    read = Replied(ReplyMessage((ToolCall("c9", "Read", {"file_path": "/w/b.py"}),), stop="tool_use"))
    events = [
        TurnStarted("t", "look", "edit_mode"),
        FileCached(CachedFile("/w/a.py", 1, 1.0)),
        FileCached(CachedFile("/w/b.py", 1, 1.0)),
        read,
        ended("c9", "port = 1"),
    ]
    kept = SessionState.fold(wrap(*events, Compacted("S", 2)))
    assert [file.path for file in kept.files] == ["/w/b.py"]
    gone = SessionState.fold(wrap(*events, ResultsPruned(("c9",))))
    assert gone.files == ()


def test_file_read_by_a_relative_path_is_in_view() -> None:
    from odin.core.message import ToolCall

    calls = ReplyMessage((ToolCall("c", "Read", {"file_path": "./src/a.py"}),))
    messages = (PromptMessage("x"), calls, ToolMessage((ToolResult("c", "text"),)))
    assert find_paths_in_view(messages, ["/w/src/a.py", "/w/lib/a.py"]) == {"/w/src/a.py"}
