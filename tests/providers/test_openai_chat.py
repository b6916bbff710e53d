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
from odin.providers.wire import WireOptions
from odin.testing import ScriptedServer, call, fault, reply, say

from .histories import TOOLS
from .servers import collect, reply_of

MODEL = "gpt-4.1"
LOCAL = "http://127.0.0.1:8080/v1/chat/completions"
OPENAI = "https://api.openai.com/v1/chat/completions"
DEEPSEEK = "https://api.deepseek.com/chat/completions"
MISTRAL = "https://api.mistral.ai/v1/chat/completions"
PROMPT = (PromptMessage("hi"),)


@asynccontextmanager
async def provider(url: str, key: str = "k") -> AsyncGenerator[ChatProvider]:
    http = HttpClient({})
    try:
        yield ChatProvider(name="local", base_url=url, api_key=key, http=http, options=WireOptions(idle_timeout=5))
    finally:
        await http.close()


def body(request: Request, url: str = LOCAL) -> dict[str, Any]:
    return json.loads(encode_request(request, url, "local"))


# --- the request ---


def test_the_whole_request() -> None:
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
def test_the_limit_has_the_name_the_model_takes(model: str, url: str, field: str) -> None:
    found = body(Request(model, PROMPT, max_tokens=77), url)
    assert {key: value for key, value in found.items() if key.startswith("max_")} == {field: 77}


def test_reasoning_and_temperature_go_only_where_they_are_taken() -> None:
    assert body(Request("qwen", PROMPT, thinking=5000, temperature=0.1))["reasoning_effort"] == "medium"
    assert "reasoning_effort" not in body(Request("gpt-4.1", PROMPT, thinking=5000))
    assert "reasoning_effort" not in body(Request("qwen", PROMPT))
    assert "temperature" not in body(Request("gpt-5", PROMPT, temperature=0.1))


def test_an_answer_in_a_shape() -> None:
    shape = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = body(Request("m", PROMPT, schema=shape))
    assert found["response_format"] == {"type": "json_schema", "json_schema": {"name": "reply", "schema": shape}}


def test_a_result_is_not_called_an_error_twice() -> None:
    failed = ToolMessage((ToolResult("c", "error: x", True),))
    history = (*PROMPT, ReplyMessage((ToolCall("c", "Read", {}),)), failed)
    assert body(Request("m", history))["messages"][-1]["content"] == "error: x"


def test_a_reply_with_nothing_but_thinking_is_left_out() -> None:
    history = (*PROMPT, ReplyMessage((Thinking("hm"), Text(" \n"))), PromptMessage("and?"))
    assert [message["role"] for message in body(Request("m", history))["messages"]] == ["user", "user"]


def thoughtful(model: str = "deepseek-flash") -> tuple[Message, ...]:
    return (
        *PROMPT,
        ReplyMessage((Thinking("because"), ToolCall("c1", "Read", {})), "local", model),
        ToolMessage((ToolResult("c1", "x"),)),
        ReplyMessage((Thinking("so"), Text("done")), "local", model),
        PromptMessage("again"),
    )


def test_one_vendor_wants_the_thoughts_behind_calls_back() -> None:
    found = body(Request("deepseek-flash", thoughtful(), thinking=5000), DEEPSEEK)
    assert found["thinking"] == {"type": "enabled"}
    assert [message.get("reasoning_content") for message in found["messages"]] == [None, "because", None, None, None]
    other = body(Request("deepseek-flash", thoughtful("elsewhere"), thinking=5000), DEEPSEEK)
    assert other["messages"][1]["reasoning_content"] == ""


def test_the_thoughts_behind_calls_stay_when_a_prompt_follows_the_results() -> None:
    history = (*thoughtful()[:3], PromptMessage("go on"))
    found = body(Request("deepseek-flash", history, thinking=5000), DEEPSEEK)
    assert [message.get("reasoning_content") for message in found["messages"]] == [None, "because", None, None]


@pytest.mark.parametrize("url", [LOCAL, DEEPSEEK])
def test_without_thinking_no_thought_goes_back(url: str) -> None:
    found = body(Request("deepseek-flash", thoughtful()), url)
    assert "reasoning_content" not in json.dumps(found)
    assert found.get("thinking") == ({"type": "disabled"} if url == DEEPSEEK else None)


def test_one_vendor_wants_ids_of_nine_letters() -> None:
    messages = body(Request("mistral-medium-latest", thoughtful()), MISTRAL)["messages"]
    ident = messages[1]["tool_calls"][0]["id"]
    assert len(ident) == 9
    assert ident.isalnum()
    assert messages[2]["tool_call_id"] == ident


