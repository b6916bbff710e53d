import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.message import Text, Thinking, ToolCall, Usage
from odin.core.provider import CallPiece, RollbackPiece, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from odin.core.reply import BadCall, ReplyBuilder, parse_object


def test_pieces_add_up_in_the_order_they_came() -> None:
    builder = ReplyBuilder("p", "m")
    for piece in (
        ThinkingPiece("hm"),
        ThinkingPiece(signature="sig"),
        TextPiece("a"),
        TextPiece("b"),
        CallPiece(0, "x", "LS"),
        CallPiece(1, "y", "Read", '{"a":'),
        CallPiece(0, json='{"path": "/"}', done=True),
        CallPiece(1, json="1}", done=True),
        UsagePiece(Usage(1)),
        UsagePiece(Usage(2, 3)),
        StopPiece("tool_use", "m-2"),
    ):
        builder.add(piece)
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
    builder.add(ThinkingPiece("dra"))
    builder.add(ThinkingPiece(final="the whole"))
    assert builder.finish().message.thinking == "the whole"


def test_an_interrupted_reply_keeps_text_and_never_a_call() -> None:
    builder = ReplyBuilder()
    builder.add(TextPiece("I will"))
    builder.add(CallPiece(0, "x", "LS", '{"path": "/"}', done=True))
    message = builder.finish(interrupted=True).message
    assert (message.text, message.calls, message.interrupted) == ("I will", (), True)


def test_broken_arguments_are_kept_apart() -> None:
    builder = ReplyBuilder()
    builder.add(CallPiece(0, "x", "LS", '{"path": "/'))
    reply = builder.finish()
    assert (reply.bad, reply.message.calls, reply.empty) == ((BadCall("LS", '{"path": "/'),), (), False)


def test_a_rollback_forgets_everything() -> None:
    builder = ReplyBuilder()
    builder.add(TextPiece("no"))
    builder.add(RollbackPiece("again"))
    assert not builder.started
    assert builder.finish().empty


def test_lone_surrogates_become_replacement_characters() -> None:
    assert parse_object('{"a": "x\\ud83dy", "\\ude00": [["\\ud83d"]]}') == {"a": "x\ufffdy", "\ufffd": [["\ufffd"]]}
    assert parse_object("[1]") is None
    assert parse_object("") == {}


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.text(max_size=5)))
def test_any_split_of_the_arguments_gives_the_same_call(args: dict[str, object]) -> None:
    raw = json.dumps(args)
    for cut in range(len(raw)):
        builder = ReplyBuilder()
        builder.add(CallPiece(0, "i", "T", raw[:cut]))
        builder.add(CallPiece(0, json=raw[cut:], done=True))
        (call,) = builder.finish().message.calls
        assert call.args == json.loads(raw)


def test_numbers_that_are_none_are_null():
    assert parse_object('{"timeout": NaN, "more": [Infinity, -Infinity]}') == {"timeout": None, "more": [None, None]}


@pytest.mark.parametrize("depth", [150, 900, 20_000])
def test_what_is_nested_too_deeply_is_no_object(depth: int):
    assert parse_object('{"a":' + "[" * depth + "]" * depth + "}") is None
    assert parse_object('{"a":"\\"' + "[" * depth + '"}') == {"a": '"' + "[" * depth}
