"""The scripted Gemini server refuses what the real API refuses, with the same messages and formats."""

import base64
import copy
import http.client
import json
from typing import Any

from odin.testing import ScriptedServer, call, fault, reply, say
from odin.testing.gemini_api import FOREIGN_SIGNATURES, check_request, make_signature
from odin.testing.strict import IssuedIds, RequestRefused
from tests import pictures
from tests.table import each
from tests.test_testing_strict import DELETE, set_at
from tests.waiting import LIMIT_S

MODEL = "gemini-3.8-flash"
PATH = f"/v1beta/models/{MODEL}:"
SIGNATURE = make_signature(MODEL, 1, "Read")
GOOD: dict[str, Any] = {
    "model": MODEL,
    "systemInstruction": {"parts": [{"text": "You are a test."}]},
    "generationConfig": {"maxOutputTokens": 4096, "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"}},
    "tools": [{"functionDeclarations": [{"name": "Read", "parametersJsonSchema": {"type": "object"}}, {"name": "LS"}]}],
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {"functionCall": {"id": "a", "name": "Read", "args": {"x": 1}}, "thoughtSignature": SIGNATURE},
                {"functionCall": {"id": "b", "name": "LS", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "Read", "response": {"output": "one"}}},
                {"functionResponse": {"id": "b", "name": "LS", "response": {"error": "two"}}},
            ],
        },
    ],
}


def find_refusal(changes: list[tuple[str, Any]]) -> str:
    body = copy.deepcopy(GOOD)
    for path, value in changes:
        set_at(body, path, value)
    try:
        check_request(body, IssuedIds(), ())
    except RequestRefused as refused:
        assert refused.status == 400
        return str(refused)
    return ""


ANSWERS = "contents.2.parts"
CALLS = "contents.1.parts"
PICTURE = {"mimeType": "image/png", "data": "iVBORw0KGgo="}
WORDS = {"role": "user", "parts": [{"text": "Go on."}]}


@each(
    "path, value, sentence",
    [
        ("foo", 1, 'Unknown name "foo": Cannot find field.'),
        ("contents", [], "contents is not specified"),
        ("contents.0.role", "assistant", "Please use a valid role: user, model."),
        ("contents.0.parts", [], "contents[0].parts: contents.parts must not be empty"),
        ("contents.0.parts.0", {}, "contents[0].parts[0].data: required oneof field 'data' must have one"),
        ("contents.0.parts.0.inlineData", PICTURE, "is already set"),
        ("contents.0.parts.0.words", "x", "Unknown name \"words\" at 'contents[0].parts[0]'"),
        (
            "contents.0.parts.0",
            {"inlineData": {**PICTURE, "mimeType": "image/gif"}},
            "Unsupported MIME type: image/gif",
        ),
        ("contents.0.parts.0", {"inlineData": {**PICTURE, "data": "?"}}, "Base64 decoding failed"),
        ("contents.0.parts.0", {"inlineData": PICTURE}, "Unable to process input image"),
        (f"{ANSWERS}.1", DELETE, "number of function response parts is equal to the number of function call parts"),
        (f"{CALLS}.2", DELETE, "number of function response parts is equal to the number of function call parts"),
        ("contents.1", DELETE, "function response turn comes immediately after a function call turn"),
        ("contents.2", DELETE, "number of function response parts|end with a user role"),
        ("contents.2", WORDS, "number of function response parts is equal"),
        ("contents.0", DELETE, "function call turn comes immediately after a user turn"),
        ("contents.0.role", "model", "function call turn comes immediately after a user turn"),
        (f"{ANSWERS}.1.functionResponse.id", "x", "matches no function call of the turn before"),
        (f"{ANSWERS}.1.functionResponse.name", "Read", "matches no function call of the turn before"),
        (f"{ANSWERS}.1.functionResponse.response", DELETE, "functionResponse.response"),
        (f"{CALLS}.1.functionCall.args", [], "functionCall.args"),
        (f"{CALLS}.1.functionCall.name", "1 odd", "[FIELD_INVALID] Invalid function name"),
        (f"{CALLS}.1.thoughtSignature", DELETE, "Function call is missing a thought_signature in functionCall parts."),
        (f"{CALLS}.1.thoughtSignature", "made up", "Corrupted thought signature."),
        (f"{CALLS}.1.thoughtSignature", make_signature("gemini-4-argon", 1, "Read"), "Invalid thought signature."),
        (f"{CALLS}.0.thoughtSignature", SIGNATURE, "Invalid thought signature."),
        ("tools.0.functionDeclarations.1.name", "Read", "Duplicate function declaration found: Read"),
        ("tools.0.functionDeclarations.1.name", "two words", "[FIELD_INVALID] Invalid function name"),
        ("tools.0.functionDeclarations.0.parameters", {}, "mutually exclusive"),
        ("tools.0.functionDeclarations.0.parametersJsonSchema", {"type": "string"}, "should be of type OBJECT"),
        ("generationConfig.maxTokens", 1, "Unknown name \"maxTokens\" at 'generation_config'"),
        ("generationConfig.maxOutputTokens", 0, "maxOutputTokens value of 0"),
        ("generationConfig.temperature", 3, "must be in the range"),
        ("generationConfig.responseJsonSchema", {}, "only allowed with response_mime_type"),
        ("generationConfig.thinkingConfig.thinkingBudget", 100, "only one of thinking budget and thinking level"),
        ("generationConfig.thinkingConfig.thinkingLevel", "EXTREME", "'extreme' is not a supported thinking level"),
        ("model", "gemini-2.5-pro", "Thinking level is not supported for this model."),
        ("generationConfig.thinkingConfig", {"thinkingBudget": -1}, ""),
        (f"{CALLS}.1.thoughtSignature", FOREIGN_SIGNATURES[0], ""),
        ("contents.3+", WORDS, ""),
        (f"{ANSWERS}.2+", {"text": "a note"}, ""),
    ],
)
def test_invalid_requests_are_refused_and_valid_ones_accepted(path: str, value: Any, sentence: str) -> None:
    found = find_refusal([(path, value)])
    assert any(part in found for part in sentence.split("|")) if sentence else found == ""


