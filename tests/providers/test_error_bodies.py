"""Real error bodies of many servers, and what Odin makes of each: `error_bodies.toml`."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    ProviderError,
    QuotaExhausted,
    ReplyBlocked,
    RetryableError,
)
from odin.core.message import PromptMessage
from odin.core.provider import Request
from odin.models.catalog import connect_model
from odin.models.key_pool import classify_failure
from odin.providers.http import HttpClient
from odin.providers.settings import ProviderSettings
from odin.testing import ScriptedServer, Turn, fault, say
from odin.testing.script import SeenRequest

from .histories import TOOLS
from .servers import get_reply

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "error_bodies.toml").read_text("utf-8"))["error"]
MODELS = {"gemini": "gemini-3.5-flash", "anthropic": "claude-sonnet-5-5"}


def test_there_are_many_and_each_has_a_source() -> None:
    sources = [case["source"] for case in CASES]
    assert len(set(sources)) == len(sources) >= 60
    assert all(source.startswith("https://") for source in sources)


async def send(case: dict[str, Any]) -> tuple[ProviderError | None, list[SeenRequest]]:
    """Send a request that is refused with this body. Return the error that is left, and all requests."""

    def play(seen: SeenRequest) -> Turn:
        return fault(case["status"], body=case["body"]) if len(server.requests) == 1 else say("ok")

    api = case.get("api", "openai-chat")
    model = MODELS.get(api, "some-model")
    http = HttpClient({})
    with ScriptedServer(play) as server:
        base = server.url if api in MODELS else server.openai_url
        own = ProviderSettings(type=api, base_url=base, api_key="k", prompt_cache_key=True)
        provider, _ = connect_model(f"own/{model}", {"own": own}, {}, http)
        request = Request(
            model,
            (PromptMessage("hi"),),
            tools=TOOLS,
            effort="high",
            thinking=1024,
            max_tokens=120_000 if api == "anthropic" else 200_000,
            session="s",
        )
        try:
            await get_reply(provider, request)
        except ProviderError as error:
            return error, server.requests
        finally:
            await http.close()
        return None, server.requests


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["source"].removeprefix("https://github.com/"))
async def test_each_body_has_its_outcome(case: dict[str, Any]) -> None:
    error, requests = await send(case)
    outcome = case["outcome"]
    if outcome in ("other form", "lower"):
        assert (error, len(requests)) == (None, 2)
        changed = requests[0].json != requests[1].json
        assert changed or re.search("nil|signature", case["body"])  # about what only a history has
        return
    assert error is not None
    assert len(requests) == 1
    assert error.hint
    assert {
        "retry": isinstance(error, RetryableError) and not error.retry_after,
        "wait": isinstance(error, RetryableError) and error.retry_after == pytest.approx(case.get("wait_s")),
        "quota": isinstance(error, QuotaExhausted) and not error.retryable and classify_failure(error) == "quota",
        "other key": isinstance(error, AuthFailed) and classify_failure(error) == "rejected",
        "other model": isinstance(error, ModelNotFound),
        "compact": isinstance(error, ContextOverflow) and error.limit == case.get("limit"),
        "tell the user": isinstance(error, BadRequest | ReplyBlocked),
    }[outcome], f"{type(error).__name__}: {error} ({error.retry_after}, {getattr(error, 'limit', '')})"
