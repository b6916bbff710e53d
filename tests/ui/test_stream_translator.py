"""`StreamTranslator`: events become SDK messages, checked with the parser of the Claude SDK where it has one."""

import uuid
from typing import Any

import pytest
from claude_agent_sdk import AssistantMessage as SdkAssistant
from claude_agent_sdk import ResultMessage, SystemMessage, TextBlock, ThinkingBlock, ToolUseBlock
from claude_agent_sdk import UserMessage as SdkUser
from claude_agent_sdk._internal.message_parser import parse_message
from claude_agent_sdk.types import StreamEvent
from hypothesis import given
from hypothesis import strategies as st

from odin.core.call_events import (
    CallStreamed,
    Replied,
    ReplyRolledBack,
    RetryScheduled,
    TextStreamed,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UsageRecorded,
)
from odin.core.client import SessionInfo
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    Envelope,
    ModeChanged,
    ModelChanged,
    PermissionModeChanged,
    Redone,
    Rewound,
    TitleSet,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.message import ReplyMessage, Text, Thinking, ToolCall, Usage
from odin.ui.stream_json.translator import Raw, StreamTranslator, make_uuid

INFO = SessionInfo(
    session="s-1",
    cwd="/w",
    model="anthropic/m",
    version="0.1.0",
    mode="edit_mode",
    permission_mode="default",
    tools=("LS", "Read"),
)


def translate(*events: AnyEvent, partial: bool = False) -> list[Raw]:
    translator = StreamTranslator(INFO, partial=partial)
    envelopes = [Envelope(number, 0.0, "s-1", event) for number, event in enumerate(events)]
    return [message for envelope in envelopes for message in translator.translate(envelope)]


def make_reply(*parts: Text | Thinking | ToolCall, stop: Any = "end_turn") -> Replied:
    return Replied(ReplyMessage(parts, "anthropic", "m", stop))


START = TurnStarted("p1", "hello", "plan_mode")


def test_a_turn_with_a_tool_comes_in_the_documented_order() -> None:
    found = translate(
        START,
        UsageRecorded("anthropic/m", Usage(input=7, output=2, cache_read=3, cache_write=4, reasoning=5), 0.25, 1000),
        make_reply(Text("Looking."), ToolCall("c1", "Read", {"file_path": "/w/a"}), stop="tool_use"),
        ToolStarted("c1", "Read", {"file_path": "/w/a"}, "a"),
        ToolProgressed("c1", "Read", "half", 0.5),
        ToolEnded("c1", "Read", "success", "1\tx", note="read a", duration_ms=1500),
        UsageRecorded("anthropic/m", Usage(input=1, output=1), 0.5, 1000),
        make_reply(Text("Done.")),
        TurnEnded("p1", "end_turn", "Done.", 2, Usage(input=8, output=3), 0.75, 40, 30),
    )
    kinds = ["system", "assistant", "tool_progress", "tool_progress", "tool_progress", "user", "assistant", "result"]
    assert [message["type"] for message in found] == kinds
    assert {message["session_id"] for message in found} == {"s-1"}
    assert len({message["uuid"] for message in found}) == len(found)
    assert [message["elapsed_time_seconds"] for message in found[2:5]] == [0.0, 0.5, 1.5]
    assert found[1]["message"]["usage"] == {
        "input_tokens": 7,
        "output_tokens": 7,
        "cache_creation_input_tokens": 4,
        "cache_read_input_tokens": 3,
    }
    result = found[-1]
    assert result["subtype"] == "success"
    assert result["is_error"] is False
    assert result["errors"] == []
    assert (result["num_turns"], result["duration_ms"], result["duration_api_ms"]) == (2, 40, 30)
    assert result["total_cost_usd"] == 0.75
    assert result["usage"]["output_tokens"] == 8
    assert result["modelUsage"]["anthropic/m"]["costUSD"] == 0.75
    assert result["modelUsage"]["anthropic/m"]["contextWindow"] == 1000
    assert (result["exit_reason"], result["terminal_reason"], result["stop_reason"]) == (
        "end_turn",
        "completed",
        "end_turn",
    )