@each(
    "model, thinking, sentence",
    [
        ("gemini-4-argon", {"thinkingLevel": "MINIMAL"}, "Allowed values are: low, medium, high."),
        ("gemini-3.8-flash", {"thinkingLevel": "MINIMAL"}, "Allowed values are: low, medium, high."),
        ("gemini-3.7-flash", {"thinkingLevel": "LOW"}, ""),
        ("gemini-3.5-flash", {"thinkingLevel": "minimal"}, ""),
        ("gemini-3.1-flash-lite", {"thinkingLevel": "MINIMAL"}, ""),
        ("gemini-3-pro-preview", {"thinkingLevel": "MEDIUM"}, "Allowed values are: low, high."),
        ("gemini-2.5-flash", {"thinkingBudget": 40_000}, "between 0 and 24576"),
        ("gemini-4-argon", {"thinkingBudget": 100}, "Thinking budget is not supported"),
        ("gemini-2.5-pro", {"thinkingBudget": 0}, "Budget 0 is invalid."),
        ("gemini-2.5-flash", {"thinkingBudget": 0}, ""),
        ("gemini-2.0-flash", {"thinkingBudget": 100}, "Thinking is not enabled"),
        ("gemini-2.0-flash", {}, ""),
    ],
)
def test_allowed_thinking_settings_depend_on_the_model(model: str, thinking: dict[str, Any], sentence: str) -> None:
    found = find_refusal([("model", model), ("generationConfig.thinkingConfig", thinking), ("contents", [WORDS])])
    assert (sentence in found) if sentence else found == ""


def test_an_older_model_and_an_earlier_turn_need_no_signature() -> None:
    without_signature = (f"{CALLS}.1.thoughtSignature", DELETE)
    assert find_refusal([without_signature, ("contents.3+", WORDS)]) == ""
    assert find_refusal([without_signature, ("model", "gemini-2.5-flash"), ("generationConfig", {})]) == ""


def post(server: ScriptedServer, method: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    own = {"content-type": "application/json", **({"x-goog-api-key": "k"} if headers is None else headers)}
    try:
        connection.request("POST", PATH + method, json.dumps(body), own)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_responses_have_the_formats_of_the_real_api() -> None:
    turns = [reply("Hello", [call("Read", {"x": 1})], "hm"), say("done"), fault(429, code="PerDay"), fault(503)]
    with ScriptedServer(turns, models=[MODEL]) as server:
        status, text = post(server, "streamGenerateContent?alt=sse", {"contents": [WORDS]})
        events = [json.loads(line[6:]) for line in text.split("\r\n\r\n") if line]
        whole = json.loads(post(server, "generateContent", {"contents": [WORDS]})[1])
        limited, busy = (json.loads(post(server, "generateContent", {"contents": [WORDS]})[1]) for _ in range(2))
        status_without_key, answer_without_key = post(server, "generateContent", {"contents": [WORDS]}, {})
        refused_status, refused = post(server, "generateContent", {"contents": []})
        assert (server.requests[0].model, server.requests[0].messages) == (MODEL, [WORDS])
    assert status == 200
    parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
    assert [sorted(part) for part in parts] == [
        ["text", "thought"],
        ["text"],
        ["functionCall", "thoughtSignature"],
        ["text"],
    ]
    assert [event["candidates"][0].get("finishReason") for event in events] == [None, None, None, "STOP"]
    assert events[-1]["usageMetadata"]["thoughtsTokenCount"] == 1
    assert "".join(part["text"] for part in whole["candidates"][0]["content"]["parts"]) == "done"
    assert limited["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert [detail["@type"].rpartition(".")[2] for detail in limited["error"]["details"]] == [
        "QuotaFailure",
        "RetryInfo",
    ]
    assert (busy["error"]["code"], busy["error"]["status"]) == (503, "UNAVAILABLE")
    assert status_without_key == 403 and "unregistered callers" in answer_without_key
    assert refused_status == 400 and json.loads(refused)["error"]["status"] == "INVALID_ARGUMENT"


@each("kind, data", [("png", pictures.png()), ("jpeg", pictures.jpeg()), ("webp", pictures.webp_extended(3, 2))])
def test_supported_images_are_accepted(kind: str, data: bytes) -> None:
    blob = {"mimeType": f"image/{kind}", "data": base64.b64encode(data).decode()}
    assert find_refusal([("contents.0.parts.1+", {"inlineData": blob})]) == ""
    assert find_refusal([(f"{ANSWERS}.0.functionResponse.parts", [{"inlineData": blob}])]) == ""
