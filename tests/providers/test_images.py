"""Images in requests: the format of each API, limits, and refusals."""

import base64
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from odin.core.errors import BadRequest
from odin.core.message import Image, Message, PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage, ToolResult
from odin.core.provider import Provider, Request
from odin.models.catalog import lookup_model
from odin.providers import anthropic, gemini, openai_chat, openai_responses
from odin.providers.http import HttpClient
from odin.providers.json_contract import flatten_messages
from odin.providers.payload import MAX_IMAGE_CHARS, MAX_IMAGES, ImageBudget, is_about_images
from odin.providers.settings import ModelSettings, ProviderSettings
from odin.providers.wire import WireOptions
from odin.testing import ScriptedServer, fault, say
from odin.testing.script import Api, SeenRequest
from tests import pictures
from tests.waiting import LIMIT_S

from .histories import TOOLS, strip_closing_brackets
from .servers import get_reply

ENCODERS: dict[str, Callable[[Request], bytes]] = {
    "anthropic": lambda request: anthropic.encode_request(request, "here").body,
    "chat": lambda request: openai_chat.encode_request(request, "http://127.0.0.1/v1"),
    "responses": lambda request: openai_responses.encode_request(request, "here"),
    "gemini": lambda request: gemini.encode_request(request, "here"),
}
PROVIDERS: dict[str, Callable[..., Provider]] = {
    "anthropic": anthropic.AnthropicProvider,
    "chat": openai_chat.ChatProvider,
    "responses": openai_responses.ResponsesProvider,
    "gemini": gemini.GeminiProvider,
}
APIS = tuple(PROVIDERS)


def store_image(folder: Path, number: int, size: int = 0) -> Image:
    path = folder / f"{number}.png"
    path.write_bytes(pictures.png(shade=number % 256, noise=b"%d" % number + b"x" * size))
    return Image(str(path), "image/png", 3, 2)


def make_read_step(number: int, *images: Image, is_error: bool = False, notes: tuple[str, ...] = ()) -> list[Message]:
    call = ToolCall(f"call_{number}", "Read", {"file_path": f"/{number}.png"})
    result = ToolResult(f"call_{number}", f"(image: {number}.png)", is_error, images)
    return [ReplyMessage((call,), "here", "m", "tool_use"), ToolMessage((result,), notes)]


def make_request(*messages: Message, images: bool = True, model: str = "gpt-4o") -> Request:
    return Request(model, (PromptMessage("look"), *messages), tools=TOOLS, images=images)


def list_texts_and_images(api: str, body: bytes) -> tuple[list[str], list[bytes]]:
    """Return the texts of the results, and the bytes of every image in the request."""
    seen = SeenRequest("POST", "/", {}, body, json.loads(body), cast("Api", api), 0.0)
    found = re.findall(rb'(?:"data":"|;base64,)([A-Za-z0-9+/=]+)"', body)
    return list(seen.results.values()), [base64.b64decode(data, validate=True) for data in found]


# --- formats ---


def test_anthropic_takes_images_inside_the_result(tmp_path: Path) -> None:
    image = store_image(tmp_path, 1)
    body = json.loads(ENCODERS["anthropic"](make_request(*make_read_step(1, image, notes=("a note",)))))
    result, note = body["messages"][-1]["content"]
    text, shown = result["content"]
    assert text == {"type": "text", "text": "(image: 1.png)"}
    assert shown["source"]["media_type"] == "image/png"
    assert base64.b64decode(shown["source"]["data"]) == Path(image.path).read_bytes()
    assert note == {"type": "text", "text": "a note"}


def test_chat_takes_images_in_a_user_message_before_the_notes(tmp_path: Path) -> None:
    image = store_image(tmp_path, 1)
    body = json.loads(ENCODERS["chat"](make_request(*make_read_step(1, image, notes=("a note",)))))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "user"]
    assert body["messages"][2]["content"] == "(image: 1.png)"
    intro, shown, note = body["messages"][3]["content"]
    assert intro["text"] == "Images of the results above:"
    head, data = shown["image_url"]["url"].split(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data) == Path(image.path).read_bytes()
    assert note == {"type": "text", "text": "a note"}


