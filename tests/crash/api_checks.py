"""Checks that every API accepts the next request of a conversation, by the rules of the strict scripted server."""

from collections.abc import Callable
from typing import Any

from odin.core.message import Message
from odin.core.provider import Request, ToolSpec
from odin.providers import anthropic, gemini, openai_chat, openai_responses
from odin.testing import anthropic_api, chat_api, gemini_api, responses_api
from odin.testing.strict import IssuedIds, RequestRefused, parse_body

NO_EXCEPTIONS = frozenset[str]()
TOOLS = (ToolSpec("Read", "Read a file.", {"type": "object", "properties": {"file_path": {"type": "string"}}}),)

Check = Callable[[dict[str, Any], IssuedIds, frozenset[str]], None]

_APIS: dict[str, tuple[Callable[[Request], bytes], Check, str, int]] = {
    "anthropic": (
        lambda request: anthropic.encode_request(request, "anthropic").body,
        anthropic_api.check_request,
        "claude-sonnet-4-5",
        0,
    ),
    "anthropic, thinking": (
        lambda request: anthropic.encode_request(request, "anthropic").body,
        anthropic_api.check_request,
        "claude-sonnet-4-5",
        2000,
    ),
    "chat": (
        lambda request: openai_chat.encode_request(request, "https://example.org/v1", "openai"),
        chat_api.check_request,
        "gpt-4.1",
        0,
    ),
    "responses": (
        lambda request: openai_responses.encode_request(request, "openai"),
        responses_api.check_request,
        "gpt-5",
        2000,
    ),
    "gemini": (
        lambda request: gemini.encode_request(request, "google"),
        gemini_api.check_request,
        "gemini-3.8-flash",
        2000,
    ),
}


def find_refusals(history: tuple[Message, ...], memory: IssuedIds) -> list[str]:
    """Return why APIs refuse this conversation. `memory` holds the ids that its scripted server has issued."""
    found: list[str] = []
    for name, (encode, check, model, thinking) in _APIS.items():
        request = Request(model, history, ("Be brief.",), TOOLS, 4000, thinking=thinking)
        try:
            check({"model": model, **parse_body(encode(request))}, memory, NO_EXCEPTIONS)
        except RequestRefused as refused:
            found.append(f"{name}: {refused}")
    return found
