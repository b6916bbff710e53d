"""Encoding a growing history step by step, and the images in it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
)
from odin.core.provider import Request
from odin.providers import anthropic, gemini, openai_chat, openai_responses, payload
from odin.providers.payload import EncodedHistory, ImageBudget
from tests.table import each

PROMPT = PromptMessage("go")
CALLS = ReplyMessage((Thinking("hmm", "s"), ToolCall("t", "Read", {})))
RESULTS = ToolMessage((ToolResult("t", "text"),))
ANSWER = ReplyMessage((Thinking("so", "s"), Text("done")))
THOUGHTS = ReplyMessage((Thinking("cut", "s"), Text(" \n")), interrupted=True)


@each(
    ("messages", "start"),
    [
        ((), 0),
        ((CALLS, RESULTS), 0),
        ((PROMPT,), 1),
        ((PROMPT, PROMPT), 2),
        ((PROMPT, CALLS, RESULTS), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT, PROMPT), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT, CALLS, RESULTS), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT, CALLS, RESULTS, PROMPT), 1),
        ((PROMPT, CALLS, RESULTS, THOUGHTS, PROMPT), 1),
        ((PROMPT, THOUGHTS, PROMPT, CALLS, RESULTS), 3),
        ((PROMPT, CALLS, RESULTS, ANSWER), 1),
        ((PROMPT, CALLS, RESULTS, ANSWER, PROMPT), 5),
        ((PROMPT, CALLS, RESULTS, ANSWER, PROMPT, PROMPT, CALLS, RESULTS), 6),
        ((PROMPT, CALLS, RESULTS, PROMPT, ANSWER, PROMPT, CALLS, RESULTS, PROMPT), 6),
    ],
)
def test_start_of_the_running_tool_loop_is_found(messages: tuple[Message, ...], start: int) -> None:
    assert EncodedHistory(messages).loop_start == start


Encode = Callable[[Request, EncodedHistory | None], bytes]
APIS: dict[str, Encode] = {
    "anthropic": lambda request, history: anthropic.encode_request(request, "here", history=history).body,
    "chat": lambda request, history: openai_chat.encode_request(request, "http://127.0.0.1/v1", "here", None, history),
    "mistral": lambda request, history: openai_chat.encode_request(
        request, "https://api.mistral.ai/v1", "here", None, history
    ),
    "deepseek": lambda request, history: openai_chat.encode_request(
        request, "https://api.deepseek.com/v1", "here", None, history
    ),
    "gemini": lambda request, history: gemini.encode_request(request, "here", None, history),
    "responses": lambda request, history: openai_responses.encode_request(request, "here", None, history),
}


def grow(rng: random.Random, number: int) -> list[Message]:
    """Return the next messages of a conversation: a prompt, an answer, or calls with their results."""
    name = rng.choice(["t", f"id {number}", "same"])
    calls = tuple(ToolCall(name, "Read it", {"at": number}) for _ in range(rng.randint(1, 2)))
    thinking = Thinking(f"thought {number}", f'{{"id": "r{number}", "encrypted_content": "x"}}')
    reply = ReplyMessage((thinking, Text("\ud800 lone"), *calls), "here", rng.choice(["m", "claude-opus-5"]))
    results = ToolMessage(tuple(ToolResult(call.id, f"out {number}") for call in calls), ("note",))
    answer = ReplyMessage((Text(rng.choice(["done", " "])),))
    return rng.choice([[PromptMessage(f"go {number}")], [answer, PromptMessage("on")], [reply, results]])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("seed", range(4))
def test_growing_history_is_encoded_like_a_new_one(api: str, seed: int) -> None:
    rng, encode = random.Random(seed), APIS[api]
    messages: list[Message] = [PromptMessage("start")]
    history = EncodedHistory()
    for number in range(40):
        messages += grow(rng, number)
        request = Request(
            rng.choice(["m", "claude-opus-5"]), tuple(messages), ("system",), thinking=rng.choice([0, 2000])
        )
        assert history.extend(request.messages)
        assert encode(request, history) == encode(request, None)


@pytest.mark.parametrize("api", APIS)
def test_only_new_messages_are_encoded(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []
    original = payload.encode_body

    def encode_body(body: dict[str, Any]) -> bytes:
        encoded.append(body)
        return original(body)

    monkeypatch.setattr(payload, "encode_body", encode_body)
    messages: tuple[Message, ...] = (PROMPT, *(CALLS, RESULTS) * 50)
    history = EncodedHistory(messages)
    APIS[api](Request("m", messages), history)
    first = len(encoded)
    assert history.extend((*messages, CALLS, RESULTS))
    APIS[api](Request("m", (*messages, CALLS, RESULTS)), history)
    assert len(encoded) - first < 10 < 100 < first


def test_changed_history_cannot_be_extended() -> None:
    history = EncodedHistory((PROMPT, CALLS, RESULTS))
    assert not history.extend((PROMPT, CALLS, ToolMessage(RESULTS.results, ("note",)), PROMPT))
    assert not history.extend((PROMPT, CALLS))
    assert history.extend((PROMPT, CALLS, RESULTS, PROMPT))


@pytest.mark.parametrize("api", APIS)
def test_deleted_images_are_left_out_of_a_growing_history(api: str, tmp_path: Path) -> None:
    image = tmp_path / "a.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 40)
    messages: tuple[Message, ...] = (PromptMessage("see", (), (Image(str(image), "image/png"),)),)
    history = EncodedHistory(messages)
    request = Request("m", messages, images=True)
    before = APIS[api](request, history)
    assert before == APIS[api](request, None)
    image.unlink()
    assert APIS[api](request, history) == APIS[api](request, None) != before
    assert ImageBudget().select_images(request).is_empty