async def test_key_and_path() -> None:
    with ScriptedServer([say("ok"), say("ok")], strict=False) as server:
        async with provider(server.openai_url + "/", "key") as local:
            await collect(local, Request(MODEL, PROMPT))
        async with provider(server.openai_url, "") as local:
            await collect(local, Request(MODEL, PROMPT))
        with_key, without = server.requests
    assert with_key.path == "/v1/chat/completions"
    assert with_key.headers["authorization"] == "Bearer key"
    assert "authorization" not in without.headers


# --- the answer ---


async def test_words_and_calls_with_usage() -> None:
    turn = reply(
        "let me",
        [call("Read", {"file_path": "/ü"}), call("Grep", {})],
        usage=Usage(input=10, output=7, cache_read=3, reasoning=2),
    )
    with ScriptedServer([turn, say("done")]) as server:
        async with provider(server.openai_url) as local:
            message, usage = await reply_of(local, Request(MODEL, PROMPT, (), TOOLS))
            results = ToolMessage(tuple(ToolResult(one.id, "ok") for one in message.calls))
            final, _ = await reply_of(local, Request(MODEL, (*PROMPT, message, results), (), TOOLS))
        assert server.rejected == []
    assert [type(part) for part in message.parts] == [Text, ToolCall, ToolCall]
    assert [one.args for one in message.calls] == [{"file_path": "/ü"}, {}]
    assert (message.stop, message.model) == ("tool_use", MODEL)
    assert usage == Usage(input=10, output=7, cache_read=3, reasoning=2)
    assert (final.text, final.stop) == ("done", "end_turn")


async def pieces_of(*chunks: Any, done: bool = True, history: tuple[Message, ...] = PROMPT) -> list[Any]:
    rows = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks] + ["[DONE]"] * done
    raw = "".join(f"data: {row}\n\n" for row in rows).encode()
    with ScriptedServer([fault(200, {"content-type": "text/event-stream"}, raw)], strict=False) as server:
        async with provider(server.openai_url) as local:
            return await collect(local, Request("m", history))


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def calls_of(pieces: list[Any]) -> list[tuple[str, str, dict[str, Any]]]:
    builder = ReplyBuilder()
    for piece in pieces:
        builder.add(piece)
    return [(one.id, one.name, one.args) for one in builder.finish().message.calls]


def fragment(name: str | None = None, arguments: Any = None, **rest: Any) -> dict[str, Any]:
    return {**rest, "type": "function", "function": {"name": name, "arguments": arguments}}


Told = tuple[list[list[dict[str, Any]]], list[tuple[str, str, dict[str, Any]]]]
WAYS: list[Told] = [
    (
        [[fragment("A", "", index=0, id="x")], [fragment(None, '{"a"', index=0)], [fragment(None, ":1}", index=0)]],
        [("x", "A", {"a": 1})],
    ),
    (
        [[fragment("A", '{"a"', index=0, id="x")], [fragment("A", ":1}", index=0, id="x")]],
        [("x", "A", {"a": 1})],
    ),
    ([[fragment("A", {"a": 1}, index=0, id="x")]], [("x", "A", {"a": 1})]),
    ([[fragment("A", None, index=0, id="x")]], [("x", "A", {})]),
    ([[fragment("A", "{}", index=0), fragment("B", "{}", index=1)]], [("call_0", "A", {}), ("call_1", "B", {})]),
    ([[fragment("A", "{}", index=0, id="")]], [("call_0", "A", {})]),
    ([[fragment("A", "{}")], [fragment("B", "{}")]], [("call_0", "A", {}), ("call_1", "B", {})]),
    ([[fragment("A", '{"a"')], [fragment(None, ":1}")]], [("call_0", "A", {"a": 1})]),
    ([[fragment("A", "{", id="x")], [fragment(None, "}", id="x")]], [("x", "A", {})]),
    (
        [[fragment("A", "{}", index=0, id="x")], [fragment("B", "{}", index=0, id="y")]],
        [("x", "A", {}), ("y", "B", {})],
    ),
    (
        [[fragment("A", "{}", index=0, id="x")], [fragment("B", "{}", index=1, id="x")]],
        [("x", "A", {}), ("call_1", "B", {})],
    ),
    (
        [
            [fragment("A", '{"a"', index=0, id="x")],
            [fragment("B", '{"b"', index=1, id="y")],
            [fragment(None, ":1}", index=0), fragment(None, ":2}", index=1)],
        ],
        [("x", "A", {"a": 1}), ("y", "B", {"b": 2})],
    ),
]


