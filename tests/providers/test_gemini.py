"""The Gemini adapter: requests, signatures, replies, errors and the list of models."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from odin.core.errors import ContextOverflow, ProviderError, QuotaExhausted, RateLimited, ReplyBlocked
from odin.core.message import (
    Image,
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
from odin.core.provider import MalformedCall, ReplyBuilder, Request, StopChunk, ToolSpec
from odin.providers.gemini import FOREIGN_SIGNATURE, GeminiProvider, clean_schema, encode_request
from odin.providers.http import HttpClient
from odin.providers.wire import ApiKey, ListedModel, WireOptions
from odin.testing import ScriptedServer, Turn, call, fault, reply, say
from tests.waiting import LIMIT_S

from ..table import each
from .histories import TOOLS, hold_conversation, make_script, reply_kinds
from .servers import collect, get_reply, make_chunked_response, serve_answers

MODEL = "gemini-3.8-flash"
OLD_MODEL = "gemini-2.5-flash"
PROMPT = PromptMessage("hi")
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@asynccontextmanager
async def open_provider(url: str, key: str = "k") -> AsyncGenerator[GeminiProvider]:
    http = HttpClient({})
    try:
        yield GeminiProvider(
            name="google", base_url=url, api_key=key, http=http, options=WireOptions(idle_timeout=LIMIT_S)
        )
    finally:
        await http.close()


def make_body(*messages: Message, provider: str = "google", model: str = MODEL, **options: Any) -> dict[str, Any]:
    return msgspec.json.decode(encode_request(Request(model, messages or (PROMPT,), **options), provider))


def make_parts(*messages: Message, **options: Any) -> list[Any]:
    return [part for content in make_body(*messages, **options)["contents"] for part in content["parts"]]


# --- requests ---


def test_request_is_encoded_exactly() -> None:
    system = ("You are a test.", " ", "Be brief.")
    assert make_body(PromptMessage("hi", ("a note",)), system=system, tools=TOOLS[:1], max_tokens=100) == {
        "generationConfig": {"maxOutputTokens": 8292},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "Read", "description": "Read a file.", "parametersJsonSchema": TOOLS[0].schema}
                ]
            }
        ],
        "systemInstruction": {"parts": [{"text": "You are a test."}, {"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}, {"text": "a note"}]}],
    }


@each(
    "model, thinking, wanted",
    [
        ("gemini-4-argon", 0, {"maxOutputTokens": 8292}),
        ("gemini-4-argon", 2000, {"maxOutputTokens": 8292, "thinkingConfig": ("LOW", None)}),
        ("gemini-flash-latest", 8000, {"maxOutputTokens": 8292, "thinkingConfig": ("MEDIUM", None)}),
        (MODEL, 90_000, {"maxOutputTokens": 65_536, "thinkingConfig": ("HIGH", None)}),
        (OLD_MODEL, 0, {"maxOutputTokens": 100, "temperature": 0.5, "thinkingConfig": (None, 0)}),
        ("gemini-2.5-pro", 0, {"maxOutputTokens": 228, "temperature": 0.5, "thinkingConfig": (None, 128)}),
        ("gemini-2.5-flash-lite", 100, {"maxOutputTokens": 612, "temperature": 0.5, "thinkingConfig": (None, 512)}),
        ("gemini-2.5-pro", 90_000, {"maxOutputTokens": 32_868, "temperature": 0.5, "thinkingConfig": (None, 32_768)}),
        ("gemini-2.0-flash", 2000, {"maxOutputTokens": 100, "temperature": 0.5}),
        ("gemma-3-27b-it", 2000, {"maxOutputTokens": 100, "temperature": 0.5}),
    ],
)
def test_effort_is_a_level_or_a_budget_and_leaves_room_for_the_answer(
    model: str, thinking: int, wanted: dict[str, Any]
) -> None:
    options = make_body(model=model, thinking=thinking, max_tokens=100, temperature=0.5)["generationConfig"]
    if "thinkingConfig" in options:
        config = options["thinkingConfig"]
        assert config.get("includeThoughts", False) == (thinking > 0)
        options["thinkingConfig"] = (config.get("thinkingLevel"), config.get("thinkingBudget"))
    assert options == wanted


def test_reply_schema_has_only_supported_keywords() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "$schema": "x",
        "properties": {
            "kind": {"const": "a", "minLength": 1},
            "done": {"const": True},
            "list": {"type": "array", "items": {"type": "string", "pattern": "x"}},
        },
        "anyOf": [{"not": {}, "type": "object"}],
        "additionalProperties": False,
    }
    options = make_body(schema=schema)["generationConfig"]
    assert options["responseMimeType"] == "application/json"
    assert (
        options["responseJsonSchema"]
        == clean_schema(schema)
        == {
            "type": "object",
            "properties": {
                "kind": {"enum": ["a"]},
                "done": {"type": "boolean"},
                "list": {"type": "array", "items": {"type": "string"}},
            },
            "anyOf": [{"type": "object"}],
            "additionalProperties": False,
        }
    )


def test_results_carry_the_name_and_id_of_their_call_even_if_calls_share_an_id() -> None:
    reply_message = ReplyMessage((ToolCall("x", "Read", {}), ToolCall("x", "Grep", {}), ToolCall("y", "1 odd", {})))
    results = ToolMessage((ToolResult("x", "one"), ToolResult("x", "", True), ToolResult("y", "three")), ("a note",))
    calls = [part["functionCall"] for part in make_parts(PROMPT, reply_message, results)[1:4]]
    answers = [part["functionResponse"] for part in make_parts(PROMPT, reply_message, results)[4:7]]
    assert [(one["id"], one["name"]) for one in calls] == [(one["id"], one["name"]) for one in answers]
    assert [one["name"] for one in calls] == ["Read", "Grep", "_1_odd"]
    assert [one["response"] for one in answers] == [
        {"output": "one"},
        {"error": "(no output)"},
        {"output": "three"},
    ]
    assert make_parts(PROMPT, reply_message, results)[7:] == [{"text": "a note"}]


@each("model, inside", [(MODEL, True), (OLD_MODEL, False)])
def test_images_are_parts_of_the_result_or_follow_it(model: str, inside: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    image = Image(str(path), "image/png")
    reply_message, results = (
        ReplyMessage((ToolCall("x", "Read", {}),)),
        ToolMessage((ToolResult("x", "seen", images=(image,)),)),
    )
    prompt = PromptMessage("look", images=(image,))
    first, text, called, result, *rest = make_parts(prompt, reply_message, results, model=model, images=True)
    assert first["inlineData"]["mimeType"] == "image/png"
    assert text["text"] == "look"
    assert called["functionCall"]["name"] == "Read"
    assert ("parts" in result["functionResponse"]) == inside
    assert any("inlineData" in part for part in rest) != inside


# --- signatures ---


@pytest.mark.parametrize("said", ["Corrupted thought signature.", "Invalid thought signature."])
async def test_a_signature_that_is_refused_is_not_sent_again(said: str) -> None:
    """As after a change of the server behind a gateway: https://docs.apiyi.com/en/faq/gemini-thought-signature-missing."""
    with ScriptedServer([call("Read", {"file_path": "/x"}), fault(400, message=said), say("a"), say("b")]) as server:
        async with open_provider(server.url) as google:
            first, _ = await get_reply(google, Request(MODEL, (PROMPT,), tools=TOOLS))
            history = (PROMPT, first, ToolMessage((ToolResult(first.calls[0].id, "text"),)))
            for _ in range(2):
                await get_reply(google, Request(MODEL, history, tools=TOOLS))
        sent = [seen.messages[1]["parts"][-1]["thoughtSignature"] for seen in server.requests[1:]]
        assert sent[0] != FOREIGN_SIGNATURE
        assert (sent[1:], server.rejected) == ([FOREIGN_SIGNATURE] * 2, [])