def test_sdk_parser_reads_every_message() -> None:
    found = translate(
        START,
        TextStreamed("Hi"),
        make_reply(Thinking("hm", "sig"), Text("Hi"), ToolCall("c1", "LS", {"path": "."}), stop="tool_use"),
        ToolStarted("c1", "LS", {"path": "."}),
        ToolEnded("c1", "LS", "denied", "no"),
        RetryScheduled(1, 6, 0.5, "slow down", "RateLimited"),
        Warned("careful"),
        TurnEnded("p1", "max_turns", "Hi", 1, error="The limit of model requests per prompt was reached."),
        partial=True,
    )
    parsed = [parse_message(message) for message in found]
    by_type = {type(message) for message in parsed}
    assert {SystemMessage, SdkAssistant, SdkUser, ResultMessage, StreamEvent} <= by_type
    assistant = next(message for message in parsed if isinstance(message, SdkAssistant))
    assert assistant.content == [ThinkingBlock("hm", "sig"), TextBlock("Hi"), ToolUseBlock("c1", "LS", {"path": "."})]
    assert assistant.model == "m"
    result = parsed[-1]
    assert isinstance(result, ResultMessage)
    assert result.subtype == "error_max_turns"
    assert result.is_error
    assert result.result == "Hi"
    denied = {"tool_name": "LS", "tool_use_id": "c1", "tool_input": {"path": "."}, "reason": "no"}
    assert result.permission_denials == [denied]
    assert result.errors is not None
    assert "--max-turns" in result.errors[0]


def test_init_describes_the_session_and_its_changes() -> None:
    init, status, _, later = translate(
        START, ModelChanged("openai/n"), TurnEnded("p1", "end_turn"), TurnStarted("p2", "x", "ask_mode")
    )
    assert (status["subtype"], status["model"]) == ("status", "openai/n")
    assert init["subtype"] == "init"
    assert (init["model"], init["cwd"], init["permissionMode"], init["mode"]) == (
        "anthropic/m",
        "/w",
        "plan",
        "plan_mode",
    )
    assert init["tools"] == ["LS", "Read"]
    assert init["mcp_servers"] == init["slash_commands"] == []
    assert (later["model"], later["mode"], later["permissionMode"]) == ("openai/n", "ask_mode", "default")
    assert (init["turn_id"], later["turn_id"]) == ("p1", "p2")


def test_only_warnings_are_warnings() -> None:
    careful, attached = translate(Warned("Careful."), Warned("Attached a.py, 6 lines.", "info"))
    assert (careful["subtype"], careful["text"]) == ("warning", "Careful.")
    assert (attached["subtype"], attached["content"], attached["level"]) == (
        "informational",
        "Attached a.py, 6 lines.",
        "info",
    )


def test_what_another_client_changes_is_told() -> None:
    title, mode, permission, rewound, redone = translate(
        TitleSet("Mine"),
        ModeChanged("ask_mode"),
        PermissionModeChanged("acceptEdits"),
        Rewound("r1", "p1", files=True, chat=True),
        Redone("r1"),
    )
    assert (title["subtype"], title["title"]) == ("status", "Mine")
    assert (mode["mode"], mode["permissionMode"]) == ("ask_mode", "default")
    assert permission["permissionMode"] == "acceptEdits"
    assert (rewound["subtype"], rewound["turn_id"], rewound["chat"]) == ("rewound", "p1", True)
    assert (redone["subtype"], redone["rewind_id"]) == ("redone", rewound["rewind_id"])


def test_refused_prompt_leaves_the_totals_of_the_running_turn() -> None:
    translator = StreamTranslator(INFO)
    spent = UsageRecorded("anthropic/m", Usage(input=7), 0.25, 1000)
    for number, event in enumerate((START, spent)):
        list(translator.translate(Envelope(number, 0.0, "s-1", event)))
    assert translator.make_failure("It is empty.", "EmptyPrompt", "p2")["total_cost_usd"] == 0
    (result,) = translator.translate(Envelope(2, 0.0, "s-1", TurnEnded("p1", "end_turn")))
    assert (result["turn_id"], result["total_cost_usd"]) == ("p1", 0.25)


def test_sub_agent_from_before_the_client_is_not_the_main_agent() -> None:
    (message,) = StreamTranslator(INFO).translate(Envelope(9, 0.0, "s-1", make_reply(Text("Hm.")), "general-1"))
    assert message["parent_tool_use_id"] == "general-1"


