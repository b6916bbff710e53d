"""Building a reply from streamed chunks, and parsing the arguments of calls."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.message import Text, Thinking, ToolCall, Usage
from odin.core.provider import (
    CallChunk,
    MalformedCall,
    ReplyBuilder,
    RollbackChunk,
    StopChunk,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
    parse_arguments,
)


def test_chunks_become_parts_in_order() -> None:
    builder = ReplyBuilder("p", "m")
    for chunk in (
        ThinkingChunk("hm"),
        ThinkingChunk(signature="sig"),
        TextChunk("a"),
        TextChunk("b"),
        CallChunk(0, "x", "LS"),
        CallChunk(1, "y", "Read", '{"a":'),
        CallChunk(0, json='{"path": "/"}', done=True),
        CallChunk(1, json="1}", done=True),
        UsageChunk(Usage(1)),
        UsageChunk(Usage(2, 3)),
        StopChunk("tool_use", "m-2"),
    ):
        builder.add(chunk)
    reply = builder.finish()
    assert reply.message.parts == (
        Thinking("hm", "sig"),
        Text("ab"),
        ToolCall("x", "LS", {"path": "/"}),
        ToolCall("y", "Read", {"a": 1}),
    )
    assert (reply.usage, reply.message.stop, reply.message.model) == (Usage(2, 3), "tool_use", "m-2")


def test_the_final_thinking_text_wins() -> None:
    builder = ReplyBuilder()
    builder.add(ThinkingChunk("dra"))
    builder.add(ThinkingChunk(final="the whole"))
    assert builder.finish().message.thinking == "the whole"


def test_interrupted_reply_keeps_text_but_no_call() -> None:
    builder = ReplyBuilder()
    builder.add(TextChunk("I will"))
    builder.add(CallChunk(0, "x", "LS", '{"path": "/"}', done=True))
    message = builder.finish(interrupted=True).message
    assert (message.text, message.calls, message.interrupted) == ("I will", (), True)


def test_broken_arguments_become_a_malformed_call() -> None:
    builder = ReplyBuilder()
    builder.add(CallChunk(0, "x", "LS", '{"path": "/'))
    reply = builder.finish()
    assert (reply.malformed_calls, reply.message.calls, reply.is_empty) == (
        (MalformedCall("LS", '{"path": "/'),),
        (),
        False,
    )


def test_rollback_discards_the_reply_so_far() -> None:
    builder = ReplyBuilder()
    builder.add(TextChunk("no"))
    builder.add(RollbackChunk("again"))
    assert not builder.has_started
    assert builder.finish().is_empty


def test_lone_surrogates_become_replacement_characters() -> None:
    assert parse_arguments('{"a": "x\\ud83dy", "\\ude00": [["\\ud83d"]]}') == {"a": "x\ufffdy", "\ufffd": [["\ufffd"]]}
    assert parse_arguments("[1]") is None
    assert parse_arguments("") == {}


@pytest.mark.slow
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.text(max_size=5)))
def test_any_split_of_the_arguments_gives_the_same_call(args: dict[str, object]) -> None:
    raw = json.dumps(args)
    for cut in range(len(raw)):
        builder = ReplyBuilder()
        builder.add(CallChunk(0, "i", "T", raw[:cut]))
        builder.add(CallChunk(0, json=raw[cut:], done=True))
        (call,) = builder.finish().message.calls
        assert call.args == json.loads(raw)


def test_nan_and_infinity_become_null():
    assert parse_arguments('{"timeout": NaN, "more": [Infinity, -Infinity]}') == {"timeout": None, "more": [None, None]}


@pytest.mark.parametrize("depth", [150, 900, 20_000])
def test_deeply_nested_arguments_are_rejected(depth: int):
    assert parse_arguments('{"a":' + "[" * depth + "]" * depth + "}") is None
    assert parse_arguments('{"a":"\\"' + "[" * depth + '"}') == {"a": '"' + "[" * depth}
