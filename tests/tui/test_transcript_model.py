"""Events become blocks: replies with rollbacks, calls in every state, rewinds, retries, sub-agents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.call_events import (
    CallDiscarded,
    CallQueued,
    CallSpeculated,
    CallStreamed,
    HookRan,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    RetryScheduled,
    RuleAdded,
    SpawnFinished,
    SpawnStarted,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    ContextAdded,
    Envelope,
    MessageRemoved,
    PromptInjected,
    Redone,
    Rewound,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.event_values import CallAudit as Audit
from odin.core.message import ReplyMessage, Text, Thinking, ToolCall
from odin.ui.transcript.blocks import (
    AnswerBlock,
    CallBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    shorten_output,
)
from odin.ui.transcript.model import TranscriptModel, TranscriptModels
from tests.tui.transcript_comparison import list_comparable_blocks, make_transcript

TURN_STARTED = TurnStarted("t1", "Do it.", "edit_mode")
TURN_ENDED = TurnEnded("t1", "end_turn")


def replied(*parts: Any, interrupted: bool = False) -> Replied:
    return Replied(ReplyMessage(parts, interrupted=interrupted))


def tool_call(number: int = 1, **args: Any) -> ToolCall:
    return ToolCall(f"c{number}", "Read", args)


def list_texts(transcript: TranscriptModel) -> list[str]:
    return [f"{type(block).__name__[:-5]} {getattr(block, 'text', '')}".strip() for block in transcript.blocks]


def get_call_block(transcript: TranscriptModel) -> CallBlock:
    return next(block for block in transcript.blocks if isinstance(block, CallBlock))


def test_a_streamed_reply_equals_the_finished_reply() -> None:
    live = [
        ThinkingStarted(),
        ThinkingStreamed("Hm"),
        ThinkingEnded("Hm.", 2.0),
        TextStreamed("I "),
        TextStreamed("go"),
    ]
    written = [CallStreamed("c1", "Read", chars=12), CallStreamed("c1", "Read", done=True, args={"a": 1})]
    end = replied(Thinking("Hm."), Text("I go"), tool_call(a=1))
    streamed, read = make_transcript([TURN_STARTED, *live, *written, end]), make_transcript([TURN_STARTED, end])
    assert list_comparable_blocks(streamed) == list_comparable_blocks(read)
    thought = streamed.blocks[1]
    assert isinstance(thought, ReasoningBlock) and thought.seconds == 2.0 and not thought.live


def test_a_rollback_removes_unfinished_text_and_calls() -> None:
    transcript = make_transcript(
        [TURN_STARTED, TextStreamed("half an ans"), CallStreamed("c1", "Read", chars=3), ReplyRolledBack("overloaded")]
    )
    assert list_texts(transcript) == ["Prompt Do it."]
    transcript = make_transcript(
        [TURN_STARTED, TextStreamed("half"), ReplyDiscarded("cut off"), TextStreamed("whole"), replied(Text("whole"))]
    )
    assert list_texts(transcript) == ["Prompt Do it.", "Answer whole"]


def test_unfinished_text_is_removed_when_the_turn_fails() -> None:
    transcript = make_transcript([TURN_STARTED, TextStreamed("half"), TurnEnded("t1", "error", error="It broke.")])
    assert list_texts(transcript) == ["Prompt Do it.", "End"]


def test_the_characters_of_a_call_are_counted_until_its_arguments_are_complete() -> None:
    transcript = make_transcript([TURN_STARTED, CallStreamed("c1", "WriteFile", chars=1234)])
    assert (get_call_block(transcript).state, get_call_block(transcript).chars) == ("writing", 1234)
    done = make_transcript(
        [TURN_STARTED, CallStreamed("c1", "WriteFile", chars=1234), CallStreamed("c1", "WriteFile", done=True, args={})]
    )
    assert get_call_block(done).chars == 0
    early = make_transcript(
        [TURN_STARTED, CallStreamed("c1", "WriteFile", chars=9), CallSpeculated("c1", "WriteFile", {"path": "a"})]
    )
    assert (get_call_block(early).state, get_call_block(early).chars) == ("running", 0)


def test_a_queued_call_is_not_running_until_it_starts() -> None:
    events: list[AnyEvent] = [TURN_STARTED, replied(tool_call()), CallQueued("c1", "Read")]
    assert not get_call_block(make_transcript(events)).is_animated
    events.append(ToolStarted("c1", "Read", {}))
    assert get_call_block(make_transcript(events)).is_animated
    events.append(ToolProgressed("c1", "Read", "one\ntwo"))
    assert get_call_block(make_transcript(events)).tail == ["one", "two"]
    events.append(ToolEnded("c1", "Read", "success", "text", duration_ms=5))
    ended = get_call_block(make_transcript(events))
    assert (ended.state, ended.tail, ended.result, ended.is_animated) == ("success", [], "text", False)


def test_a_denied_call_shows_the_reason() -> None:
    asked: list[AnyEvent] = [TURN_STARTED, replied(tool_call()), PermissionAsked("a", "c1", "Read", {}, "outside")]
    assert get_call_block(make_transcript(asked)).state == "asking"
    denied = [*asked, PermissionAnswered("a", "c1", False, reason="not that"), ToolEnded("c1", "Read", "denied", "no")]
    block = get_call_block(make_transcript(denied))
    assert (block.state, block.explanation) == ("denied", "denied by you: not that")
    hooked = [TURN_STARTED, replied(tool_call()), HookRan("tool_call", "guard", "denied", "secret", "c1"), denied[-1]]
    assert get_call_block(make_transcript(hooked)).explanation == "denied by hook guard: secret"
    ruled = "Denied by rule Bash(rm:*) (project). Remove the rule to allow it."
    by_rule = [TURN_STARTED, replied(tool_call()), ToolEnded("c1", "Read", "denied", f"{ruled} Nothing was done.")]
    assert get_call_block(make_transcript(by_rule)).explanation == ruled


def test_a_call_records_changed_arguments_and_redactions() -> None:
    audit = Audit({"path": "a"}, {"path": "b"}, "user")
    ended = ToolEnded("c1", "Read", "success", "x", audit=audit, redacted=("a key",))
    block = get_call_block(make_transcript([TURN_STARTED, replied(tool_call(path="a")), ended]))
    assert (block.args, block.original_args, block.changed_by, block.redacted) == (
        {"path": "b"},
        {"path": "a"},
        "user",
        ("a key",),
    )


def test_a_call_discarded_after_its_reply_has_one_card() -> None:
    call = ToolCall("c1", "Read", {"path": "a"})
    blocks = make_transcript(
        [
            TURN_STARTED,
            CallSpeculated("c1", "Read", call.args),
            replied(call),
            CallDiscarded("c1", "Read", call.args, "not_run"),
            ToolEnded("c1", "Read", "cancelled", "Skipped."),
        ]
    ).blocks
    assert [block.state for block in blocks if isinstance(block, CallBlock)] == ["cancelled"]


def test_a_discarded_speculative_call_keeps_its_card() -> None:
    begun = CallSpeculated("c1", "WriteFile", {"path": "a"})
    gone = CallDiscarded("c1", "WriteFile", {"path": "a"}, "rollback")
    live = make_transcript(
        [
            TURN_STARTED,
            TextStreamed("I wr"),
            begun,
            ReplyRolledBack("x"),
            gone,
            TextStreamed("No."),
            replied(Text("No.")),
        ]
    )
    log = make_transcript([TURN_STARTED, begun, gone, replied(Text("No."))])
    assert list_comparable_blocks(live) == list_comparable_blocks(log)
    assert list_texts(live) == ["Prompt Do it.", "Call", "Answer No."]
    assert (get_call_block(live).state, get_call_block(live).explanation) == ("discarded", "the reply was restarted")


def test_a_started_speculative_call_becomes_part_of_the_reply() -> None:
    begun = CallSpeculated("c1", "Read", {"path": "a"})
    transcript = make_transcript(
        [
            TURN_STARTED,
            TextStreamed("I read"),
            begun,
            replied(Text("I read"), tool_call(path="a")),
            ToolStarted("c1", "Read", {}),
        ]
    )
    assert list_texts(transcript) == ["Prompt Do it.", "Answer I read", "Call"]
    assert get_call_block(transcript).state == "running"


def test_a_notice_during_a_reply_is_above_it_live_and_from_the_log() -> None:
    rule = RuleAdded("Bash(ls)", "allow")
    live = make_transcript(
        [TURN_STARTED, TextStreamed("I am wri"), rule, TextStreamed("ting"), replied(Text("I am writing"))]
    )
    assert list_comparable_blocks(live) == list_comparable_blocks(
        make_transcript([TURN_STARTED, rule, replied(Text("I am writing"))])
    )
    assert [type(block) for block in live.blocks] == [PromptBlock, NoticeBlock, AnswerBlock]


def test_retries_are_one_notice_that_ends_with_the_outcome() -> None:
    retries = [RetryScheduled(number, 6, 1.0, "Overloaded.", "overloaded") for number in (1, 2, 3)]
    waiting = make_transcript([TURN_STARTED, *retries])
    assert list_texts(waiting)[1:] == ["Notice Attempt 3 of 6 failed: Overloaded. Retrying in 1.0 s."]
    assert list_texts(make_transcript([TURN_STARTED, *retries, replied(Text("Hi"))]))[1:] == [
        "Notice The request failed 3 times (Overloaded), then the model answered.",
        "Answer Hi",
    ]
    assert "gave up" in list_texts(make_transcript([TURN_STARTED, *retries, TurnEnded("t1", "error", error="no")]))[1]
    assert (
        "then it was stopped"
        in list_texts(make_transcript([TURN_STARTED, *retries, TurnEnded("t1", "interrupted")]))[1]
    )


def test_calls_that_never_ended_are_cancelled_with_their_turn() -> None:
    transcript = make_transcript(
        [TURN_STARTED, replied(tool_call()), ToolStarted("c1", "Read", {}), TurnEnded("t1", "interrupted")]
    )
    assert get_call_block(transcript).state == "cancelled"


def test_a_rewind_removes_blocks_and_redo_restores_them() -> None:
    second = TurnStarted("t2", "And this.", "edit_mode")
    events: list[AnyEvent] = [
        TURN_STARTED,
        replied(Text("One")),
        TURN_ENDED,
        second,
        replied(Text("Two")),
        TurnEnded("t2", "end_turn"),
    ]
    back = Rewound("r1", "t2", files=True, chat=True)
    transcript = make_transcript([*events, back])
    assert list_texts(transcript)[:2] == ["Prompt Do it.", "Answer One"]
    assert "Answer Two" not in list_texts(transcript) and "no file had changed. /redo" in list_texts(transcript)[-1]
    redone = make_transcript([*events, back, RuleAdded("x", "allow"), Redone("r1")])
    assert list_texts(redone)[: len(events)] == list_texts(make_transcript(events))
    assert not any("/redo" in text for text in list_texts(redone))
    only_files = make_transcript([*events, Rewound("r1", "t2", files=True, chat=False)])
    assert "Answer Two" in list_texts(only_files)


def test_the_newest_message_can_be_removed() -> None:
    events: list[AnyEvent] = [
        TURN_STARTED,
        replied(Text("One"), tool_call()),
        ToolEnded("c1", "Read", "success", "x"),
        TURN_ENDED,
    ]
    assert list_texts(make_transcript([*events, MessageRemoved()])) == ["Prompt Do it.", "End"]
    assert list_texts(make_transcript([*events, MessageRemoved(), MessageRemoved()])) == ["End"]
    assert list_texts(make_transcript([*events, *[MessageRemoved()] * 5])) == ["End"]


def test_an_injected_prompt_is_marked() -> None:
    transcript = make_transcript(
        [TURN_STARTED, replied(Text("One")), PromptInjected("p2", "Faster!", "edit_mode", turn="t1")]
    )
    block = transcript.blocks[-1]
    assert isinstance(block, PromptBlock) and block.is_injected and block.text == "Faster!"


def test_a_prompt_is_shown_by_its_display_text() -> None:
    transcript = make_transcript([TurnStarted("t1", "A long text of a command", "edit_mode", display_text="/review")])
    assert list_texts(transcript) == ["Prompt /review"]


def test_processes_and_commands_end_on_their_own_cards() -> None:
    transcript = make_transcript(
        [SpawnStarted("spawn-1", "c", "make watch"), SpawnFinished("spawn-1", "failed", 2, "boom")]
    )
    ended = [(b.key, b.status, b.code) for b in transcript.blocks if isinstance(b, ProcessBlock)]
    assert ended == [("spawn-1", "failed", 2)]
    live = TranscriptModel()
    live.add_command("x1", "make test")
    live.apply(Envelope(0, 1.0, "s", ToolProgressed("x1", "", "line")))
    assert live.blocks[0].is_animated
    live.apply(Envelope(1, 2.0, "s", ContextAdded("all of it", command="make test", id="x1")))
    assert len(live.blocks) == 1 and not live.blocks[0].is_animated


def test_a_sub_agent_has_a_card_with_its_activity_and_its_own_transcript() -> None:
    transcripts = TranscriptModels()
    transcripts.apply(Envelope(0, 1.0, "s", AgentStarted("agent-1", "Look at it", "ask_mode")))
    transcripts.apply(Envelope(1, 2.0, "s", ToolStarted("c1", "Grep", {}, "todo"), "agent-1"))
    card = transcripts[""].agents[0]
    assert (card.doing, card.calls, card.is_animated) == ("Grep todo", 1, True)
    assert [type(block) for block in transcripts["agent-1"].blocks] == [CallBlock]
    transcripts.apply(Envelope(2, 9.0, "s", AgentEnded("agent-1", "end_turn", "Found it.")))
    assert (card.answer, card.is_animated) == ("Found it.", False)


def test_the_card_of_a_sub_agent_replaces_its_call_and_counts_denied_calls() -> None:
    made = ToolCall("c9", "AgentTool", {"description": "look", "prompt": "Look at it"})
    events: list[AnyEvent] = [
        TURN_STARTED,
        replied(Text("One"), made, tool_call()),
        ToolStarted("c9", "AgentTool", made.args, "look"),
        AgentStarted("agent-1", "Look at it", "ask_mode", "look", "c9"),
        AgentEnded("agent-1", "end_turn", "Found it."),
        ToolEnded("c9", "AgentTool", "success", "Found it."),
        ToolEnded("c1", "Read", "success", "x"),
        TURN_ENDED,
    ]
    kinds = [type(block).__name__ for block in make_transcript(events).blocks]
    assert kinds == ["PromptBlock", "AnswerBlock", "AgentBlock", "CallBlock", "EndBlock"]
    assert [type(block).__name__ for block in make_transcript([*events, MessageRemoved()]).blocks] == [
        "PromptBlock",
        "EndBlock",
    ]
    transcripts = TranscriptModels()
    transcripts.apply(Envelope(0, 1.0, "s", AgentStarted("agent-1", "Look at it", "ask_mode")))
    for number, status in enumerate(("success", "denied")):
        if status == "success":
            transcripts.apply(Envelope(1, 2.0, "s", ToolStarted(f"g{number}", "Grep", {}), "agent-1"))
        transcripts.apply(Envelope(2, 2.0, "s", ToolEnded(f"g{number}", "Grep", status, "x"), "agent-1"))
    card = transcripts[""].agents[0]
    assert (card.calls, card.denied) == (1, 1)


def test_huge_results_are_shortened() -> None:
    text = shorten_output("line\n" * 100_000)
    assert len(text) < 61_000 and "lines not shown" in text


def test_changes_of_a_transcript_are_reported_once() -> None:
    transcript = make_transcript([TURN_STARTED])
    assert transcript.take_changes() == ({transcript.blocks[0]}, False)
    assert transcript.take_changes() == (set(), False)
    transcript.apply(Envelope(9, 9.0, "s", Warned("Mind this.")))
    changed, reshaped = transcript.take_changes()
    assert [type(block) for block in changed] == [NoticeBlock] and not reshaped


_EVENTS_BETWEEN = st.sampled_from(
    [RuleAdded("Bash(ls)", "allow"), RetryScheduled(1, 6, 0.1, "No.", "x"), SpawnStarted("s", "c", "ls")]
)


@st.composite
def _reply_events(draw: st.DrawFn, number: int) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Return the live events of one reply, with discarded attempts, and the events in its log."""
    live: list[AnyEvent] = []
    log: list[AnyEvent] = []
    for attempt in range(draw(st.integers(0, 2))):
        live += [
            ThinkingStarted(),
            ThinkingStreamed("no "),
            TextStreamed("nothing"),
            CallStreamed(f"x{number}{attempt}", "Read"),
        ]
        if draw(st.booleans()):
            early = CallSpeculated(f"x{number}{attempt}", "Read", {})
            live, log = [*live, early], [*log, early]
            gone = CallDiscarded(f"x{number}{attempt}", "Read", {}, "rollback")
            live, log = [*live, ReplyRolledBack("x"), gone], [*log, gone]
        elif draw(st.booleans()):
            discarded = ReplyDiscarded("cut off")
            live, log = [*live, discarded], [*log, discarded]
        else:
            live.append(ReplyRolledBack("x"))
    text, calls = draw(st.text("ab \n", max_size=8)), draw(st.integers(0, 2))
    made = [ToolCall(f"c{number}{index}", "Read", {"n": index}) for index in range(calls)]
    if draw(st.booleans()):
        live += [ThinkingStarted(), ThinkingStreamed("Hm"), ThinkingEnded("Hm", 1.0)]
        thought = [Thinking("Hm")]
    else:
        thought = []
    live += [TextStreamed(letter) for letter in text]
    for one in made:
        live.append(CallStreamed(one.id, one.name, chars=3))
        if draw(st.booleans()):
            beside = draw(_EVENTS_BETWEEN)
            live, log = [*live, beside], [*log, beside]
        if draw(st.booleans()):
            early = CallSpeculated(one.id, one.name, one.args)
            live, log = [*live, early], [*log, early]
    end = Replied(ReplyMessage((*thought, *([Text(text)] if text else []), *made)))
    results: list[AnyEvent] = []
    for one in made:
        results += [ToolStarted(one.id, one.name, one.args), ToolEnded(one.id, one.name, "success", "x")]
    queued: list[AnyEvent] = [CallQueued(one.id, one.name) for one in made]
    return [*live, end, *queued, *results], [*log, end, *results]


@pytest.mark.slow
@given(st.data())
def test_live_events_and_the_log_give_the_same_transcript(data: st.DataObject) -> None:
    live: list[AnyEvent] = []
    log: list[AnyEvent] = []
    for number in range(data.draw(st.integers(1, 3))):
        live, log = (
            [*live, TurnStarted(f"t{number}", "Go.", "edit_mode")],
            [*log, TurnStarted(f"t{number}", "Go.", "edit_mode")],
        )
        for step in range(data.draw(st.integers(1, 2))):
            seen, written = data.draw(_reply_events(number * 10 + step))
            live, log = [*live, *seen], [*log, *written]
        live, log = [*live, TurnEnded(f"t{number}", "end_turn")], [*log, TurnEnded(f"t{number}", "end_turn")]
    assert list_comparable_blocks(make_transcript(live)) == list_comparable_blocks(make_transcript(log))