def test_responses_take_images_in_the_call_output(tmp_path: Path) -> None:
    image = store_image(tmp_path, 1)
    body = json.loads(ENCODERS["responses"](make_request(*make_read_step(1, image))))
    text, shown = body["input"][-1]["output"]
    assert text == {"type": "input_text", "text": "(image: 1.png)"}
    assert shown["type"] == "input_image"
    assert shown["image_url"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("api", APIS)
def test_model_without_image_support_gets_a_note_instead(tmp_path: Path, api: str) -> None:
    body = ENCODERS[api](make_request(*make_read_step(1, store_image(tmp_path, 1)), images=False))
    texts, images = list_texts_and_images(api, body)
    assert images == []
    assert texts == ["[Unsupported tool result type] This model does not support images.\n(image: 1.png)"]


def test_json_contract_is_text_only(tmp_path: Path) -> None:
    flat = flatten_messages(make_request(*make_read_step(1, store_image(tmp_path, 1))).messages)
    assert isinstance(flat[-1], PromptMessage)
    assert "[Unsupported tool result type]" in flat[-1].text
    assert "(image: 1.png)" in flat[-1].text


@pytest.mark.parametrize("api", APIS)
def test_deleted_image_file_is_noted(tmp_path: Path, api: str) -> None:
    image = store_image(tmp_path, 1)
    Path(image.path).unlink()
    texts, images = list_texts_and_images(api, ENCODERS[api](make_request(*make_read_step(1, image))))
    assert images == []
    assert texts == ["(image: 1.png)\n(image no longer shown: its file is gone)"]


# --- limits ---


@pytest.mark.parametrize("api", APIS)
def test_at_most_twenty_images_are_sent_and_always_the_newest(tmp_path: Path, api: str) -> None:
    images = [store_image(tmp_path, number) for number in range(70)]
    history = [message for number, image in enumerate(images) for message in make_read_step(number, image)]
    texts, shown = list_texts_and_images(api, ENCODERS[api](make_request(*history)))
    newest = [Path(image.path).read_bytes() for image in images]
    assert MAX_IMAGES // 2 <= len(shown) <= MAX_IMAGES
    assert shown == newest[-len(shown) :]
    gone = [text for text in texts if "(image no longer shown: there are newer ones" in text]
    assert len(gone) == 70 - len(shown)


@pytest.mark.parametrize("api", APIS)
def test_requests_keep_their_prefix_until_the_image_limit_is_reached(tmp_path: Path, api: str) -> None:
    history: list[Message] = []
    before, changes = b"", 0
    for number in range(60):
        history += make_read_step(number, store_image(tmp_path, number))
        body = ENCODERS[api](make_request(*history))
        changes += not body.startswith(strip_closing_brackets(before))
        before = body
    assert changes == 4, "half of the images are dropped at once"


def test_total_size_of_images_is_limited(tmp_path: Path) -> None:
    images = [store_image(tmp_path, number, size=3_500_000) for number in range(12)]
    history = [message for number, image in enumerate(images) for message in make_read_step(number, image)]
    budget = ImageBudget()
    selection = budget.select_images(make_request(*history))
    results = [one for message in history if isinstance(message, ToolMessage) for one in message.results]
    sizes = [sum(len(data) for _, data in selection.render(one).images) for one in results]
    assert 0 < sum(sizes) <= MAX_IMAGE_CHARS
    assert sizes[-1] > 0
    kept = [size > 0 for size in sizes]
    assert kept == sorted(kept), "the newest images are sent"
    assert sum(map(len, budget._encoded.values())) <= 2 * MAX_IMAGE_CHARS


def test_image_file_is_read_once(tmp_path: Path) -> None:
    budget, image = ImageBudget(), store_image(tmp_path, 1)
    first = budget.select_images(make_request(*make_read_step(1, image)))
    Path(image.path).unlink()
    history = make_read_step(1, image)
    again = budget.select_images(make_request(*history))
    assert not first.is_empty
    assert not again.is_empty


# --- refusals ---


@asynccontextmanager
async def open_provider(api: str, server: ScriptedServer) -> AsyncGenerator[Provider]:
    http = HttpClient({})
    base = server.url if api in ("anthropic", "gemini") else server.openai_url
    try:
        yield PROVIDERS[api](
            name="here", base_url=base, api_key="k", http=http, options=WireOptions(idle_timeout=LIMIT_S)
        )
    finally:
        await http.close()


@pytest.mark.parametrize("api", APIS)
async def test_refused_image_of_a_result_is_left_out_from_then_on(tmp_path: Path, api: str) -> None:
    """The server refuses the second image as broken. The first, which it accepted before, is still sent."""
    good, bad = store_image(tmp_path, 1), store_image(tmp_path, 2)
    Path(bad.path).write_bytes(pictures.png()[:20])
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        async with open_provider(api, server) as provider:
            history = make_read_step(1, good)
            await get_reply(provider, make_request(*history))
            history += make_read_step(2, bad)
            for expected in ("two", "three"):
                said, _ = await get_reply(provider, make_request(*history))
                assert said.text == expected
        assert len(server.rejected) == 1
        texts, images = list_texts_and_images(api, server.requests[-1].body)
        assert images == [Path(good.path).read_bytes()]
        assert texts[1] == "(image: 2.png)\n(image no longer shown: the model's API refused it)"


@pytest.mark.parametrize("api", APIS)
async def test_refused_image_of_a_prompt_is_left_out_from_then_on(tmp_path: Path, api: str) -> None:
    good, bad = store_image(tmp_path, 1), store_image(tmp_path, 2)
    Path(bad.path).write_bytes(pictures.png()[:20])
    first, second = PromptMessage("one", ("a note",), (good,)), PromptMessage("", (), (bad,))
    with ScriptedServer([say("1"), say("2"), say("3")]) as server:
        async with open_provider(api, server) as provider:
            await get_reply(provider, make_request(first))
            history = (first, ReplyMessage((Text("1"),)), second)
            for expected in ("2", "3"):
                said, _ = await get_reply(provider, make_request(*history))
                assert said.text == expected
        assert len(server.rejected) == 1
        body = server.requests[-1].body.decode()
    assert base64.b64encode(Path(good.path).read_bytes()).decode() in body
    assert base64.b64encode(pictures.png()[:20]).decode() not in body
    assert "(image no longer shown: the model's API refused it)" in body


async def test_request_is_repeated_without_images_if_the_model_refuses_them(tmp_path: Path) -> None:
    with ScriptedServer([say("fine")]) as server:
        async with open_provider("chat", server) as provider:
            said, _ = await get_reply(
                provider, make_request(*make_read_step(1, store_image(tmp_path, 1)), model="gpt-3.5-turbo")
            )
    assert said.text == "fine"
    assert "only supported by certain models" in server.rejected[0][1]


async def test_too_large_request_is_repeated_without_images(tmp_path: Path) -> None:
    script = [fault(413, message="Request exceeds the maximum size"), say("fine")]
    with ScriptedServer(script) as server:
        async with open_provider("anthropic", server) as provider:
            said, _ = await get_reply(provider, make_request(*make_read_step(1, store_image(tmp_path, 1))))
    assert said.text == "fine"
    assert list_texts_and_images("anthropic", server.requests[1].body)[1] == []


async def test_other_refusal_is_not_repeated_without_images(tmp_path: Path) -> None:
    with ScriptedServer([fault(400, message="max_tokens: too many")]) as server:
        async with open_provider("anthropic", server) as provider:
            with pytest.raises(BadRequest, match="max_tokens"):
                await get_reply(provider, make_request(*make_read_step(1, store_image(tmp_path, 1))))
    assert len(server.requests) == 1


# --- image support ---


@pytest.mark.parametrize(
    ("ref", "sees"),
    [
        ("anthropic/claude-sonnet-4-5-20250929", True),
        ("anthropic/claude-of-tomorrow-9", True),
        ("anthropic/something-else", False),
        ("openai/gpt-5.2", True),
        ("openai/gpt-of-tomorrow", False),
        ("openrouter/anthropic/claude-sonnet-4.5", True),
        ("deepseek/deepseek-v4-pro", False),
        ("groq/openai/gpt-oss-120b", False),
        ("ollama/qwen3-coder", False),
    ],
)
def test_image_support_of_known_models(ref: str, sees: bool) -> None:
    assert lookup_model(ref, {}).images is sees


def test_refusals_about_images_are_recognized() -> None:
    texts = ("vision is not enabled", "the image is damaged", "no such provision", "an unknown revision")
    assert [is_about_images(BadRequest(text)) for text in texts] == [True, True, False, False]


def test_configuration_decides_about_image_support() -> None:
    settings = {
        "ollama": ProviderSettings(models={"qwen3-vl": ModelSettings(images=True)}),
        "openai": ProviderSettings(models={"gpt-5.2": ModelSettings(images=False)}),
    }
    assert lookup_model("ollama/qwen3-vl", settings).images
    assert not lookup_model("openai/gpt-5.2", settings).images
