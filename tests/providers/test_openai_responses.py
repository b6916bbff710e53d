"""The Responses adapter: requests, reasoning, streamed replies and errors."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.core.errors import (
    BadRequest,
    ContextOverflow,
    Overloaded,
    QuotaExhausted,
)
from odin.core.message import (
    Message,
    PromptMessage,
    ReplyMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
)
from odin.core.provider import CallChunk, Request, StopChunk, TextChunk, ThinkingChunk, UsageChunk
from odin.providers.http import HttpClient
from odin.providers.openai_responses import ResponsesProvider, encode_request
from odin.providers.wire import WireOptions
from odin.testing import ScriptedServer, call, fault, reply, say
from tests.waiting import LIMIT_S

from .histories import (
    TOOLS,
    hold_conversation,
    join_messages,
    list_request_prefixes,
    make_script,
    reply_kinds,
    steps,
    strip_closing_brackets,
)
from .servers import collect, get_reply

MODEL = "gpt-5"
PLAIN = "gpt-4.1"
PROMPT = (PromptMessage("hi"),)
SEALED = '{"id":"rs_1","encrypted_content":"zzz"}'


@asynccontextmanager
async def open_provider(url: str) -> AsyncGenerator[ResponsesProvider]:
    http = HttpClient({})
    try:
        yield ResponsesProvider(
            name="openai", base_url=url, api_key="k", http=http, options=WireOptions(idle_timeout=LIMIT_S)
        )
    finally:
        await http.close()


def make_body(request: Request) -> dict[str, Any]:
    return json.loads(encode_request(request, "openai"))


# --- the request ---


def test_request_is_encoded_exactly() -> None:
    history: tuple[Message, ...] = (
        PromptMessage("fix it", ("mode: edit",)),
        ReplyMessage((Thinking("hm", SEALED), Text("I look."), ToolCall("call_1", "Read", {"file_path": "/x"}))),
        ToolMessage((ToolResult("call_1", "no such file", True),), ("the file is new",)),
    )
    raw = encode_request(Request(PLAIN, history, ("identity", "rules"), TOOLS[:1], 1000, 0.5), "openai")
    assert raw.decode() == (
        '{"model":"gpt-4.1","stream":true,"store":false,"max_output_tokens":1000,"temperature":0.5,'
        '"tools":[{"type":"function","name":"Read","description":"Read a file.","parameters":{"type":"object",'
        '"properties":{"file_path":{"type":"string"}}},"strict":false}],'
        '"instructions":"identity\\n\\nrules",'
        '"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"},'
        '{"type":"input_text","text":"mode: edit"}]},'
        '{"type":"message","role":"assistant","content":"I look."},'
        '{"type":"function_call","call_id":"call_1","name":"Read","arguments":"{\\"file_path\\":\\"/x\\"}"},'
        '{"type":"function_call_output","call_id":"call_1","output":"Error: no such file"},'
        '{"type":"message","role":"user","content":[{"type":"input_text","text":"the file is new"}]}]}'
    )


def seal_thinking(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages with encrypted thinking, which can be sent back."""
    return tuple(
        ReplyMessage(
            tuple(Thinking(p.text, SEALED if p.signature else "") if isinstance(p, Thinking) else p for p in m.parts),
            m.provider,
            m.model,
        )
        if isinstance(m, ReplyMessage)
        else m
        for m in messages
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(steps("here", MODEL, True), min_size=2, max_size=4).map(join_messages).map(seal_thinking))
def test_request_in_a_tool_loop_starts_with_the_bytes_of_the_previous_one(steps_taken: tuple[Message, ...]) -> None:
    history = (PromptMessage("go"), *steps_taken)
    bodies = [
        encode_request(Request(MODEL, part, (), TOOLS, thinking=2000), "here")
        for part in list_request_prefixes(history)
    ]
    for earlier, later in pairwise(bodies):
        assert later.startswith(strip_closing_brackets(earlier))


@pytest.mark.parametrize(
    ("model", "thinking", "wanted"),
    [
        (PLAIN, 0, {"temperature": 0.2}),
        (PLAIN, 5000, {"temperature": 0.2}),
        (MODEL, 0, {"include": ["reasoning.encrypted_content"]}),
        (
            MODEL,
            5000,
            {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"}},
        ),
        (
            "some-model",
            50_000,
            {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high", "summary": "auto"}},
        ),
        ("gpt-5-chat-latest", 0, {"temperature": 0.2}),
    ],
)
def test_reasoning_is_requested_in_the_form_of_the_model(model: str, thinking: int, wanted: dict[str, Any]) -> None:
    found = make_body(Request(model, PROMPT, thinking=thinking, temperature=0.2))
    assert {key: found[key] for key in ("include", "reasoning", "temperature") if key in found} == wanted


def test_schema_is_sent_as_text_format_and_a_small_token_limit_is_raised() -> None:
    shape = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = make_body(Request(PLAIN, PROMPT, schema=shape, max_tokens=3))
    assert found["text"] == {"format": {"type": "json_schema", "name": "reply", "schema": shape, "strict": False}}
    assert found["max_output_tokens"] == 16


def make_history(*parts: Text | Thinking | ToolCall, who: str = "openai", model: str = MODEL) -> tuple[Message, ...]:
    return (*PROMPT, ReplyMessage(parts, who, model), ToolMessage((ToolResult("c", "x"),)))


def list_item_types(request: Request) -> list[str]:
    return [item["type"] for item in make_body(request)["input"]]


LOOK = ToolCall("c", "Read", {})
ANSWER = ReplyMessage((Text("done"),), "openai", MODEL)


def test_reasoning_is_sent_back_in_a_tool_loop() -> None:
    found = make_body(Request(MODEL, make_history(Thinking("why", SEALED), LOOK)))["input"][1]
    assert found == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "why"}],
        "encrypted_content": "zzz",
    }