async def test_signature_is_sent_back_with_its_call_and_only_to_its_model() -> None:
    script = [reply("", [call("Read", {}), call("Grep", {})], "hm"), say("done", thinking="so")]
    async with open_provider((server := ScriptedServer(script).start()).url) as provider:
        reply_message, _ = await get_reply(provider, Request(MODEL, (PROMPT,), (), TOOLS, thinking=2000))
        results = ToolMessage(tuple(ToolResult(one.id, "ok") for one in reply_message.calls))
        answer, _ = await get_reply(
            provider, Request(MODEL, (PROMPT, reply_message, results), (), TOOLS, thinking=2000)
        )
        server.stop()
    assert server.rejected == []
    first, second = reply_message.calls
    assert first.signature
    assert not second.signature
    assert [type(part) for part in answer.parts] == [Thinking, Text, Thinking]
    history = (PROMPT, reply_message, results, answer, PromptMessage("more"))
    sent = [part.get("thoughtSignature") for part in make_parts(*history)]
    last = answer.parts[-1]
    assert isinstance(last, Thinking)
    assert sent == [None, first.signature, None, None, None, None, last.signature, None]
    elsewhere = [part.get("thoughtSignature") for part in make_parts(*history, model="gemini-4-argon")]
    assert elsewhere == [None, FOREIGN_SIGNATURE, None, None, None, None, None]
    assert not any("thoughtSignature" in part for part in make_parts(*history, model=OLD_MODEL))
    assert make_parts(*history, provider="another")[1]["thoughtSignature"] == FOREIGN_SIGNATURE