@pytest.mark.parametrize(
    ("reason", "subtype", "terminal"),
    [
        ("max_turns", "error_max_turns", "max_turns"),
        ("error_max_budget_usd", "error_max_budget_usd", "max_budget"),
        ("error", "error_during_execution", "api_error"),
        ("interrupted", "error_during_execution", "aborted_streaming"),
        ("aborted", "error_during_execution", "aborted_streaming"),
        ("max_tokens", "error_during_execution", "max_tokens"),
        ("loop_detected", "error_during_execution", "loop_detected"),
    ],
)
def test_every_unsuccessful_end_is_an_error_result(reason: Any, subtype: str, terminal: str) -> None:
    result = translate(START, TurnEnded("p1", reason, "so far", error_kind="Overloaded"))[-1]
    assert (result["subtype"], result["terminal_reason"], result["exit_reason"]) == (subtype, terminal, reason)
    assert result["is_error"] is True
    assert result["result"] == "so far"
    assert len(result["errors"]) == 1
    assert result["errors"][0]


def test_interrupt_during_a_tool_call_has_its_own_reason() -> None:
    cut = ToolEnded("c1", "Read", "cancelled", "interrupted")
    assert translate(START, cut, TurnEnded("p1", "interrupted"))[-1]["terminal_reason"] == "aborted_tools"


def test_permission_denials_are_listed_only_in_their_own_turn() -> None:
    denied = ToolEnded("c1", "WriteFile", "denied", "no")
    again = TurnStarted("p2", "x", "edit_mode")
    results = [
        message
        for message in translate(START, denied, TurnEnded("p1", "end_turn"), again, TurnEnded("p2", "end_turn"))
        if message["type"] == "result"
    ]
    assert [len(result["permission_denials"]) for result in results] == [1, 0]


def list_stream_events(messages: list[Raw]) -> list[Raw]:
    return [message["event"] for message in messages if message["type"] == "stream_event"]


def test_stream_events_need_partial_messages() -> None:
    assert not list_stream_events(translate(START, TextStreamed("a"), make_reply(Text("a"))))


def assemble(events: list[Raw]) -> list[list[Raw]]:
    """Return the content blocks that a client assembles from stream events; check that the events are well formed."""
    replies: list[list[Raw]] = []
    blocks: dict[int, Raw] = {}
    closed: set[int] = set()
    inside = False
    for event in events:
        kind = event["type"]
        if kind == "message_start":
            assert not inside
            inside = True
            blocks.clear()
            closed.clear()
            continue
        assert inside
        if kind == "content_block_start":
            assert event["index"] == len(blocks)
            blocks[event["index"]] = {**event["content_block"], "json": ""}
        elif kind == "content_block_delta":
            assert event["index"] not in closed
            _apply_delta(blocks[event["index"]], event["delta"])
        elif kind == "content_block_stop":
            assert event["index"] not in closed
            closed.add(event["index"])
        elif kind == "message_stop":
            assert closed == set(blocks)
            replies.append([dict(block) for block in blocks.values()])
            inside = False
        else:
            assert kind == "message_delta"
    assert not inside
    return replies


def _apply_delta(block: Raw, delta: Raw) -> None:
    if delta["type"] == "text_delta":
        block["text"] += delta["text"]
    elif delta["type"] == "thinking_delta":
        block["thinking"] += delta["thinking"]
    else:
        assert delta["type"] == "input_json_delta"
        block["json"] += delta["partial_json"]


def test_interleaved_calls_are_separate_blocks() -> None:
    found = translate(
        START,
        ThinkingStreamed("hm"),
        TextStreamed("a"),
        TextStreamed("b"),
        CallStreamed("c1", "Read", '{"x":', 5),
        CallStreamed("c2", "LS", "{", 1),
        CallStreamed("c1", "Read", "1}", 0, True, {"x": 1}),
        CallStreamed("c2", "LS", "}", 2),
        CallStreamed("c3", "Grep", "", 0, True, {"pattern": "é"}),
        make_reply(Text("ab"), stop="tool_use"),
        partial=True,
    )
    (blocks,) = assemble(list_stream_events(found))
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use", "tool_use"]
    assert blocks[1]["text"] == "ab"
    assert [block["json"] for block in blocks[2:]] == ['{"x":1}', "{}", '{"pattern":"é"}']
    assert found[-1]["type"] == "assistant"
    assert found[1]["event"]["message"]["id"] == found[-1]["message"]["id"]
    assert list_stream_events(found)[-2]["delta"]["stop_reason"] == "tool_use"