@pytest.mark.parametrize(("model", "is_kept"), [("gpt-5.5", False), ("gpt-5.6", True), ("gpt-6.1-sol", True)])
def test_reasoning_of_earlier_turns_is_sent_to_models_that_keep_it(model: str, is_kept: bool) -> None:
    earlier = make_history(Thinking("why", SEALED), LOOK, model=model)
    answer = ReplyMessage((Text("done"),), "openai", model)
    types = list_item_types(Request(model, (*earlier, answer, PromptMessage("and?"))))
    assert ("reasoning" in types) == is_kept


@pytest.mark.parametrize(
    "request_",
    [
        Request(PLAIN, make_history(Thinking("why", SEALED), LOOK, model=PLAIN)),
        Request("gpt-5-mini", make_history(Thinking("why", SEALED), LOOK)),
        Request(MODEL, make_history(Thinking("why", SEALED), LOOK, who="elsewhere")),
        Request(MODEL, (*make_history(Thinking("why", SEALED), LOOK), ANSWER, PromptMessage("and?"))),
        Request(MODEL, make_history(Thinking("why", "signature of another API"), LOOK)),
        Request(MODEL, make_history(Thinking("why"), LOOK)),
        Request(MODEL, make_history(LOOK, Thinking("why", SEALED))),
    ],
    ids=["plain model", "another model", "another provider", "a new prompt", "not ours", "unsealed", "led to nothing"],
)
def test_reasoning_is_not_sent_back_otherwise(request_: Request) -> None:
    assert "reasoning" not in list_item_types(request_)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reply_kinds)
def test_server_accepts_any_conversation_with_reasoning(kinds: tuple[str, ...]) -> None:
    """The server made every thought and call, so it can check that they come back as required."""

    async def ask() -> None:
        async with open_provider(server.openai_url) as openai:
            await hold_conversation(openai, kinds, lambda history: Request(MODEL, history, (), TOOLS, thinking=2000))

    with ScriptedServer(make_script(kinds)) as server:
        asyncio.run(ask())
        assert server.rejected == []
        assert len(server.requests) == len(kinds)


# --- the answer ---


@pytest.mark.parametrize("then", [(), (ReplyMessage((Thinking("cut", SEALED),), "openai", MODEL),)])
async def test_turn_that_ended_in_the_tool_loop_can_be_continued(then: tuple[Message, ...]) -> None:
    with ScriptedServer([reply("", [call("Read", {})], "hmm"), say("done")]) as server:
        async with open_provider(server.openai_url) as openai:
            first, _ = await get_reply(openai, Request(MODEL, PROMPT, (), TOOLS, thinking=2000))
            results = ToolMessage((ToolResult(first.calls[0].id, "ok"),))
            history = (*PROMPT, first, results, *then, PromptMessage("go on"))
            final, _ = await get_reply(openai, Request(MODEL, history, (), TOOLS, thinking=2000))
        assert server.rejected == []
        items = server.requests[1].json["input"]
    assert final.text == "done"
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]


@pytest.mark.parametrize("thinking", [0, 5000])
async def test_reply_has_reasoning_text_calls_and_usage(thinking: int) -> None:
    turn = reply(
        "let me",
        [call("Read", {"file_path": "/ü"}), call("Grep", {})],
        "first\n\nsecond",
        usage=Usage(input=10, output=7, cache_read=3, reasoning=2),
    )
    with ScriptedServer([turn, say("done")]) as server:
        async with open_provider(server.openai_url) as openai:
            message, usage = await get_reply(openai, Request(MODEL, PROMPT, (), TOOLS, thinking=thinking))
            results = ToolMessage(tuple(ToolResult(one.id, "ok") for one in message.calls))
            history = (*PROMPT, message, results)
            final, _ = await get_reply(openai, Request(MODEL, history, (), TOOLS, thinking=thinking))
        assert server.rejected == []
        assert server.requests[1].json["input"][1]["type"] == "reasoning"
    assert [type(part) for part in message.parts] == [Thinking, Text, ToolCall, ToolCall]
    assert message.thinking == "first\n\nsecond"
    assert [one.args for one in message.calls] == [{"file_path": "/ü"}, {}]
    assert (message.stop, message.model) == ("tool_use", MODEL)
    assert usage == Usage(input=10, output=7, cache_read=3, reasoning=2)
    assert (final.text, final.stop) == ("done", "end_turn")


