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
from odin.ui.tui.blocks import (
    AnswerBlock,
    CallBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    shorten_output,
)
from odin.ui.tui.transcript_model import TranscriptModel, TranscriptModels
from tests.tui.stories import story_of, told

ASK = TurnStarted("t1", "Do it.", "edit_mode")
END = TurnEnded("t1", "end_turn")


def replied(*parts: Any, interrupted: bool = False) -> Replied:
    return Replied(ReplyMessage(parts, interrupted=interrupted))


def call(number: int = 1, **args: Any) -> ToolCall:
    return ToolCall(f"c{number}", "Read", args)


def texts(story: TranscriptModel) -> list[str]:
    return [f"{type(block).__name__[:-5]} {getattr(block, 'text', '')}".strip() for block in story.blocks]


def the_call(story: TranscriptModel) -> CallBlock:
    return next(block for block in story.blocks if isinstance(block, CallBlock))


def test_a_reply_that_was_streamed_is_the_reply_that_was_finished() -> None:
    live = [
        ThinkingStarted(),
        ThinkingStreamed("Hm"),
        ThinkingEnded("Hm.", 2.0),
        TextStreamed("I "),
        TextStreamed("go"),
    ]
    written = [CallStreamed("c1", "Read", chars=12), CallStreamed("c1", "Read", done=True, args={"a": 1})]
    end = replied(Thinking("Hm."), Text("I go"), call(a=1))
    streamed, read = story_of([ASK, *live, *written, end]), story_of([ASK, end])
    assert told(streamed) == told(read)
    thought = streamed.blocks[1]
    assert isinstance(thought, ReasoningBlock) and thought.seconds == 2.0 and not thought.live


def test_a_rollback_takes_the_unfinished_text_and_calls_away() -> None:
    story = story_of(
        [ASK, TextStreamed("half an ans"), CallStreamed("c1", "Read", chars=3), ReplyRolledBack("overloaded")]
    )
    assert texts(story) == ["Prompt Do it."]
    story = story_of(
        [ASK, TextStreamed("half"), ReplyDiscarded("cut off"), TextStreamed("whole"), replied(Text("whole"))]
    )
    assert texts(story) == ["Prompt Do it.", "Answer whole"]


def test_what_was_never_finished_was_never_said() -> None:
    story = story_of([ASK, TextStreamed("half"), TurnEnded("t1", "error", error="It broke.")])
    assert texts(story) == ["Prompt Do it.", "End"]


def test_the_chars_of_a_call_are_counted_until_its_arguments_are_there() -> None:
    story = story_of([ASK, CallStreamed("c1", "WriteFile", chars=1234)])
    assert (the_call(story).state, the_call(story).chars) == ("writing", 1234)
    done = story_of(
        [ASK, CallStreamed("c1", "WriteFile", chars=1234), CallStreamed("c1", "WriteFile", done=True, args={})]
    )
    assert the_call(done).chars == 0
    early = story_of([ASK, CallStreamed("c1", "WriteFile", chars=9), CallSpeculated("c1", "WriteFile", {"path": "a"})])
    assert (the_call(early).state, the_call(early).chars) == ("running", 0)


def test_a_queued_call_is_not_running_until_it_starts() -> None:
    events: list[AnyEvent] = [ASK, replied(call()), CallQueued("c1", "Read")]
    assert not the_call(story_of(events)).is_animated
    events.append(ToolStarted("c1", "Read", {}))
    assert the_call(story_of(events)).is_animated
    events.append(ToolProgressed("c1", "Read", "one\ntwo"))
    assert the_call(story_of(events)).tail == ["one", "two"]
    events.append(ToolEnded("c1", "Read", "success", "text", duration_ms=5))
    ended = the_call(story_of(events))
    assert (ended.state, ended.tail, ended.result, ended.is_animated) == ("success", [], "text", False)


def test_a_call_that_waits_for_an_answer_and_is_denied_says_why() -> None:
    asked: list[AnyEvent] = [ASK, replied(call()), PermissionAsked("a", "c1", "Read", {}, "outside")]
    assert the_call(story_of(asked)).state == "asking"
    denied = [*asked, PermissionAnswered("a", "c1", False, reason="not that"), ToolEnded("c1", "Read", "denied", "no")]
    block = the_call(story_of(denied))
    assert (block.state, block.explanation) == ("denied", "denied by you: not that")
    hooked = [ASK, replied(call()), HookRan("tool_call", "guard", "denied", "secret", "c1"), denied[-1]]
    assert the_call(story_of(hooked)).explanation == "denied by hook guard: secret"
    ruled = "Denied by rule Bash(rm:*) (project). Remove the rule to allow it."
    by_rule = [ASK, replied(call()), ToolEnded("c1", "Read", "denied", f"{ruled} Nothing was done.")]
    assert the_call(story_of(by_rule)).explanation == ruled


