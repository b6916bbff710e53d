"""What a client that joins in the middle of a reply is given."""

from odin.core.call_events import ActivityChanged, CallStreamed, Replied, TextStreamed, ThinkingStarted
from odin.core.event import (
    AnyEvent,
    Envelope,
    PromptDropped,
    PromptInjected,
    PromptPaused,
    PromptQueued,
    TurnEnded,
    TurnStarted,
    WorkEnded,
)
from odin.core.live_events import LiveEvents
from odin.core.message import ReplyMessage, Text


def fold(*events: AnyEvent) -> list[tuple[int, AnyEvent]]:
    live = LiveEvents()
    for event in events:
        live.apply(Envelope(3, 0.0, "s", event))
    return [(envelope.seq, envelope.event) for envelope in live.list_current(7)]


def test_chunks_are_joined_and_come_after_all_that_is_in_the_log() -> None:
    chunks = TextStreamed("a"), TextStreamed("b"), CallStreamed("c1", "Read", "{"), CallStreamed("c1", "Read", "}")
    assert fold(ActivityChanged("streaming"), *chunks, TextStreamed("c")) == [
        (7, ActivityChanged("streaming")),
        (7, TextStreamed("ab")),
        (7, CallStreamed("c1", "Read", "{}")),
        (7, TextStreamed("c")),
    ]


def test_what_is_final_or_over_is_not_given_again() -> None:
    final = Replied(ReplyMessage((Text("ab"),)))
    assert fold(TextStreamed("ab"), final) == []
    assert fold(ThinkingStarted(), TurnEnded("t", "end_turn")) == []
    assert fold(ActivityChanged("streaming"), ActivityChanged("idle")) == []


def test_that_nothing_works_is_so_until_work_begins() -> None:
    started = TurnStarted("t", "x", "edit_mode")
    assert fold(WorkEnded()) == [(7, WorkEnded())]
    assert fold(started, TurnEnded("t", "end_turn"), WorkEnded()) == [(7, WorkEnded())]
    assert fold(WorkEnded(), started) == []
    assert fold(WorkEnded(), PromptQueued("t", "x", "edit_mode")) == []


def test_a_paused_prompt_is_given_until_it_leaves_the_queue() -> None:
    paused, started = PromptPaused("p"), TurnStarted("t", "x", "edit_mode")
    assert fold(paused, started, TurnEnded("t", "end_turn")) == [(7, paused)]
    for left in (
        PromptPaused("p", paused=False),
        TurnStarted("p", "x", "edit_mode"),
        PromptInjected("p", "x", "edit_mode"),
        PromptDropped("p"),
    ):
        assert fold(paused, left) == []