async def list_pieces(*events: dict[str, Any]) -> list[Any]:
    raw = b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)
    with ScriptedServer([fault(200, {"content-type": "text/event-stream"}, raw)]) as server:
        async with open_provider(server.openai_url) as openai:
            return await collect(openai, Request(MODEL, PROMPT))


def make_end_event(kind: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"model": "gpt-5-2025-08-07", "status": kind, **response}}


def make_item(kind: str, index: int, when: str = "done", **rest: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{when}", "output_index": index, "item": {"type": kind, **rest}}


@pytest.mark.parametrize(
    ("event", "stop"),
    [
        (make_end_event(), "end_turn"),
        (make_end_event("incomplete", incomplete_details={"reason": "max_output_tokens"}), "max_tokens"),
        (make_end_event("incomplete", incomplete_details=None), "max_tokens"),
        (make_end_event("incomplete", incomplete_details={"reason": "content_filter"}), "refusal"),
    ],
)
async def test_stop_reasons_are_translated(event: dict[str, Any], stop: str) -> None:
    pieces = await list_pieces(event)
    assert pieces == [UsageChunk(Usage()), StopChunk(stop, MODEL)]  # pyright: ignore[reportArgumentType]


async def test_finished_item_supplies_what_no_delta_sent() -> None:
    pieces = await list_pieces(
        make_item("reasoning", 0, id="rs_9", summary=[{"text": "a"}, {"text": "b"}], encrypted_content="zz"),
        make_item("message", 1, content=[{"type": "output_text", "text": "hello"}]),
        make_item("function_call", 2, call_id="", name="Read", arguments={"file_path": "/x"}),
        make_item("web_search_call", 3, id="ws"),
        make_end_event(),
    )
    assert pieces[0] == ThinkingChunk(final="a\n\nb", signature='{"id":"rs_9","encrypted_content":"zz"}')
    assert pieces[1] == TextChunk("hello")
    assert pieces[2:4] == [CallChunk(0, "", "Read"), CallChunk(0, json='{"file_path":"/x"}', done=True)]
    assert pieces[-1].reason == "tool_use"


async def test_summary_parts_become_paragraphs_and_the_final_text_wins() -> None:
    pieces = await list_pieces(
        {"type": "response.reasoning_summary_part.added", "output_index": 0},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "a"},
        {"type": "response.reasoning_summary_part.added", "output_index": 0},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "b"},
        make_item("reasoning", 0, id="rs_9", summary=[{"text": "a"}, {"text": "b!"}], encrypted_content="zz"),
        {"type": "response.something_new", "output_index": 0, "delta": {"odd": 1}},
        make_end_event(usage={"input_tokens": 5, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 3}}),
    )
    assert [piece.text for piece in pieces[:3]] == ["a", "\n\n", "b"]
    assert pieces[3].final == "a\n\nb!"
    assert pieces[-2] == UsageChunk(Usage(input=5, reasoning=3))


async def test_a_call_cut_short_by_the_limit_is_not_marked_complete() -> None:
    pieces = await list_pieces(
        make_item("function_call", 0, "added", call_id="c", name="Read", arguments=""),
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a'},
        make_end_event("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    assert [piece for piece in pieces if isinstance(piece, CallChunk)] == [
        CallChunk(0, "c", "Read"),
        CallChunk(0, json='{"a'),
    ]
    assert pieces[-1].reason == "max_tokens"


async def test_refusal_becomes_text_and_stop_reason() -> None:
    pieces = await list_pieces({"type": "response.refusal.delta", "output_index": 0, "delta": "No."}, make_end_event())
    assert pieces[0] == TextChunk("No.")
    assert pieces[-1].reason == "refusal"


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (make_end_event("failed", error={"code": "server_error", "message": "oops"}), Overloaded),
        (make_end_event("failed", error={"code": "insufficient_quota", "message": "no more"}), QuotaExhausted),
        (make_end_event("failed", error={"code": "context_length_exceeded", "message": "long"}), ContextOverflow),
        (make_end_event("failed", error={"code": "invalid_prompt", "message": "no"}), BadRequest),
        ({"type": "error", "code": "server_error", "message": "oops"}, Overloaded),
        ({"type": "error", "error": {"type": "invalid_request_error", "code": None, "message": "no"}}, BadRequest),
    ],
)  # fmt: skip
async def test_error_in_the_stream_is_raised(event: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        await list_pieces({"type": "response.created", "response": {"model": MODEL}}, event)
