"""What every wire format guarantees, whatever the server."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from odin.core.errors import (
    AuthFailed,
    BadReply,
    BadRequest,
    ModelNotFound,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    StreamCut,
)
from odin.core.message import Image, Message, PromptMessage, Thinking, ToolCall, ToolMessage, ToolResult
from odin.core.provider import Provider, Request
from odin.providers import anthropic, gemini, openai_chat, openai_responses
from odin.providers.http import HttpClient
from odin.providers.wire import WireOptions
from odin.testing import ScriptedServer, call, fault, reply, say
from tests import pictures
from tests.waiting import LIMIT_S

from .histories import TOOLS, histories, list_request_prefixes, strip_closing_brackets
from .servers import collect, get_reply

PROMPT = (PromptMessage("hi"),)
LOCAL = "http://127.0.0.1:8080/v1/chat/completions"
MISTRAL = "https://api.mistral.ai/v1/chat/completions"


@dataclass(frozen=True)
class Wire:
    """A wire format: its provider, its encoder, and the path of its requests."""

    name: str
    model: str
    provider: Callable[..., Provider]
    encode: Callable[[Request], bytes]
    path: str

    @asynccontextmanager
    async def open(self, server: ScriptedServer) -> AsyncGenerator[Provider]:
        http = HttpClient({})
        url = server.url if self.name in ("anthropic", "gemini") else server.openai_url
        try:
            yield self.provider(
                name=self.name, base_url=url, api_key="k", http=http, options=WireOptions(idle_timeout=LIMIT_S)
            )
        finally:
            await http.close()


ANTHROPIC = Wire(
    "anthropic",
    "claude-sonnet-4-5",
    anthropic.AnthropicProvider,
    lambda request: anthropic.encode_request(request, "here").body,
    "/v1/messages",
)
CHAT = Wire(
    "chat",
    "gpt-4.1",
    openai_chat.ChatProvider,
    lambda request: openai_chat.encode_request(request, LOCAL),
    "/v1/chat/completions",
)
MISTRAL_CHAT = Wire(
    "mistral",
    "devstral-small",
    openai_chat.ChatProvider,
    lambda request: openai_chat.encode_request(request, MISTRAL),
    "/v1/chat/completions",
)
RESPONSES = Wire(
    "responses",
    "gpt-5",
    openai_responses.ResponsesProvider,
    lambda request: openai_responses.encode_request(request, "here"),
    "/v1/responses",
)
GEMINI = Wire(
    "gemini",
    "gemini-3.8-flash",
    gemini.GeminiProvider,
    lambda request: gemini.encode_request(request, "here"),
    "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
)
WIRES = (ANTHROPIC, CHAT, RESPONSES, GEMINI)


def get_name(wire: Wire) -> str:
    return wire.name


@pytest.mark.parametrize(
    "wire",
    [ANTHROPIC, *(pytest.param(wire, marks=pytest.mark.slow) for wire in (*WIRES[1:], MISTRAL_CHAT))],
    ids=get_name,
)
@settings(max_examples=45, deadline=None)
@given(histories)
def test_request_starts_with_the_bytes_of_the_previous_one(wire: Wire, history: tuple[Message, ...]) -> None:
    bodies = [wire.encode(Request(wire.model, part, ("a", "b"), TOOLS)) for part in list_request_prefixes(history)]
    for earlier, later in pairwise(bodies):
        assert later.startswith(strip_closing_brackets(earlier))


@pytest.mark.slow
@pytest.mark.parametrize("wire", [*WIRES, MISTRAL_CHAT], ids=get_name)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_server_accepts_any_history(wire: Wire, history: tuple[Message, ...]) -> None:
    async def ask() -> None:
        async with wire.open(server) as provider:
            for part in list_request_prefixes(history):
                await collect(provider, Request(wire.model, part, ("system",), TOOLS))

    with ScriptedServer([say("ok")], repeat=True) as server:
        asyncio.run(ask())
        assert server.rejected == []


FAILURES: list[tuple[Any, type[Exception]]] = [
    (say("never").error(after=2), Overloaded),
    (say("never").cut(events=1), StreamCut),
    (say("never").cut(bytes=40), StreamCut),
    (say("never").cut(), StreamCut),
    (say("never").garble(after=1), BadReply),
    (fault(401), AuthFailed),
    (fault(400, message="bad"), BadRequest),
    (fault(500), Overloaded),
    (fault(200, body="<html>hello</html>"), BadReply),
]
QUOTA = "You exceeded your current quota, please check your plan and billing details."
OWN_FAILURES: list[tuple[Wire, Any, type[Exception]]] = [
    (ANTHROPIC, say("never").error(after=2, type="rate_limit_error", message="slow"), RateLimited),
    (ANTHROPIC, say("never").cut(events=3), StreamCut),
    (ANTHROPIC, say("never").cut(events=2, reset=True), StreamCut),
    (ANTHROPIC, say("never").unfinished(3), StreamCut),
    (ANTHROPIC, say("never").garble(after=2), BadReply),
    (ANTHROPIC, fault(401, message="invalid x-api-key"), AuthFailed),
    (ANTHROPIC, fault(404, message="model: x"), ModelNotFound),
    (ANTHROPIC, fault(529), Overloaded),
    (RESPONSES, say("never").cut(events=3), StreamCut),
    (RESPONSES, say("never").unfinished(1), StreamCut),
    (RESPONSES, say("never").garble(after=2), BadReply),
    (GEMINI, say("never").error(after=1, type="rate_limit_error", message="slow"), RateLimited),
    (GEMINI, say("never").unfinished(1), StreamCut),
    (GEMINI, fault(400, code="API_KEY_INVALID", message="API key not valid. Please pass a valid API key."), AuthFailed),
    (GEMINI, fault(403, message="Permission denied on resource"), AuthFailed),
    (GEMINI, fault(404, message="models/x is not found for API version v1beta"), ModelNotFound),
    (GEMINI, fault(503, message="The model is overloaded. Please try again later."), Overloaded),
    (GEMINI, fault(429, code="GenerateRequestsPerMinutePerProjectPerModel", message=QUOTA), RateLimited),
    (GEMINI, fault(429, code="GenerateRequestsPerDayPerProjectPerModel-FreeTier", message=QUOTA), QuotaExhausted),
    (GEMINI, fault(429, message="Your prepayment credits are depleted."), QuotaExhausted),
    (RESPONSES, fault(404, code="model_not_found", message="The model `x` does not exist"), ModelNotFound),
]


@pytest.mark.parametrize(
    ("wire", "turn", "error"), [*((wire, *failure) for wire in WIRES for failure in FAILURES), *OWN_FAILURES]
)
async def test_failure_raises_its_error_type(wire: Wire, turn: Any, error: type[Exception]) -> None:
    with ScriptedServer([turn]) as server:
        async with wire.open(server) as provider:
            with pytest.raises(error):
                await collect(provider, Request(wire.model, PROMPT))
        assert [request.path for request in server.requests] == [wire.path]


@pytest.mark.parametrize("wire", WIRES, ids=get_name)
async def test_reply_is_read_one_byte_at_a_time(wire: Wire) -> None:
    with ScriptedServer([reply("grüße", [call("Read", {"file_path": "/世界"})], "hm").trickle()]) as server:
        async with wire.open(server) as provider:
            message, _ = await get_reply(provider, Request(wire.model, PROMPT, (), TOOLS))
    assert (message.text, message.calls[0].args) == ("grüße", {"file_path": "/世界"})


async def test_conversation_can_switch_to_any_other_api_in_a_tool_loop(tmp_path: Path) -> None:
    """Calls, images and thinking of one API are accepted by the others, and no signature is sent to another API."""
    path = tmp_path / "shot.png"
    path.write_bytes(pictures.png())
    image = Image(str(path), "image/png", 3, 2)
    for first, second in permutations(WIRES, 2):
        script = [reply("I look.", [call("Read", {"x": 1}), call("Grep", {})], "hm"), say("done")]
        with ScriptedServer(script) as server:
            async with first.open(server) as provider:
                asked = Request(first.model, PROMPT, (), TOOLS, thinking=2000, images=True)
                said, _ = await get_reply(provider, asked)
            results = tuple(ToolResult(one.id, "ok", images=(image,)) for one in said.calls)
            history = (*PROMPT, said, ToolMessage(results, ("a note",)))
            async with second.open(server) as provider:
                await collect(provider, Request(second.model, history, (), TOOLS, thinking=2000, images=True))
            assert server.rejected == [], (first.name, second.name)
            body = server.requests[-1].body.decode()
        signatures = [part.signature for part in said.parts if isinstance(part, Thinking | ToolCall) and part.signature]
        assert not any(signature in body for signature in signatures)
        assert bool(signatures) == (first is not CHAT)