def test_a_reply_that_was_not_streamed_is_streamed_whole() -> None:
    found = translate(START, make_reply(Text("hi"), ToolCall("c", "LS", {"path": "/w"}), stop="tool_use"), partial=True)
    (blocks,) = assemble(list_stream_events(found))
    assert (blocks[0]["text"], blocks[1]["json"]) == ("hi", '{"path":"/w"}')


def test_rollback_is_reported_and_the_reply_starts_again() -> None:
    found = translate(
        START,
        TextStreamed("wro"),
        ReplyRolledBack("StreamCut"),
        TextStreamed("right"),
        make_reply(Text("right")),
        partial=True,
    )
    at = next(index for index, message in enumerate(found) if message.get("subtype") == "reply_discarded")
    assert found[at]["reason"] == "StreamCut"
    (blocks,) = assemble(list_stream_events(found[at:]))
    assert blocks[0]["text"] == "right"


def test_sub_agent_messages_name_their_call_and_count_in_the_costs() -> None:
    translator = StreamTranslator(INFO, partial=True)
    envelopes = [
        Envelope(0, 0.0, "s-1", START),
        Envelope(1, 0.0, "s-1", ToolStarted("c1", "AgentTool", {})),
        Envelope(1, 0.0, "s-1", ToolStarted("other", "AgentTool", {})),
        Envelope(2, 0.0, "s-1", AgentStarted("agent-1", "task", "ask_mode", "look", "c1")),
        Envelope(3, 0.0, "s-1", TurnStarted("agent-1", "task", "ask_mode"), "agent-1"),
        Envelope(3, 0.0, "s-1", TextStreamed("a"), "agent-1"),
        Envelope(4, 0.0, "s-1", UsageRecorded("anthropic/m", Usage(input=3), 0.5), "agent-1"),
        Envelope(5, 0.0, "s-1", make_reply(Text("a"), ToolCall("c2", "LS", {"path": "/"})), "agent-1"),
        Envelope(6, 0.0, "s-1", ToolEnded("c2", "LS", "denied", "no"), "agent-1"),
        Envelope(7, 0.0, "s-1", TurnEnded("agent-1", "end_turn", "a"), "agent-1"),
        Envelope(8, 0.0, "s-1", AgentEnded("agent-1", "end_turn", "a")),
        Envelope(8, 0.0, "s-1", ToolEnded("c1", "AgentTool", "success", "a")),
        Envelope(9, 0.0, "s-1", TurnEnded("p1", "end_turn", "done")),
    ]
    found = [message for envelope in envelopes for message in translator.translate(envelope)]
    assert [(message["type"], message.get("parent_tool_use_id")) for message in found] == [
        ("system", None),
        ("tool_progress", None),
        ("tool_progress", None),
        ("system", None),
        ("assistant", "c1"),
        ("tool_progress", "c1"),
        ("user", "c1"),
        ("system", None),
        ("tool_progress", None),
        ("user", None),
        ("result", None),
    ]
    told = [(item["subtype"], item["task_id"], item["tool_use_id"]) for item in found if "task_id" in item]
    assert told == [("task_started", "agent-1", "c1"), ("task_notification", "agent-1", "c1")]
    denied = {"tool_name": "LS", "tool_use_id": "c2", "tool_input": {"path": "/"}, "reason": "no"}
    assert found[-1]["permission_denials"] == [denied]
    assert (found[-1]["total_cost_usd"], found[-1]["usage"]["input_tokens"]) == (0.5, 3)


PIECES = st.lists(
    st.one_of(
        st.builds(TextStreamed, st.text(min_size=1)),
        st.builds(ThinkingStreamed, st.text(min_size=1)),
        st.builds(
            CallStreamed, st.sampled_from(["c1", "c2", "c3"]), st.just("Read"), st.text(), st.just(1), st.booleans()
        ),
    ),
    min_size=1,
)


@pytest.mark.slow
@given(PIECES)
def test_any_order_of_pieces_gives_well_formed_stream_events(pieces: list[AnyEvent]) -> None:
    (blocks,) = assemble(list_stream_events(translate(START, *pieces, make_reply(Text("x")), partial=True)))
    texts = "".join(block.get("text", "") for block in blocks)
    assert texts == "".join(piece.text for piece in pieces if isinstance(piece, TextStreamed))


def test_identifiers_are_valid_and_unique() -> None:
    made = {make_uuid() for _ in range(200)}
    assert len(made) == 200
    assert all(uuid.UUID(text).version == 4 and str(uuid.UUID(text)) == text for text in made)
