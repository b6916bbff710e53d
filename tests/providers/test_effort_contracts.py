"""The requests of the current models against what their vendors take."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from odin.core.message import PromptMessage
from odin.core.provider import EFFORTS, Request
from odin.models.pools import THINKING_BY_EFFORT
from odin.providers import gemini, openai_chat, openai_responses
from odin.testing import chat_api, gemini_api, responses_api
from odin.testing.strict import IssuedIds, RequestRefused

from .histories import TOOLS

OPENAI_MODELS = (
    *(
        "gpt-6.2-astra",
        "gpt-6.2-sol",
        "gpt-6-astra",
        "gpt-6.1-sol",
        "gpt-6.1-terra",
        "gpt-6-sol",
        "gpt-6-luna",
        "gpt-5.6",
        "gpt-5.6-terra",
        "gpt-5.5",
    ),
    *("gpt-5.5-pro", "gpt-5.4-mini", "gpt-5.3-codex", "gpt-5.2", "gpt-5.1", "gpt-5.1-codex", "gpt-5", "gpt-5-nano"),
    *("gpt-5-pro", "gpt-5-chat-latest", "gpt-4.1", "gpt-4o-mini", "o3", "o4-mini-2025-04-16", "gpt-oss-20b", "qwen3"),
)
ONLY_RESPONSES = ("gpt-6-astra", "gpt-6.1-sol", "gpt-5.5-pro")
"""Take tools over Responses only: https://developers.openai.com/api/docs/guides/deployment-checklist."""

GEMINI_MODELS = (
    *("gemini-4-argon", "gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash", "gemini-3.5-flash"),
    *("gemini-3.5-flash-lite", "gemini-3.1-pro-preview", "gemini-3.1-flash-lite", "gemini-3-flash-preview"),
    *("gemini-3-pro-preview", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-2.0-flash"),
)


def encode_chat(request: Request) -> bytes:
    return openai_chat.encode_request(request, "https://gateway.example/v1/chat/completions")


def encode_responses(request: Request) -> bytes:
    return openai_responses.encode_request(request, "openai")


def encode_gemini(request: Request) -> bytes:
    return gemini.encode_request(request, "google")


@pytest.mark.parametrize(
    ("encode", "wire", "models"),
    [
        (encode_responses, responses_api, OPENAI_MODELS),
        (encode_chat, chat_api, OPENAI_MODELS),
        (encode_gemini, gemini_api, GEMINI_MODELS),
    ],
    ids=["responses", "chat", "gemini"],
)
def test_no_model_refuses_an_effort_a_small_job_or_its_tools(
    encode: Callable[[Request], bytes], wire: Any, models: tuple[str, ...]
) -> None:
    refused: list[str] = []
    for model in models:
        for effort in ("", *EFFORTS):
            for tools in (TOOLS, ()):
                if tools and wire is chat_api and model in ONLY_RESPONSES:
                    continue
                request = Request(
                    model,
                    (PromptMessage("go"),),
                    tools=tools,
                    temperature=0.3,
                    effort=effort,
                    thinking=THINKING_BY_EFFORT.get(effort, 0),
                    brief=not effort,
                )
                body = {"model": model, **msgspec.json.decode(encode(request))}
                try:
                    wire.check_request(body, IssuedIds(), ())
                except RequestRefused as error:
                    refused.append(f"{model} {effort!r} {bool(tools)}: {error}")
    assert refused == []
