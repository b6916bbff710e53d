"""The Chat Completions adapter: requests, streamed replies, usage and errors."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odin.core.errors import BadRequest, ContextOverflow, Overloaded, RateLimited
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
from odin.core.provider import CallChunk, ReplyBuilder, Request, StopChunk, TextChunk, ThinkingChunk, UsageChunk
from odin.providers.http import HttpClient
from odin.providers.openai_chat import ChatProvider, encode_request
from odin.providers.payload import make_short_id
from odin.providers.wire import WireOptions
from odin.testing import ScriptedServer, call, fault, reply, say
from tests.waiting import LIMIT_S

from .histories import TOOLS
from .servers import collect, get_reply

MODEL = "gpt-4.1"
LOCAL = "http://127.0.0.1:8080/v1/chat/completions"
OPENAI = "https://api.openai.com/v1/chat/completions"
DEEPSEEK = "https://api.deepseek.com/chat/completions"
MISTRAL = "https://api.mistral.ai/v1/chat/completions"
PROMPT = (PromptMessage("hi"),)


@asynccontextmanager
async def open_provider(url: str, key: str = "k") -> AsyncGenerator[ChatProvider]:
    http = HttpClient({})
    try:
        yield ChatProvider(
            name="local", base_url=url, api_key=key, http=http, options=WireOptions(idle_timeout=LIMIT_S)
        )
    finally:
        await http.close()


def make_body(request: Request, url: str = LOCAL) -> dict[str, Any]:
    return json.loads(encode_request(request, url, "local"))


# --- the request ---


def test_request_is_encoded_exactly() -> None:
    history: tuple[Message, ...] = (
        PromptMessage("fix it", ("mode: edit",)),
        ReplyMessage((Thinking("hm", "s"), Text("I look."), ToolCall("call_1", "Read", {"file_path": "/x"}))),
        ToolMessage((ToolResult("call_1", "no such file", True),), ("the file is new",)),
        ReplyMessage((ToolCall("call_2", "Read", {}),)),
        ToolMessage((ToolResult("call_2", ""),)),
    )
    raw = encode_request(Request("m", history, ("identity", "rules"), TOOLS[:1], 1000, 0.5), LOCAL)
    assert raw.decode() == (
        '{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":1000,"temperature":0.5,'
        '"tools":[{"type":"function","function":{"name":"Read","description":"Read a file.","parameters":'
        '{"type":"object","properties":{"file_path":{"type":"string"}}}}}],'
        '"messages":[{"role":"system","content":"identity\\n\\nrules"},'
        '{"role":"user","content":"fix it\\n\\nmode: edit"},'
        '{"role":"assistant","content":"I look.","tool_calls":[{"id":"call_1","type":"function","function":'
        '{"name":"Read","arguments":"{\\"file_path\\":\\"/x\\"}"}}]},'
        '{"role":"tool","tool_call_id":"call_1","content":"Error: no such file"},'
        '{"role":"user","content":"the file is new"},'
        '{"role":"assistant","content":null,"tool_calls":[{"id":"call_2","type":"function","function":'
        '{"name":"Read","arguments":"{}"}}]},'
        '{"role":"tool","tool_call_id":"call_2","content":"(no output)"}]}'
    )


@pytest.mark.parametrize(
    ("model", "url", "field"),
    [
        ("gpt-4.1", OPENAI, "max_completion_tokens"),
        ("gpt-4.1", LOCAL, "max_tokens"),
        ("gpt-5-mini", LOCAL, "max_completion_tokens"),
        ("openai/o4-mini", LOCAL, "max_completion_tokens"),
        ("qwen", LOCAL, "max_tokens"),
    ],
)
def test_token_limit_is_in_the_field_that_the_model_takes(model: str, url: str, field: str) -> None:
    found = make_body(Request(model, PROMPT, max_tokens=77), url)
    assert {key: value for key, value in found.items() if key.startswith("max_")} == {field: 77}


def test_reasoning_and_temperature_are_sent_only_to_models_that_take_them() -> None:
    assert make_body(Request("qwen", PROMPT, thinking=5000, temperature=0.1))["reasoning_effort"] == "medium"
    assert "reasoning_effort" not in make_body(Request("gpt-4.1", PROMPT, thinking=5000))
    assert "reasoning_effort" not in make_body(Request("qwen", PROMPT))
    assert "temperature" not in make_body(Request("gpt-5", PROMPT, temperature=0.1))


def test_schema_is_sent_as_response_format() -> None:
    shape = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = make_body(Request("m", PROMPT, schema=shape))
    assert found["response_format"] == {"type": "json_schema", "json_schema": {"name": "reply", "schema": shape}}


def test_error_result_is_prefixed_only_once() -> None:
    failed = ToolMessage((ToolResult("c", "error: x", True),))
    history = (*PROMPT, ReplyMessage((ToolCall("c", "Read", {}),)), failed)
    assert make_body(Request("m", history))["messages"][-1]["content"] == "error: x"


def test_reply_with_only_thinking_is_omitted() -> None:
    history = (*PROMPT, ReplyMessage((Thinking("hm"), Text(" \n"))), PromptMessage("and?"))
    assert [message["role"] for message in make_body(Request("m", history))["messages"]] == ["user", "user"]


def make_thinking_history(model: str = "deepseek-flash") -> tuple[Message, ...]:
    return (
        *PROMPT,
        ReplyMessage((Thinking("because"), ToolCall("c1", "Read", {})), "local", model),
        ToolMessage((ToolResult("c1", "x"),)),
        ReplyMessage((Thinking("so"), Text("done")), "local", model),
        PromptMessage("again"),
    )


def test_deepseek_gets_the_thinking_before_a_call_back() -> None:
    found = make_body(Request("deepseek-flash", make_thinking_history(), thinking=5000), DEEPSEEK)
    assert found["thinking"] == {"type": "enabled"}
    assert [message.get("reasoning_content") for message in found["messages"]] == [None, "because", None, None, None]
    other = make_body(Request("deepseek-flash", make_thinking_history("elsewhere"), thinking=5000), DEEPSEEK)
    assert other["messages"][1]["reasoning_content"] == ""


def test_deepseek_gets_the_thinking_back_if_a_prompt_follows_the_results() -> None:
    history = (*make_thinking_history()[:3], PromptMessage("go on"))
    found = make_body(Request("deepseek-flash", history, thinking=5000), DEEPSEEK)
    assert [message.get("reasoning_content") for message in found["messages"]] == [None, "because", None, None]


@pytest.mark.parametrize("url", [LOCAL, DEEPSEEK])
def test_thinking_is_not_sent_back_if_it_is_off(url: str) -> None:
    found = make_body(Request("deepseek-flash", make_thinking_history()), url)
    assert "reasoning_content" not in json.dumps(found)
    assert found.get("thinking") == ({"type": "disabled"} if url == DEEPSEEK else None)


def test_mistral_gets_call_ids_of_nine_characters() -> None:
    messages = make_body(Request("mistral-medium-latest", make_thinking_history()), MISTRAL)["messages"]
    ident = messages[1]["tool_calls"][0]["id"]
    assert len(ident) == 9
    assert ident.isalnum()
    assert messages[2]["tool_call_id"] == ident


async def test_key_and_path_of_the_request() -> None:
    with ScriptedServer([say("ok"), say("ok")], strict=False) as server:
        async with open_provider(server.openai_url + "/", "key") as local:
            await collect(local, Request(MODEL, PROMPT))
        async with open_provider(server.openai_url, "") as local:
            await collect(local, Request(MODEL, PROMPT))
        with_key, without = server.requests
    assert with_key.path == "/v1/chat/completions"
    assert with_key.headers["authorization"] == "Bearer key"
    assert "authorization" not in without.headers


# --- the answer ---


async def test_reply_has_text_calls_and_usage() -> None:
    turn = reply(
        "let me",
        [call("Read", {"file_path": "/ü"}), call("Grep", {})],
        usage=Usage(input=10, output=7, cache_read=3, reasoning=2),
    )
    with ScriptedServer([turn, say("done")]) as server:
        async with open_provider(server.openai_url) as local:
            message, usage = await get_reply(local, Request(MODEL, PROMPT, (), TOOLS))
            results = ToolMessage(tuple(ToolResult(one.id, "ok") for one in message.calls))
            final, _ = await get_reply(local, Request(MODEL, (*PROMPT, message, results), (), TOOLS))
        assert server.rejected == []
    assert [type(part) for part in message.parts] == [Text, ToolCall, ToolCall]
    assert [one.args for one in message.calls] == [{"file_path": "/ü"}, {}]
    assert (message.stop, message.model) == ("tool_use", MODEL)
    assert usage == Usage(input=10, output=7, cache_read=3, reasoning=2)
    assert (final.text, final.stop) == ("done", "end_turn")


async def list_pieces(*chunks: Any, done: bool = True) -> list[Any]:
    rows = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks] + ["[DONE]"] * done
    raw = "".join(f"data: {row}\n\n" for row in rows).encode()
    with ScriptedServer([fault(200, {"content-type": "text/event-stream"}, raw)], strict=False) as server:
        async with open_provider(server.openai_url) as local:
            return await collect(local, Request("m", PROMPT))


def make_chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def list_calls(pieces: list[Any]) -> list[tuple[str, str, dict[str, Any]]]:
    builder = ReplyBuilder()
    for piece in pieces:
        builder.add(piece)
    return [(one.id, one.name, one.args) for one in builder.finish().message.calls]


def make_fragment(name: str | None = None, arguments: Any = None, **rest: Any) -> dict[str, Any]:
    return {**rest, "type": "function", "function": {"name": name, "arguments": arguments}}


CallFormat = tuple[list[list[dict[str, Any]]], list[tuple[str, str, dict[str, Any]]]]
CALL_FORMATS: list[CallFormat] = [
    (
        [
            [make_fragment("A", "", index=0, id="x")],
            [make_fragment(None, '{"a"', index=0)],
            [make_fragment(None, ":1}", index=0)],
        ],
        [("x", "A", {"a": 1})],
    ),
    (
        [[make_fragment("A", '{"a"', index=0, id="x")], [make_fragment("A", ":1}", index=0, id="x")]],
        [("x", "A", {"a": 1})],
    ),
    ([[make_fragment("A", {"a": 1}, index=0, id="x")]], [("x", "A", {"a": 1})]),
    ([[make_fragment("A", None, index=0, id="x")]], [("x", "A", {})]),
    (
        [[make_fragment("A", "{}", index=0), make_fragment("B", "{}", index=1)]],
        [("", "A", {}), ("", "B", {})],
    ),
    ([[make_fragment("A", "{}", index=0, id="")]], [("", "A", {})]),
    ([[make_fragment("A", "{}")], [make_fragment("B", "{}")]], [("", "A", {}), ("", "B", {})]),
    ([[make_fragment("A", '{"a"')], [make_fragment(None, ":1}")]], [("", "A", {"a": 1})]),
    ([[make_fragment("A", "{", id="x")], [make_fragment(None, "}", id="x")]], [("x", "A", {})]),
    (
        [[make_fragment("A", "{}", index=0, id="x")], [make_fragment("B", "{}", index=0, id="y")]],
        [("x", "A", {}), ("y", "B", {})],
    ),
    (
        [[make_fragment("A", "{}", index=0, id="x")], [make_fragment("B", "{}", index=1, id="x")]],
        [("x", "A", {}), ("x", "B", {})],
    ),
    (
        [
            [make_fragment("A", '{"a"', index=0, id="x")],
            [make_fragment("B", '{"b"', index=1, id="y")],
            [make_fragment(None, ":1}", index=0), make_fragment(None, ":2}", index=1)],
        ],
        [("x", "A", {"a": 1}), ("y", "B", {"b": 2})],
    ),
]


@pytest.mark.parametrize(
    ("fragments", "wanted"),
    CALL_FORMATS,
    ids=[
        "as documented",
        "name repeated",
        "arguments as an object",
        "no arguments",
        "no ids",
        "an empty id",
        "nothing but names",
        "no index and no id",
        "ids only",
        "the same index",
        "the same id",
        "interleaved",
    ],
)
async def test_call_is_assembled_from_fragments_of_every_format(
    fragments: list[list[dict[str, Any]]], wanted: list[tuple[str, str, dict[str, Any]]]
) -> None:
    chunks = [make_chunk(tool_calls=row) for row in fragments]
    pieces = await list_pieces(*chunks, make_chunk("tool_calls"))
    assert list_calls(pieces) == wanted
    assert {piece.index for piece in pieces if isinstance(piece, CallChunk) and piece.done} == set(range(len(wanted)))
    assert pieces[-1].reason == "tool_use"


def test_short_ids_are_nine_letters_and_digits_and_stay_different() -> None:
    made = [make_short_id(f"call_{number}") for number in range(20_000)]
    assert len(set(made)) == len(made)
    assert all(len(name) == 9 and name.isascii() and name.isalnum() for name in made)
    assert make_short_id("aB3dE6gH9") == "aB3dE6gH9"


async def test_a_call_is_a_reason_to_stop() -> None:
    pieces = await list_pieces(make_chunk(tool_calls=[make_fragment("A", "{}")]), make_chunk("stop"))
    assert pieces[-1].reason == "tool_use"


async def test_legacy_function_call_is_understood() -> None:
    pieces = await list_pieces(
        make_chunk(function_call={"name": "A", "arguments": ""}),
        make_chunk(function_call={"arguments": '{"a":1}'}),
        make_chunk("function_call"),
    )
    assert list_calls(pieces) == [("", "A", {"a": 1})]


@pytest.mark.parametrize(
    ("vendor_reason", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("eos", "end_turn"),
    ],
)
async def test_stop_reasons_are_translated(vendor_reason: str, stop: str) -> None:
    pieces = await list_pieces(make_chunk(content="x"), make_chunk(vendor_reason))
    assert pieces[-1] == StopChunk(stop, "m")  # pyright: ignore[reportArgumentType]


async def test_a_call_cut_short_by_the_limit_is_not_marked_complete() -> None:
    pieces = await list_pieces(
        make_chunk(tool_calls=[make_fragment("A", '{"a', index=0, id="x")]), make_chunk("length")
    )
    assert [piece for piece in pieces if isinstance(piece, CallChunk)] == [CallChunk(0, "x", "A", '{"a')]
    assert pieces[-1].reason == "max_tokens"


async def test_stream_without_done_and_usage_is_complete() -> None:
    pieces = await list_pieces(make_chunk(content="x"), make_chunk("stop"), done=False)
    assert pieces == [TextChunk("x"), UsageChunk(Usage()), StopChunk("end_turn", "m")]


async def test_done_without_a_stop_reason_ends_the_turn() -> None:
    pieces = await list_pieces(make_chunk(content="x"))
    assert pieces[-1] == StopChunk("end_turn", "m")


async def test_usage_in_the_last_chunk_with_choices_is_read() -> None:
    pieces = await list_pieces(
        {**make_chunk("stop", content="x"), "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    )
    assert pieces[-2] == UsageChunk(Usage(input=4, output=2))


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18,
             "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 5}},
            Usage(input=6, output=3, cache_read=4, reasoning=5),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 18,
             "completion_tokens_details": {"reasoning_tokens": 5}},
            Usage(input=10, output=3, reasoning=5),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 3, "prompt_cache_hit_tokens": 8},
         Usage(input=2, output=3, cache_read=8)),
        ({"prompt_tokens": 10, "completion_tokens": 3,
          "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 5}},
         Usage(input=3, output=3, cache_read=2, cache_write=5)),
        ({"prompt_tokens": None, "completion_tokens": None, "prompt_tokens_details": None}, Usage()),
        ({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(cache_read=9)),
    ],
)  # fmt: skip
async def test_token_categories_do_not_overlap(usage: dict[str, Any], wanted: Usage) -> None:
    pieces = await list_pieces(make_chunk("stop", content="x"), {"choices": [], "usage": usage})
    assert pieces[-2] == UsageChunk(wanted)


async def test_reasoning_is_read_from_every_field_name() -> None:
    pieces = await list_pieces(
        make_chunk(reasoning_content="a", content=None),
        make_chunk(reasoning="b", reasoning_content=None),
        make_chunk(content=[{"type": "thinking", "thinking": [{"text": "c"}]}, {"type": "text", "text": "d"}]),
        make_chunk(content="e", reasoning=None),
        make_chunk("stop"),
    )
    assert [piece.text for piece in pieces if isinstance(piece, ThinkingChunk)] == ["a", "b", "c"]
    assert [piece.text for piece in pieces if isinstance(piece, TextChunk)] == ["d", "e"]


async def test_refusal_becomes_text_and_stop_reason() -> None:
    pieces = await list_pieces(make_chunk(refusal="I will not."), make_chunk("stop"))
    assert pieces[0] == TextChunk("I will not.")
    assert pieces[-1].reason == "refusal"


async def test_lone_surrogate_is_replaced() -> None:
    pieces = await list_pieces('{"choices":[{"delta":{"content":"\\ud83d x"}}]}', make_chunk("stop"))
    assert pieces[0] == TextChunk("\ufffd x")


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"error": {"message": "overloaded", "type": "server_error"}}, Overloaded),
        ({"error": {"message": "slow", "code": 429}}, RateLimited),
        ({"error": {"message": "no", "code": 400}}, BadRequest),
        ({"error": "something broke"}, Overloaded),
        (make_chunk("error"), Overloaded),
    ],
)
async def test_error_in_the_stream_is_raised(event: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        await list_pieces(make_chunk(content="x"), event)


@pytest.mark.parametrize("local_server", ["ollama", "llamacpp", "lmstudio", "vllm"])
async def test_context_overflow_is_distinguished_from_a_bad_request(local_server: Any) -> None:
    with ScriptedServer([say("ok")], window=50, local=local_server, models=["m"]) as server:
        async with open_provider(server.openai_url) as local:
            with pytest.raises(ContextOverflow):
                await collect(local, Request("m", (PromptMessage("word " * 500),)))
