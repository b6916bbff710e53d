"""The scripted server accepts the images that the real APIs accept, and refuses others with the same messages."""

import base64
from typing import Any

import pytest

from odin.testing import ScriptedServer, say
from tests import pictures
from tests.test_testing_strict import send_request, valid_request


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64(data)}"


def image_block(data: str, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def anthropic_request(*blocks: Any, **result: Any) -> dict[str, Any]:
    """Return a valid request whose first tool result contains these blocks."""
    body = valid_request("anthropic")
    body["messages"][2]["content"][0] |= {"content": list(blocks), **result}
    return body


def chat_request(*parts: Any, model: str = "gpt-4o") -> dict[str, Any]:
    body = valid_request("chat")
    body["messages"].append({"role": "user", "content": list(parts)})
    return {**body, "model": model}


def responses_request(*parts: Any) -> dict[str, Any]:
    body = valid_request("responses")
    output = next(item for item in body["input"] if item.get("type") == "function_call_output")
    output["output"] = list(parts)
    return body


def find_refusal(api: str, body: dict[str, Any]) -> str:
    """Return the error message of the server for a request; "" if it accepts it."""
    with ScriptedServer([say("ok")]) as server:
        status, answer = send_request(server, api, body)
        if status == 200:
            return ""
        assert status == 400
        return answer["error"]["message"]


KINDS = {
    "image/png": pictures.png(),
    "image/jpeg": pictures.jpeg(),
    "image/gif": pictures.gif(),
    "image/webp": pictures.WEBP_LOSSY,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_image_type_is_accepted(kind: str) -> None:
    data = KINDS[kind]
    assert (
        find_refusal("anthropic", anthropic_request({"type": "text", "text": "x"}, image_block(b64(data), kind))) == ""
    )
    assert (
        find_refusal(
            "chat", chat_request({"type": "image_url", "image_url": {"url": data_url(data, kind), "detail": "low"}})
        )
        == ""
    )
    text = {"type": "input_text", "text": "x"}
    assert (
        find_refusal("responses", responses_request(text, {"type": "input_image", "image_url": data_url(data, kind)}))
        == ""
    )


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (image_block("no base64!"), "invalid base64 data"),
        (image_block(""), "image cannot be empty"),
        (image_block(b64(pictures.png()[:20])), "Could not process image"),
        (image_block(b64(b"text")), "Could not process image"),
        (image_block(b64(pictures.png()), "image/jpeg"), "appears to be a image/png image"),
        (image_block(b64(pictures.png()), "image/bmp"), "media_type: Input should be"),
        (image_block("A" * (5 * 1024 * 1024 + 4)), "image exceeds 5 MB maximum"),
        (image_block(b64(pictures.png(8001, 1))), "exceed max allowed size: 8000 pixels"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}, "source: Field required"),
        ({**image_block(b64(pictures.png())), "detail": "low"}, "Extra inputs are not permitted"),
        (
            {"type": "image_url", "image_url": {"url": data_url(pictures.png())}},
            "does not match any of the expected tags",
        ),
    ],
)
def test_anthropic_refuses_broken_images(broken: dict[str, Any], sentence: str) -> None:
    assert sentence in find_refusal("anthropic", anthropic_request(broken))


def test_many_images_must_be_small() -> None:
    few = [image_block(b64(pictures.png(2001, 1, shade=number))) for number in range(20)]
    assert find_refusal("anthropic", anthropic_request(*few)) == ""
    assert "many-image requests: 2000 pixels" in find_refusal("anthropic", anthropic_request(*few, few[0]))
    small = [image_block(b64(pictures.png(2000, 1)))] * 21
    assert find_refusal("anthropic", anthropic_request(*small)) == ""


def test_error_result_with_an_image_is_refused() -> None:
    body = anthropic_request({"type": "text", "text": "x"}, image_block(b64(pictures.png())), is_error=True)
    assert "all content must be type `text` if `is_error` is true" in find_refusal("anthropic", body)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("data:image/png;base64,!!", "Expected a base64-encoded data URL"),
        ("data:image/png;base64,", "Expected a base64-encoded data URL"),
        ("data:text/plain;base64,eA==", "Only image types are supported"),
        (data_url(b"what"), "unsupported image"),
        (data_url(pictures.png(), "image/tiff"), "unsupported image"),
        ("/tmp/a.png", "Expected a valid URL"),
        (None, "Missing required parameter"),
    ],
)
def test_openai_apis_refuse_broken_images(given: Any, sentence: str) -> None:
    assert sentence in find_refusal("chat", chat_request({"type": "image_url", "image_url": {"url": given}}))
    assert sentence in find_refusal("responses", responses_request({"type": "input_image", "image_url": given}))


def test_image_blocks_of_another_api_are_refused() -> None:
    image = data_url(pictures.png())
    assert "expected an object" in find_refusal("chat", chat_request({"type": "image_url", "image_url": image}))
    assert "Invalid value: 'input_image'" in find_refusal(
        "chat", chat_request({"type": "input_image", "image_url": image})
    )
    assert "Invalid value: 'image_url'" in find_refusal(
        "responses", responses_request({"type": "image_url", "image_url": {}})
    )
    body = valid_request("chat")
    body["messages"][-1 if body["messages"][-1]["role"] == "tool" else 2]["content"] = [
        {"type": "image_url", "image_url": {"url": image}}
    ]
    assert "Invalid value: 'image_url'" in find_refusal("chat", body)


def test_models_without_vision_refuse_images() -> None:
    body = chat_request({"type": "image_url", "image_url": {"url": data_url(pictures.png())}}, model="gpt-3.5-turbo")
    assert "only supported by certain models" in find_refusal("chat", body)


def test_tokens_of_an_image_do_not_depend_on_its_bytes() -> None:
    large = pictures.png(noise=b"x" * 900_000)
    with ScriptedServer([say("ok")]) as server:
        _, answer = send_request(server, "anthropic", anthropic_request(image_block(b64(large))))
    assert 1600 < sum(answer["usage"][name] for name in ("input_tokens", "cache_creation_input_tokens")) < 3000