@pytest.mark.parametrize("model", [MODEL, OLD_MODEL])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kinds=reply_kinds)
async def test_server_accepts_any_conversation_with_thinking(model: str, kinds: tuple[str, ...]) -> None:
    with ScriptedServer(make_script(kinds)) as server:
        async with open_provider(server.url) as provider:
            await hold_conversation(provider, kinds, lambda history: Request(model, history, (), TOOLS, thinking=2000))
        assert server.rejected == []


async def test_conversation_of_another_model_can_continue_in_a_tool_loop() -> None:
    reply_message = ReplyMessage(
        (Thinking("hm", "sig"), ToolCall("toolu_1", "Read", {}, "of-another-wire")), "anthropic", "claude"
    )
    history = (PROMPT, reply_message, ToolMessage((ToolResult("toolu_1", "ok"),)))
    with ScriptedServer([say("done")]) as server:
        async with open_provider(server.url) as provider:
            await collect(provider, Request(MODEL, history, (), TOOLS))
        assert server.rejected == []
    assert b"of-another-wire" not in server.requests[0].body


# --- replies ---


async def test_usage_categories_do_not_overlap_and_the_prefix_is_cached() -> None:
    usage = Usage(input=10, output=5, cache_read=90, reasoning=7)
    with ScriptedServer([say("one", usage=usage)]) as server:
        async with open_provider(server.url) as provider:
            _, counted = await get_reply(provider, Request(MODEL, (PROMPT,)))
    assert counted == usage
    long = PromptMessage("word " * 400)
    with ScriptedServer([say("one"), say("two")]) as server:
        async with open_provider(server.url) as provider:
            reply_message, first = await get_reply(provider, Request(MODEL, (long,)))
            _, second = await get_reply(provider, Request(MODEL, (long, reply_message, PROMPT)))
    assert first.cache_read == 0
    assert second.cache_read > 300


async def reply_to_turn(turn: Turn, model: str = MODEL) -> tuple[ReplyMessage, StopChunk, tuple[MalformedCall, ...]]:
    with ScriptedServer([turn]) as server:
        async with open_provider(server.url) as provider:
            pieces = await collect(provider, Request(model, (PROMPT,), (), TOOLS))
    builder = ReplyBuilder()
    for piece in pieces:
        builder.add(piece)
    found, last = builder.finish(), pieces[-1]
    assert isinstance(last, StopChunk)
    return found.message, last, found.malformed_calls


@pytest.mark.parametrize(
    ("turn", "reason", "note"),
    [
        (say("cut", stop="max_tokens"), "max_tokens", ""),
        (say("cut", stop="CONTINUATION"), "max_tokens", ""),
        (say("odd", stop="OTHER"), "end_turn", ""),
        (
            say("some", stop="RECITATION"),
            "refusal",
            "google ended the reply early: its filter for recited",
        ),
        (say("some", stop="refusal"), "refusal", "google ended the reply early: its safety filter matched (SAFETY)."),
    ],
)
async def test_stop_reason_and_note_are_reported(turn: Turn, reason: str, note: str) -> None:
    message, stop, _ = await reply_to_turn(turn)
    assert (message.text, stop.reason) == (turn.text, reason)
    assert stop.note.startswith(note)
    assert bool(stop.note) == bool(note)


FEEDBACK = b'data: {"promptFeedback": {"blockReason": "%s"}, "usageMetadata": {"promptTokenCount": 4}}\r\n\r\n'


@pytest.mark.parametrize(
    ("turn", "sentence"),
    [
        (say("", stop="SAFETY"), "google blocked the reply: its safety filter matched (SAFETY)."),
        (reply("", [call("Read", {})], stop="PROHIBITED_CONTENT"), "its filter for prohibited content matched"),
        (FEEDBACK % b"BLOCKLIST", "google blocked the prompt: its list of blocked terms matched (BLOCKLIST)."),
        (FEEDBACK % b"SOMETHING_NEW", "google blocked the prompt: one of its filters matched (SOMETHING_NEW)."),
    ],
)
async def test_blocked_prompt_or_reply_raises_reply_blocked(turn: Turn | bytes, sentence: str) -> None:
    if isinstance(turn, bytes):
        turn = fault(200, {"content-type": "text/event-stream"}, turn)
    with pytest.raises(ReplyBlocked) as caught:
        await reply_to_turn(turn)
    assert sentence in str(caught.value)
    assert not caught.value.retryable
    assert "another model" in caught.value.hint