def test_changed_arguments_and_what_was_taken_out_are_known() -> None:
    audit = Audit({"path": "a"}, {"path": "b"}, "user")
    ended = ToolEnded("c1", "Read", "success", "x", audit=audit, redacted=("a key",))
    block = the_call(story_of([ASK, replied(call(path="a")), ended]))
    assert (block.args, block.original_args, block.changed_by, block.redacted) == (
        {"path": "b"},
        {"path": "a"},
        "user",
        ("a key",),
    )


def test_an_early_call_that_does_not_count_keeps_its_card() -> None:
    begun = CallSpeculated("c1", "WriteFile", {"path": "a"})
    gone = CallDiscarded("c1", "WriteFile", {"path": "a"}, "rollback")
    live = story_of(
        [ASK, TextStreamed("I wr"), begun, ReplyRolledBack("x"), gone, TextStreamed("No."), replied(Text("No."))]
    )
    log = story_of([ASK, begun, gone, replied(Text("No."))])
    assert told(live) == told(log)
    assert texts(live) == ["Prompt Do it.", "Call", "Answer No."]
    assert (the_call(live).state, the_call(live).explanation) == ("discarded", "the reply was restarted")


def test_an_early_call_that_counts_becomes_part_of_the_reply() -> None:
    begun = CallSpeculated("c1", "Read", {"path": "a"})
    story = story_of(
        [ASK, TextStreamed("I read"), begun, replied(Text("I read"), call(path="a")), ToolStarted("c1", "Read", {})]
    )
    assert texts(story) == ["Prompt Do it.", "Answer I read", "Call"]
    assert the_call(story).state == "running"


def test_what_is_said_beside_a_reply_stands_above_it_live_and_later() -> None:
    rule = RuleAdded("Bash(ls)", "allow")
    live = story_of([ASK, TextStreamed("I am wri"), rule, TextStreamed("ting"), replied(Text("I am writing"))])
    assert told(live) == told(story_of([ASK, rule, replied(Text("I am writing"))]))
    assert [type(block) for block in live.blocks] == [PromptBlock, NoticeBlock, AnswerBlock]


def test_retries_are_one_notice_that_ends_in_the_past() -> None:
    tries = [RetryScheduled(number, 6, 1.0, "Overloaded.", "overloaded") for number in (1, 2, 3)]
    waiting = story_of([ASK, *tries])
    assert texts(waiting)[1:] == ["Notice Attempt 3 of 6 failed: Overloaded. Retrying in 1.0 s."]
    assert texts(story_of([ASK, *tries, replied(Text("Hi"))]))[1:] == [
        "Notice The request failed 3 times (Overloaded), then the model answered.",
        "Answer Hi",
    ]
    assert "gave up" in texts(story_of([ASK, *tries, TurnEnded("t1", "error", error="no")]))[1]
    assert "then it was stopped" in texts(story_of([ASK, *tries, TurnEnded("t1", "interrupted")]))[1]


def test_calls_that_never_ended_are_cancelled_with_their_turn() -> None:
    story = story_of([ASK, replied(call()), ToolStarted("c1", "Read", {}), TurnEnded("t1", "interrupted")])
    assert the_call(story).state == "cancelled"


def test_a_rewind_takes_blocks_away_and_its_redo_brings_them_back() -> None:
    second = TurnStarted("t2", "And this.", "edit_mode")
    events: list[AnyEvent] = [ASK, replied(Text("One")), END, second, replied(Text("Two")), TurnEnded("t2", "end_turn")]
    back = Rewound("r1", "t2", files=True, chat=True)
    story = story_of([*events, back])
    assert texts(story)[:2] == ["Prompt Do it.", "Answer One"]
    assert "Answer Two" not in texts(story) and "no file had changed. /redo" in texts(story)[-1]
    again = story_of([*events, back, RuleAdded("x", "allow"), Redone("r1")])
    assert texts(again)[: len(events)] == texts(story_of(events))
    assert not any("/redo" in text for text in texts(again))
    only_files = story_of([*events, Rewound("r1", "t2", files=True, chat=False)])
    assert "Answer Two" in texts(only_files)


def test_the_newest_message_can_be_taken_out() -> None:
    events: list[AnyEvent] = [ASK, replied(Text("One"), call()), ToolEnded("c1", "Read", "success", "x"), END]
    assert texts(story_of([*events, MessageRemoved()])) == ["Prompt Do it.", "End"]
    assert texts(story_of([*events, MessageRemoved(), MessageRemoved()])) == ["End"]
    assert texts(story_of([*events, *[MessageRemoved()] * 5])) == ["End"]


def test_a_joined_prompt_is_told_apart() -> None:
    story = story_of([ASK, replied(Text("One")), PromptInjected("p2", "Faster!", "edit_mode", "t1")])
    block = story.blocks[-1]
    assert isinstance(block, PromptBlock) and block.is_injected and block.text == "Faster!"


def test_what_people_see_of_a_prompt_may_be_less_than_the_model_reads() -> None:
    story = story_of([TurnStarted("t1", "A long text of a command", "edit_mode", display_text="/review")])
    assert texts(story) == ["Prompt /review"]