@pytest.mark.parametrize(
    ("fragments", "wanted"),
    WAYS,
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
async def test_calls_however_a_server_tells_them(
    fragments: list[list[dict[str, Any]]], wanted: list[tuple[str, str, dict[str, Any]]]
) -> None:
    chunks = [chunk(tool_calls=row) for row in fragments]
    pieces = await pieces_of(*chunks, chunk("tool_calls"))
    assert calls_of(pieces) == wanted
    assert {piece.index for piece in pieces if isinstance(piece, CallChunk) and piece.done} == set(range(len(wanted)))
    assert pieces[-1].reason == "tool_use"


async def test_an_invented_id_is_used_once_in_a_conversation() -> None:
    history = (*PROMPT, ReplyMessage((ToolCall("call_0", "Read", {}),)), ToolMessage((ToolResult("call_0", "x"),)))
    pieces = await pieces_of(chunk(tool_calls=[fragment("A", "{}")]), chunk("stop"), history=history)
    assert calls_of(pieces) == [("call_1", "A", {})]
    assert pieces[-1].reason == "tool_use"


async def test_an_old_function_call() -> None:
    pieces = await pieces_of(
        chunk(function_call={"name": "A", "arguments": ""}),
        chunk(function_call={"arguments": '{"a":1}'}),
        chunk("function_call"),
    )
    assert calls_of(pieces) == [("call_0", "A", {"a": 1})]


@pytest.mark.parametrize(
    ("told", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("eos", "end_turn"),
    ],
)
async def test_stop_reasons(told: str, stop: str) -> None:
    pieces = await pieces_of(chunk(content="x"), chunk(told))
    assert pieces[-1] == StopChunk(stop, "m")  # pyright: ignore[reportArgumentType]


async def test_a_call_cut_short_by_the_limit_is_not_marked_complete() -> None:
    pieces = await pieces_of(chunk(tool_calls=[fragment("A", '{"a', index=0, id="x")]), chunk("length"))
    assert [piece for piece in pieces if isinstance(piece, CallChunk)] == [CallChunk(0, "x", "A", '{"a')]
    assert pieces[-1].reason == "max_tokens"


async def test_no_end_mark_and_no_usage() -> None:
    pieces = await pieces_of(chunk(content="x"), chunk("stop"), done=False)
    assert pieces == [TextChunk("x"), UsageChunk(Usage()), StopChunk("end_turn", "m")]


async def test_an_end_mark_without_a_stop_reason() -> None:
    pieces = await pieces_of(chunk(content="x"))
    assert pieces[-1] == StopChunk("end_turn", "m")


async def test_usage_in_the_last_chunk_with_choices_is_heard() -> None:
    pieces = await pieces_of({**chunk("stop", content="x"), "usage": {"prompt_tokens": 4, "completion_tokens": 2}})
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
async def test_kinds_of_tokens_do_not_overlap(usage: dict[str, Any], wanted: Usage) -> None:
    pieces = await pieces_of(chunk("stop", content="x"), {"choices": [], "usage": usage})
    assert pieces[-2] == UsageChunk(wanted)


async def test_reasoning_under_each_of_its_names() -> None:
    pieces = await pieces_of(
        chunk(reasoning_content="a", content=None),
        chunk(reasoning="b", reasoning_content=None),
        chunk(content=[{"type": "thinking", "thinking": [{"text": "c"}]}, {"type": "text", "text": "d"}]),
        chunk(content="e", reasoning=None),
        chunk("stop"),
    )
    assert [piece.text for piece in pieces if isinstance(piece, ThinkingChunk)] == ["a", "b", "c"]
    assert [piece.text for piece in pieces if isinstance(piece, TextChunk)] == ["d", "e"]


async def test_a_refusal_is_said() -> None:
    pieces = await pieces_of(chunk(refusal="I will not."), chunk("stop"))
    assert pieces[0] == TextChunk("I will not.")
    assert pieces[-1].reason == "refusal"


async def test_broken_text_is_mended() -> None:
    pieces = await pieces_of('{"choices":[{"delta":{"content":"\\ud83d x"}}]}', chunk("stop"))
    assert pieces[0] == TextChunk("\ufffd x")


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"error": {"message": "overloaded", "type": "server_error"}}, Overloaded),
        ({"error": {"message": "slow", "code": 429}}, RateLimited),
        ({"error": {"message": "no", "code": 400}}, BadRequest),
        ({"error": "something broke"}, Overloaded),
        (chunk("error"), Overloaded),
    ],
)
async def test_an_error_in_the_stream(event: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        await pieces_of(chunk(content="x"), event)


@pytest.mark.parametrize("local_server", ["ollama", "llamacpp", "lmstudio", "vllm"])
async def test_a_small_window_is_told_apart_from_a_bad_request(local_server: Any) -> None:
    with ScriptedServer([say("ok")], window=50, local=local_server, models=["m"]) as server:
        async with provider(server.openai_url) as local:
            with pytest.raises(ContextOverflow):
                await collect(local, Request("m", (PromptMessage("word " * 500),)))