async def test_malformed_call_is_reported_and_never_run() -> None:
    message, stop, bad = await reply_to_turn(call("Read", '{"file_path": '))
    assert (message.calls, stop.reason) == ((), "tool_use")
    assert [one.name for one in bad] == ["Read"]


async def test_call_without_an_id_is_read_and_an_error_in_the_stream_is_raised() -> None:
    first = b'data: {"candidates": [{"content": {"parts": [{"functionCall": {"name": "Read"}}]}}]}\r\n\r\n'
    last = b'data: {"candidates": [{"finishReason": "STOP"}], "modelVersion": "gemini-9"}\r\n\r\n'
    failed = make_chunked_response(first, b'data: {"error": {"code": 500}}\n\n')
    async with (
        serve_answers(make_chunked_response(first, last), failed) as server,
        open_provider(server.url) as provider,
    ):
        message, _ = await get_reply(provider, Request(MODEL, (PROMPT,)))
        with pytest.raises(ProviderError, match="overloaded or failing"):
            await collect(provider, Request(MODEL, (PROMPT,)))
    assert message.calls == (ToolCall("", "Read", {}),)
    assert message.model == "gemini-9"


# --- errors, keys and addresses ---


@pytest.mark.parametrize(
    ("quota", "error"),
    [
        ("GenerateRequestsPerMinutePerProjectPerModel", RateLimited),
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", QuotaExhausted),
    ],
)
async def test_quota_error_takes_its_delay_from_the_body(quota: str, error: type[ProviderError]) -> None:
    with ScriptedServer([fault(429, code=quota)]) as server:
        async with open_provider(server.url) as provider:
            with pytest.raises(error) as caught:
                await collect(provider, Request(MODEL, (PROMPT,)))
    assert (caught.value.retry_after, caught.value.code, caught.value.type) == (34.5, quota, "RESOURCE_EXHAUSTED")


async def test_context_overflow_has_limit_and_size() -> None:
    with ScriptedServer([say("no")], window=100) as server:
        async with open_provider(server.url) as provider:
            with pytest.raises(ContextOverflow) as caught:
                await collect(provider, Request(MODEL, (PromptMessage("word " * 400),)))
    assert caught.value.limit == 100
    assert caught.value.size > 400


async def test_key_is_sent_as_a_header_and_never_shown() -> None:
    with ScriptedServer([fault(400, code="API_KEY_INVALID", message="bad key secret-key")]) as server:
        async with open_provider(server.url, "secret-key") as provider:
            with pytest.raises(ProviderError) as caught:
                await collect(provider, Request(MODEL, (PROMPT,)))
    (seen,) = server.requests
    assert seen.headers["x-goog-api-key"] == "secret-key"
    assert "secret-key" not in seen.path + caught.value.describe()


@pytest.mark.parametrize(
    ("given_path", "base"),
    [
        ("", "/v1beta"),
        ("/v1beta", "/v1beta"),
        ("/v1", "/v1"),
        ("/v1beta/models/x:generateContent", "/v1beta"),
        ("/gateway", "/gateway/v1beta"),
    ],
)
async def test_base_url_and_model_give_the_request_url(given_path: str, base: str) -> None:
    async with open_provider(f"http://127.0.0.1:1{given_path}") as provider:
        assert provider.url == f"http://127.0.0.1:1{base}"
        url = provider.make_error_context("models/a b?c", ApiKey()).url
        assert url.endswith(f"{base}/models/a%20b%3Fc:streamGenerateContent?alt=sse")


async def test_models_are_listed_with_their_context_windows() -> None:
    with ScriptedServer(models=["gemini-a", "gemini-b"], window=5000) as server:
        async with open_provider(server.url) as provider:
            listed = await provider.list_models(5)
    assert listed == (ListedModel("gemini-a", 5000), ListedModel("gemini-b", 5000))
    assert server.others[0].path == "/v1beta/models?pageSize=1000"


async def test_tool_without_parameters_is_declared() -> None:
    tools = (ToolSpec("Done", "Ends.", {"type": "object", "properties": {}}),)
    with ScriptedServer([say("ok")]) as server:
        async with open_provider(server.url) as provider:
            await collect(provider, Request(MODEL, (PROMPT,), (), tools))
        assert server.rejected == []
        assert server.requests[0].tool_names == ["Done"]