def test_processes_and_commands_end_on_their_own_cards() -> None:
    story = story_of([SpawnStarted("spawn-1", "c", "make watch"), SpawnFinished("spawn-1", "failed", 2, "boom")])
    ended = [(b.key, b.status, b.code) for b in story.blocks if isinstance(b, ProcessBlock)]
    assert ended == [("spawn-1", "failed", 2)]
    live = TranscriptModel()
    live.add_command("x1", "make test")
    live.apply(Envelope(0, 1.0, "s", ToolProgressed("x1", "", "line")))
    assert live.blocks[0].is_animated
    live.apply(Envelope(1, 2.0, "s", ContextAdded("all of it", command="make test", id="x1")))
    assert len(live.blocks) == 1 and not live.blocks[0].is_animated


def test_a_sub_agent_has_a_card_with_what_it_does_and_a_story_of_its_own() -> None:
    stories = TranscriptModels()
    stories.apply(Envelope(0, 1.0, "s", AgentStarted("agent-1", "Look at it", "ask_mode")))
    stories.apply(Envelope(1, 2.0, "s", ToolStarted("c1", "Grep", {}, "todo"), "agent-1"))
    card = stories[""].agents[0]
    assert (card.doing, card.calls, card.is_animated) == ("Grep todo", 1, True)
    assert [type(block) for block in stories["agent-1"].blocks] == [CallBlock]
    stories.apply(Envelope(2, 9.0, "s", AgentEnded("agent-1", "end_turn", "Found it.")))
    assert (card.answer, card.is_animated) == ("Found it.", False)


def test_a_sub_agent_stands_in_place_of_its_call_and_counts_what_was_denied() -> None:
    made = ToolCall("c9", "AgentTool", {"description": "look", "prompt": "Look at it"})
    events: list[AnyEvent] = [
        ASK,
        replied(Text("One"), made, call()),
        ToolStarted("c9", "AgentTool", made.args, "look"),
        AgentStarted("agent-1", "Look at it", "ask_mode", "look", "c9"),
        AgentEnded("agent-1", "end_turn", "Found it."),
        ToolEnded("c9", "AgentTool", "success", "Found it."),
        ToolEnded("c1", "Read", "success", "x"),
        END,
    ]
    kinds = [type(block).__name__ for block in story_of(events).blocks]
    assert kinds == ["PromptBlock", "AnswerBlock", "AgentBlock", "CallBlock", "EndBlock"]
    assert [type(block).__name__ for block in story_of([*events, MessageRemoved()]).blocks] == [
        "PromptBlock",
        "EndBlock",
    ]
    stories = TranscriptModels()
    stories.apply(Envelope(0, 1.0, "s", AgentStarted("agent-1", "Look at it", "ask_mode")))
    for number, status in enumerate(("success", "denied")):
        if status == "success":
            stories.apply(Envelope(1, 2.0, "s", ToolStarted(f"g{number}", "Grep", {}), "agent-1"))
        stories.apply(Envelope(2, 2.0, "s", ToolEnded(f"g{number}", "Grep", status, "x"), "agent-1"))
    card = stories[""].agents[0]
    assert (card.calls, card.denied) == (1, 1)


def test_huge_results_are_kept_in_part() -> None:
    text = shorten_output("line\n" * 100_000)
    assert len(text) < 61_000 and "lines not shown" in text


def test_a_story_tells_what_changed_once() -> None:
    story = story_of([ASK])
    assert story.take_changes() == ({story.blocks[0]}, False)
    assert story.take_changes() == (set(), False)
    story.apply(Envelope(9, 9.0, "s", Warned("Mind this.")))
    changed, reshaped = story.take_changes()
    assert [type(block) for block in changed] == [NoticeBlock] and not reshaped


_BESIDE = st.sampled_from(
    [RuleAdded("Bash(ls)", "allow"), RetryScheduled(1, 6, 0.1, "No.", "x"), SpawnStarted("s", "c", "ls")]
)


@st.composite
def _reply(draw: st.DrawFn, number: int) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """The live events of one reply, with discarded attempts, and the events in its log."""
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
            beside = draw(_BESIDE)
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
def test_live_and_log_end_the_same(data: st.DataObject) -> None:
    live: list[AnyEvent] = []
    log: list[AnyEvent] = []
    for number in range(data.draw(st.integers(1, 3))):
        live, log = (
            [*live, TurnStarted(f"t{number}", "Go.", "edit_mode")],
            [*log, TurnStarted(f"t{number}", "Go.", "edit_mode")],
        )
        for step in range(data.draw(st.integers(1, 2))):
            seen, written = data.draw(_reply(number * 10 + step))
            live, log = [*live, *seen], [*log, *written]
        live, log = [*live, TurnEnded(f"t{number}", "end_turn")], [*log, TurnEnded(f"t{number}", "end_turn")]
    assert told(story_of(live)) == told(story_of(log))
