"""Each API gets a reasoning effort, and a service tier, in its own way."""

from collections.abc import Callable
from typing import Any

import msgspec

from odin.core.message import PromptMessage
from odin.core.provider import Request
from odin.models.catalog import lookup_model
from odin.models.pools import THINKING_BY_EFFORT
from odin.providers import anthropic, gemini, openai_chat, openai_responses
from tests.table import each

Encode = Callable[[Request], bytes]


def by_chat(request: Request, url: str = "https://api.example.com/v1/") -> bytes:
    return openai_chat.encode_request(request, url, "here")


def by_deepseek(request: Request) -> bytes:
    return by_chat(request, "https://api.deepseek.com/v1/")


def by_responses(request: Request) -> bytes:
    return openai_responses.encode_request(request, "openai")


def by_anthropic(request: Request) -> bytes:
    return anthropic.encode_request(request, "anthropic")


def by_gemini(request: Request) -> bytes:
    return gemini.encode_request(request, "google")


def think(budget: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def adaptive(effort: str) -> dict[str, Any]:
    return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}


def reason(effort: str) -> dict[str, Any]:
    return {"reasoning": {"effort": effort, "summary": "auto"}}


def level(name: str) -> dict[str, Any]:
    return {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": name}}


FIELDS = ("reasoning", "reasoning_effort", "thinking", "output_config", "thinkingConfig")


@each(
    "encode, model, effort, sent",
    [
        (by_chat, "qwen", "high", {"reasoning_effort": "high"}),
        (by_chat, "gpt-6-sol", "none", {"reasoning_effort": "none"}),
        (by_chat, "gpt-4.1", "high", {}),
        (
            by_deepseek,
            "deepseek-flash",
            "max",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ),
        (by_deepseek, "deepseek-flash", "none", {"thinking": {"type": "disabled"}}),
        (by_responses, "gpt-6-sol", "xhigh", reason("xhigh")),
        (by_responses, "gpt-6-sol", "none", reason("none")),
        (by_responses, "some-model", "minimal", reason("minimal")),
        (by_responses, "gpt-4.1", "high", {}),
        (by_anthropic, "claude-opus-5", "max", adaptive("max")),
        (by_anthropic, "claude-opus-5", "minimal", adaptive("low")),
        (by_anthropic, "claude-opus-5", "none", {"thinking": {"type": "disabled"}}),
        (by_anthropic, "claude-sonnet-4-5", "low", think(2048)),
        (by_anthropic, "claude-sonnet-4-5", "none", {}),
        (by_gemini, "gemini-3.5-flash", "minimal", level("MINIMAL")),
        (by_gemini, "gemini-4-argon", "max", level("HIGH")),
        (by_gemini, "gemini-4-argon", "none", level("LOW")),
        (
            by_gemini,
            "gemini-2.5-pro",
            "medium",
            {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192}},
        ),
    ],
)
def test_the_effort_is_sent_as_the_api_takes_it(encode: Encode, model: str, effort: str, sent: dict[str, Any]) -> None:
    body = msgspec.json.decode(
        encode(Request(model, (PromptMessage("go"),), thinking=THINKING_BY_EFFORT[effort], effort=effort))
    )
    body |= body.get("generationConfig", {})
    assert {name: body[name] for name in FIELDS if name in body} == sent


@each(
    "encode, model, field",
    [
        (by_chat, "qwen", "service_tier"),
        (by_responses, "gpt-6-sol", "service_tier"),
        (by_anthropic, "claude-opus-5", "service_tier"),
        (by_gemini, "gemini-3.5-flash", "serviceTier"),
    ],
)
def test_the_service_tier_is_sent(encode: Encode, model: str, field: str) -> None:
    body = msgspec.json.decode(encode(Request(model, (PromptMessage("go"),), service_tier="priority")))
    assert body[field] == "priority"


@each(
    "ref, takes_effort",
    [
        ("openai/gpt-4o", False),
        ("google/gemini-2.0-flash", False),
        ("anthropic/claude-3-5-haiku-latest", False),
        ("openai/gpt-6-sol", True),
        ("groq/new", True),
    ],
)
def test_a_model_that_is_known_not_to_reason_takes_no_effort(ref: str, takes_effort: bool) -> None:
    assert lookup_model(ref, {}).takes_effort == takes_effort
