"""The scripted server takes the images the real APIs take, and refuses the others in their words."""

import base64
from typing import Any

import pytest

from odin.testing import ScriptedServer, say
from tests import pictures
from tests.test_testing_strict import ask, good


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64(data)}"


def block(data: str, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def anthropic(*blocks: Any, **result: Any) -> dict[str, Any]:
    """A legal request whose first result holds these blocks."""
    body = good("anthropic")
    body["messages"][2]["content"][0] |= {"content": list(blocks), **result}
    return body


def chat(*parts: Any, model: str = "gpt-4o") -> dict[str, Any]:
    body = good("chat")
    body["messages"].append({"role": "user", "content": list(parts)})
    return {**body, "model": model}


def responses(*parts: Any) -> dict[str, Any]:
    body = good("responses")
    output = next(item for item in body["input"] if item.get("type") == "function_call_output")
    output["output"] = list(parts)
    return body


def refusal(api: str, body: dict[str, Any]) -> str:
    """What the server says against a request; nothing when it takes it."""
    with ScriptedServer([say("ok")]) as server:
        status, answer = ask(server, api, body)
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
def test_every_kind_is_taken_in_its_place(kind: str) -> None:
    data = KINDS[kind]
    assert refusal("anthropic", anthropic({"type": "text", "text": "x"}, block(b64(data), kind))) == ""
    assert refusal("chat", chat({"type": "image_url", "image_url": {"url": url(data, kind), "detail": "low"}})) == ""
    text = {"type": "input_text", "text": "x"}
    assert refusal("responses", responses(text, {"type": "input_image", "image_url": url(data, kind)})) == ""


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (block("no base64!"), "invalid base64 data"),
        (block(""), "image cannot be empty"),
        (block(b64(pictures.png()[:20])), "Could not process image"),
        (block(b64(b"text")), "Could not process image"),
        (block(b64(pictures.png()), "image/jpeg"), "appears to be a image/png image"),
        (block(b64(pictures.png()), "image/bmp"), "media_type: Input should be"),
        (block("A" * (5 * 1024 * 1024 + 4)), "image exceeds 5 MB maximum"),
        (block(b64(pictures.png(8001, 1))), "exceed max allowed size: 8000 pixels"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}, "source: Field required"),
        ({**block(b64(pictures.png())), "detail": "low"}, "Extra inputs are not permitted"),
        ({"type": "image_url", "image_url": {"url": url(pictures.png())}}, "does not match any of the expected tags"),
    ],
)
def test_what_anthropic_refuses(broken: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal("anthropic", anthropic(broken))


def test_many_images_must_be_small() -> None:
    few = [block(b64(pictures.png(2001, 1, shade=number))) for number in range(20)]
    assert refusal("anthropic", anthropic(*few)) == ""
    assert "many-image requests: 2000 pixels" in refusal("anthropic", anthropic(*few, few[0]))
    small = [block(b64(pictures.png(2000, 1)))] * 21
    assert refusal("anthropic", anthropic(*small)) == ""


def test_a_failed_call_has_no_image() -> None:
    body = anthropic({"type": "text", "text": "x"}, block(b64(pictures.png())), is_error=True)
    assert "all content must be type `text` if `is_error` is true" in refusal("anthropic", body)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("data:image/png;base64,!!", "Expected a base64-encoded data URL"),
        ("data:image/png;base64,", "Expected a base64-encoded data URL"),
        ("data:text/plain;base64,eA==", "Only image types are supported"),
        (url(b"what"), "unsupported image"),
        (url(pictures.png(), "image/tiff"), "unsupported image"),
        ("/tmp/a.png", "Expected a valid URL"),
        (None, "Missing required parameter"),
    ],
)
def test_what_the_openai_apis_refuse(given: Any, sentence: str) -> None:
    assert sentence in refusal("chat", chat({"type": "image_url", "image_url": {"url": given}}))
    assert sentence in refusal("responses", responses({"type": "input_image", "image_url": given}))


def test_the_shapes_of_one_api_are_not_those_of_another() -> None:
    image = url(pictures.png())
    assert "expected an object" in refusal("chat", chat({"type": "image_url", "image_url": image}))
    assert "Invalid value: 'input_image'" in refusal("chat", chat({"type": "input_image", "image_url": image}))
    assert "Invalid value: 'image_url'" in refusal("responses", responses({"type": "image_url", "image_url": {}}))
    body = good("chat")
    body["messages"][-1 if body["messages"][-1]["role"] == "tool" else 2]["content"] = [
        {"type": "image_url", "image_url": {"url": image}}
    ]
    assert "Invalid value: 'image_url'" in refusal("chat", body)


def test_models_without_eyes_refuse_images() -> None:
    body = chat({"type": "image_url", "image_url": {"url": url(pictures.png())}}, model="gpt-3.5-turbo")
    assert "only supported by certain models" in refusal("chat", body)


def test_an_image_counts_as_an_image_and_not_as_its_characters() -> None:
    large = pictures.png(noise=b"x" * 900_000)
    with ScriptedServer([say("ok")]) as server:
        _, answer = ask(server, "anthropic", anthropic(block(b64(large))))
    assert 1600 < sum(answer["usage"][name] for name in ("input_tokens", "cache_creation_input_tokens")) < 3000
