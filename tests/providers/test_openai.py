"""Servers of the OpenAI APIs, and what Odin makes of a refusal: another API, another effort, another form."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import BadRequest, ContextOverflow
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.core.provider import Request
from odin.models.catalog import connect_model, lookup_model
from odin.models.model_lists import CACHE_NAME, ModelLists
from odin.providers.http import HttpClient
from odin.providers.settings import ProviderSettings
from odin.providers.wire import RunMemory, ServerMemory, WireProvider
from odin.testing import ScriptedServer, Turn, call, fault, reply, say
from odin.testing.script import Oddity, SeenRequest

from .histories import TOOLS
from .servers import get_reply

PROMPT = (PromptMessage("hi"),)


@asynccontextmanager
async def connect(
    server: ScriptedServer, model: str, memory: ServerMemory | None = None, **settings: Any
) -> AsyncGenerator[WireProvider]:
    """Connect to the model as a session does, at a server of which nothing is known but its URL."""
    own = ProviderSettings(base_url=server.openai_url, api_key="k", **settings)
    http = HttpClient({})
    try:
        provider, _ = connect_model(f"own/{model}", {"own": own}, {}, http, memory=memory or RunMemory())
        yield provider
    finally:
        await http.close()


def list_apis(server: ScriptedServer) -> list[str]:
    return [seen.api for seen in server.requests]


class TestWhichApi:
    async def test_a_model_whose_tools_need_responses_gets_them_at_any_server(self) -> None:
        with ScriptedServer([call("Read", {"file_path": "/x"}), say("done")]) as server:
            async with connect(server, "gpt-6.1-sol") as provider:
                first, _ = await get_reply(provider, Request("gpt-6.1-sol", PROMPT, tools=TOOLS))
            assert [one.name for one in first.calls] == ["Read"]
            assert (list_apis(server), server.rejected) == (["responses"], [])

    async def test_other_models_are_asked_over_chat(self) -> None:
        with ScriptedServer([say("a"), say("b")]) as server:
            async with connect(server, "qwen3") as provider:
                await get_reply(provider, Request("qwen3", PROMPT))
                await get_reply(provider, Request("gpt-4.1", PROMPT))
            assert list_apis(server) == ["chat", "chat"]

    @pytest.mark.parametrize(
        "refusal",
        [
            fault(
                404, body={"error": {"message": "Invalid URL (POST /v1/responses)", "type": "invalid_request_error"}}
            ),
            fault(404, body="<html><h1>404 Not Found</h1></html>"),
            fault(405, body={"detail": "Method Not Allowed"}),
            fault(400, message="Unsupported endpoint: /v1/responses"),
        ],
        ids=["404", "page", "405", "400"],
    )
    async def test_a_server_without_responses_is_asked_over_chat_also_next_time(
        self, refusal: Turn, tmp_path: Path
    ) -> None:
        env = {"XDG_CACHE_HOME": str(tmp_path)}
        with ScriptedServer([refusal, call("Read", {"file_path": "/x"}), say("b"), say("c")]) as server:
            for session in range(2):
                async with connect(server, "gpt-6-sol", ModelLists(env)) as provider:
                    for _ in range(2 - session):
                        await get_reply(provider, Request("gpt-6-sol", PROMPT, tools=TOOLS))
            assert list_apis(server) == ["responses", "chat", "chat", "chat"]
            assert [seen.json.get("reasoning_effort") for seen in server.requests[1:]] == ["none"] * 3
            assert server.rejected == []
        stored = json.loads(next(tmp_path.rglob(CACHE_NAME)).read_bytes())
        assert stored[server.openai_url]["refused"] == ["responses"]

    async def test_a_conversation_goes_on_over_chat_at_a_server_without_responses(self) -> None:
        script = [call("Read", {"file_path": "/x"}), say("done"), say("more")]
        with ScriptedServer(script, odd=["no_responses"]) as server:
            async with connect(server, "gpt-6-luna") as provider:
                history: tuple[Message, ...] = PROMPT
                for _ in range(2):
                    message, _ = await get_reply(provider, Request("gpt-6-luna", history, tools=TOOLS))
                    results = tuple(ToolResult(one.id, "text") for one in message.calls)
                    history = (*history, message, ToolMessage(results) if results else PromptMessage("go on"))
            assert [seen.status for seen in server.requests] == [404, 200, 200]
            assert len(server.rejected) == 1

    async def test_a_model_without_tools_over_chat_says_so(self) -> None:
        with ScriptedServer([], odd=["no_responses"]) as server:
            async with connect(server, "gpt-6.1-sol") as provider:
                with pytest.raises(BadRequest, match="Function tools with reasoning_effort") as caught:
                    await get_reply(provider, Request("gpt-6.1-sol", PROMPT, tools=TOOLS))
            assert caught.value.hint == "gpt-6.1-sol takes tools over the Responses API, which own does not have."

    async def test_an_unknown_model_says_nothing_about_the_server(self) -> None:
        with ScriptedServer([say("a")], models=["gpt-6-luna"]) as server:
            memory = RunMemory()
            async with connect(server, "gpt-6-luna", memory) as provider:
                with pytest.raises(Exception, match="no model 'gpt-6-sol'"):
                    await get_reply(provider, Request("gpt-6-sol", PROMPT))
                await get_reply(provider, Request("gpt-6-luna", PROMPT))
            assert list_apis(server) == ["responses", "responses"]

    async def test_a_failing_server_is_not_taken_for_one_without_responses(self) -> None:
        with ScriptedServer([fault(404, body={}), fault(404, body={}), say("a")]) as server:
            memory = RunMemory()
            async with connect(server, "gpt-6-sol", memory) as provider:
                with pytest.raises(Exception, match="has no model"):
                    await get_reply(provider, Request("gpt-6-sol", PROMPT))
                await get_reply(provider, Request("gpt-6-sol", PROMPT))
            assert list_apis(server) == ["responses", "chat", "responses"]


UNSUPPORTED = (
    "Unsupported value: 'high' is not supported with the 'm' model. Supported values are: 'medium', and 'low'."
)


class TestRefusedEffort:
    @pytest.mark.parametrize(
        ("model", "api_type", "sentence", "sent"),
        [
            ("gpt-6-sol", "openai-responses", UNSUPPORTED, ["high", "low"]),
            ("qwen3", "openai-chat", "`reasoning_effort` must be one of `none` or `default`", ["high", "none"]),
            ("qwen3", "openai-chat", "Unrecognized request argument supplied: reasoning_effort", ["high", None]),
            (
                "gemini-4-argon",
                "gemini",
                "'high' is not a supported thinking level for this model. Allowed values are: medium, low.",
                ["HIGH", "LOW"],
            ),
        ],
    )
    async def test_the_lowest_effort_that_is_named_is_used_from_then_on(
        self, model: str, api_type: Any, sentence: str, sent: list[Any]
    ) -> None:
        with ScriptedServer([fault(400, message=sentence), say("a"), say("b")]) as server:
            async with connect(server, model, type=api_type) as provider:
                request = Request(model, PROMPT, effort="high", thinking=20_000)
                await get_reply(provider, request)
                await get_reply(provider, request)
            assert [find_effort(seen) for seen in server.requests] == [*sent, sent[-1]]

    async def test_a_second_refusal_is_shown(self) -> None:
        with ScriptedServer([fault(400, message=UNSUPPORTED)] * 3) as server:
            async with connect(server, "qwen3", type="openai-chat") as provider:
                with pytest.raises(BadRequest, match="Unsupported value"):
                    await get_reply(provider, Request("qwen3", PROMPT, effort="high"))
            assert len(server.requests) == 2


def find_effort(seen: SeenRequest) -> str | None:
    for form in ("reasoning", "thinkingConfig"):
        found: dict[str, str] = (seen.json | seen.json.get("generationConfig", {})).get(form, {})
        if found:
            return found.get("effort") or found["thinkingLevel"]
    return seen.json.get("reasoning_effort")


class TestCacheKey:
    @pytest.mark.parametrize(
        ("url", "model", "has_key"),
        [
            ("https://api.openai.com/v1", "gpt-6-sol", True),
            ("https://eu.api.openai.com/v1", "gpt-4.1", True),
            ("https://x.openai.azure.com/openai/v1", "gpt-5.6-luna", True),
            ("https://x.services.ai.azure.com/openai/v1", "Kimi-K2.5", False),
            ("https://api.groq.com/openai/v1", "openai/gpt-oss-120b", False),
            ("https://openrouter.ai/api/v1", "openai/gpt-6-sol", False),
            ("http://127.0.0.1:8000/v1", "gpt-6-sol", False),
        ],
    )
    def test_only_servers_that_know_it_get_one(self, url: str, model: str, has_key: bool) -> None:
        provider, _ = connect_model(
            f"own/{model}", {"own": ProviderSettings(base_url=url, api_key="k")}, {}, HttpClient({})
        )
        request = Request(model, PROMPT, session="s1")
        images = provider._image_budget.select_images(request)  # pyright: ignore[reportPrivateUsage]
        body = json.loads(provider.encode(request, images, provider.get_history(PROMPT)))
        assert ("prompt_cache_key" in body) == has_key

    @pytest.mark.parametrize("api_type", ["openai-chat", "openai-responses"])
    async def test_an_agent_has_one_key_in_a_session_and_others_have_others(self, api_type: Any) -> None:
        asked = [("s1", ""), ("s1", ""), ("s1", "a1"), ("s2", "")]
        with ScriptedServer([say(f"{number}") for number in range(4)]) as server:
            async with connect(server, "gpt-6-sol", type=api_type, prompt_cache_key=True) as provider:
                for session, agent in asked:
                    await get_reply(provider, Request("gpt-6-sol", PROMPT, session=session, agent=agent))
            keys = [seen.json["prompt_cache_key"] for seen in server.requests]
            assert (keys[0] == keys[1], len(set(keys)), server.rejected) == (True, 3, [])

    async def test_a_server_that_refuses_it_gets_none_from_then_on(self) -> None:
        with ScriptedServer([say("a"), say("b")], odd=["no_cache_key"]) as server:
            async with connect(server, "qwen3", type="openai-chat", prompt_cache_key=True) as provider:
                for _ in range(2):
                    await get_reply(provider, Request("qwen3", PROMPT, session="s"))
            assert ["prompt_cache_key" in seen.json for seen in server.requests] == [True, False, False]


AFTER_CALLS: tuple[Message, ...] = (
    *PROMPT,
    ReplyMessage((ToolCall("c1", "Read", {"file_path": "/x"}),)),
    ToolMessage((ToolResult("c1", "text"),)),
)


class TestOddServers:
    @pytest.mark.parametrize(
        ("odd", "contents"),
        [
            ("comments", [None]),
            ("needs_content", [None, "", ""]),
            ("needs_null_content", [None, None]),
        ],
    )
    async def test_calls_without_text_have_the_content_that_the_server_takes(
        self, odd: Oddity, contents: list[str | None]
    ) -> None:
        with ScriptedServer([say("a"), say("b")], odd=[odd]) as server:
            async with connect(server, "qwen3") as provider:
                for _ in range(2):
                    await get_reply(provider, Request("qwen3", AFTER_CALLS))
            sent = [seen.messages[1]["content"] for seen in server.requests]
            assert sent[: len(contents)] == contents

    @pytest.mark.parametrize(
        ("api_type", "odd"),
        [
            *(("openai-chat", (odd,)) for odd in ("no_usage", "no_finish_reason", "no_call_index", "null_call_index")),
            *((api, ("comments", "cr_lines")) for api in ("openai-chat", "openai-responses", "gemini")),
            *((api, ("not_streamed",)) for api in ("openai-chat", "openai-responses", "gemini")),
        ],
    )
    async def test_a_reply_with_text_thinking_and_two_calls_arrives(
        self, odd: tuple[Oddity, ...], api_type: Any
    ) -> None:
        calls = [call("Read", {"file_path": "/x"}), call("Read", {"file_path": "/y"})]
        model = "gemini-3.8-flash" if api_type == "gemini" else "gpt-5.2"
        with ScriptedServer([reply("I look.", calls, thinking="hm")], odd=odd) as server:
            base = server.url if api_type == "gemini" else server.openai_url
            async with connect(server, model, type=api_type) as provider:
                assert provider.url.startswith(base)
                message, usage = await get_reply(provider, Request(model, PROMPT, tools=TOOLS))
        assert (message.text, message.thinking, message.stop) == ("I look.", "hm", "tool_use")
        assert [one.args["file_path"] for one in message.calls] == ["/x", "/y"]
        assert len({one.id for one in message.calls}) == 2
        assert (usage.total > 0) == ("no_usage" not in odd)

    async def test_invalid_escapes_in_arguments_are_read_as_they_are_meant(self) -> None:
        written = r'{"file_path": "/x", "text": "\usepackage{a} \d+ \\ \n \u00e9 C:\dir"}'
        with ScriptedServer([call("Read", written)]) as server:
            async with connect(server, "qwen3") as provider:
                message, _ = await get_reply(provider, Request("qwen3", PROMPT, tools=TOOLS))
        assert message.calls[0].args["text"] == "\\usepackage{a} \\d+ \\ \n é C:\\dir"


class TestReplyLimit:
    @pytest.mark.parametrize(
        ("sentence", "limits"),
        [
            (
                "This endpoint's maximum context length is 262144 tokens. However, you requested about 284283 tokens "
                "(8963 of text input, 13176 of tool input, 262144 in the output). Please reduce the length.",
                [262_144, 262_144 - 22_139 - 2_621],
            ),
            (
                "This model's maximum context length is 1048576 tokens. However, you requested 1068889 tokens (815916 "
                "in the messages, 252973 in the completion). Please reduce the length of the messages or completion.",
                [262_144, 222_175],
            ),
        ],
    )
    async def test_a_limit_that_is_too_high_is_lowered_and_nothing_is_compacted(
        self, sentence: str, limits: list[int]
    ) -> None:
        with ScriptedServer([fault(400, message=sentence), say("ok")]) as server:
            async with connect(server, "qwen3") as provider:
                message, _ = await get_reply(provider, Request("qwen3", PROMPT, max_tokens=262_144))
            assert message.text == "ok"
            assert [seen.json["max_tokens"] for seen in server.requests] == limits

    @pytest.mark.parametrize(
        "sentence",
        [
            "This model's maximum context length is 1048576 tokens. However, you requested 1174018 tokens (1047946 in "
            "the messages, 126072 in the completion). Please reduce the length of the messages or completion.",
            "This endpoint's maximum context length is 200000 tokens. However, you requested about 212776 tokens "
            "(210776 of text input, 2000 in the output).",
        ],
    )
    async def test_a_conversation_that_is_too_long_is_an_overflow(self, sentence: str) -> None:
        with ScriptedServer([fault(400, message=sentence)]) as server:
            async with connect(server, "qwen3") as provider:
                with pytest.raises(ContextOverflow):
                    await get_reply(provider, Request("qwen3", PROMPT, max_tokens=126_072))
            assert len(server.requests) == 1


class TestCost:
    @pytest.mark.parametrize(
        ("usage", "cost"),
        [
            # https://openrouter.ai/docs/use-cases/usage-accounting
            ({"cost": 0.95, "cost_details": {"upstream_inference_cost": 19}}, 0.95),
            # With an own key the provider behind it bills, too: https://docs.rs/lean-ctx/3.9.9 (usage_accounting).
            ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}}, 0.21),
            ({}, (194 - 150) * 2e-6 + 2 * 10e-6 + 50 * 0.2e-6 + 100 * 2.5e-6),
        ],
    )
    async def test_what_the_server_bills_counts_and_cache_writes_have_their_price(
        self, usage: dict[str, Any], cost: float
    ) -> None:
        tokens = {
            "prompt_tokens": 194,
            "completion_tokens": 2,
            "total_tokens": 196,
            "prompt_tokens_details": {"cached_tokens": 50, "cache_write_tokens": 100},
        }
        chunk = {"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}], "usage": {**tokens, **usage}}
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        with ScriptedServer([fault(200, {"content-type": "text/event-stream"}, body.encode())]) as server:
            async with connect(server, "gpt-6-sol", type="openai-chat") as provider:
                _, spent = await get_reply(provider, Request("gpt-6-sol", PROMPT))
        info = lookup_model("openai/gpt-6-sol", {})
        assert info.calculate_cost(spent) == pytest.approx(cost)
