"""The scripted server refuses what the real APIs refuse, with the same messages, and accepts what they accept."""

import copy
import http.client
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.testing import EmulatedLocal, ScriptedServer, call, reply, say
from tests.table import each
from tests.waiting import LIMIT_S

PATHS = {"anthropic": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
KEYS = {
    "anthropic": {"x-api-key": "k", "anthropic-version": "2023-06-01", "content-type": "application/json"},
    "chat": {"authorization": "Bearer k", "content-type": "application/json"},
    "responses": {"authorization": "Bearer k", "content-type": "application/json"},
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
DELETE = object()


def send_request(
    server: ScriptedServer, api: str, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    try:
        connection.request("POST", PATHS[api], data, KEYS[api] if headers is None else headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def get(server: ScriptedServer, path: str, headers: dict[str, str] | None = None, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers or {})
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            return answer.status
        return json.loads(data) if answer.headers["content-type"] == "application/json" else data.decode()
    finally:
        connection.close()


def valid_request(api: str) -> dict[str, Any]:
    """Return a valid request that contains two calls and their results."""
    return copy.deepcopy({"anthropic": ANTHROPIC, "chat": CHAT, "responses": RESPONSES}[api])


ANTHROPIC: dict[str, Any] = {
    "model": "claude-x",
    "max_tokens": 4096,
    "system": [{"type": "text", "text": "You are a test.", "cache_control": {"type": "ephemeral"}}],
    "tools": [
        {"name": "Read", "description": "Reads.", "input_schema": SCHEMA},
        {"name": "LS", "input_schema": SCHEMA},
    ],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_a", "name": "Read", "input": {"x": 1}},
                {"type": "tool_use", "id": "toolu_b", "name": "LS", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": "one"},
                {"type": "tool_result", "tool_use_id": "toolu_b", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
}

CHAT: dict[str, Any] = {
    "model": "gpt-4.1",
    "tools": [
        {"type": "function", "function": {"name": "Read", "description": "Reads.", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "LS", "parameters": SCHEMA}},
    ],
    "messages": [
        {"role": "system", "content": "You are a test."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_a", "type": "function", "function": {"name": "Read", "arguments": '{"x": 1}'}},
                {"id": "call_b", "type": "function", "function": {"name": "LS", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "one"},
        {"role": "tool", "tool_call_id": "call_b", "content": "two"},
        {"role": "user", "content": "Go on."},
    ],
}

RESPONSES: dict[str, Any] = {
    "model": "gpt-4.1",
    "instructions": "You are a test.",
    "store": False,
    "tools": [
        {"type": "function", "name": "Read", "description": "Reads.", "parameters": SCHEMA},
        {"type": "function", "name": "LS", "parameters": SCHEMA},
    ],
    "input": [
        {"role": "user", "content": "hi"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_a", "name": "Read", "arguments": '{"x": 1}'},
        {"type": "function_call", "call_id": "call_b", "name": "LS", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_a", "output": "one"},
        {"type": "function_call_output", "call_id": "call_b", "output": "two"},
    ],
}


def set_at(body: Any, path: str, value: Any) -> None:
    """Set, insert ("3+" before number 3) or delete the value at the path."""
    *parents, last = path.split(".")
    for step in parents:
        body = body[int(step) if isinstance(body, list) else step]
    if last.endswith("+"):
        body.insert(int(last[:-1]), value)
    elif value is DELETE:
        del body[int(last) if isinstance(body, list) else last]
    else:
        body[int(last) if isinstance(body, list) else last] = value


def send_changed(api: str, changes: Sequence[tuple[str, Any]], **options: Any) -> tuple[int, str]:
    body = valid_request(api)
    for path, value in changes:
        set_at(body, path, value)
    with ScriptedServer([say("accepted")], **options) as server:
        status, answer = send_request(server, api, body)
        if status == 200:
            return status, ""
        assert server.rejected == [(server.requests[0], answer["error"]["message"])]
        assert server.script.left == 1
    return status, answer["error"]["message"]


@pytest.mark.parametrize("api", PATHS)
def test_valid_request_is_accepted(api: str) -> None:
    assert send_changed(api, []) == (200, "")


USE: dict[str, Any] = {"type": "tool_use", "id": "toolu_c", "name": "LS", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_a", "content": "again"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "made up"}
BUDGET = {"type": "enabled", "budget_tokens": 2048}


@each(
    ("path", "value", "sentence"),
    [
        ("model", DELETE, "model: Field required"),
        ("model", "", "model: String should have at least 1 character"),
        ("messages", DELETE, "messages: Field required"),
        ("messages", [], "messages: at least one message is required"),
        ("max_tokens", DELETE, "max_tokens: Field required"),
        ("max_tokens", 0, "max_tokens: Input should be greater than or equal to 1"),
        ("max_tokens", True, "max_tokens: Input should be a valid integer"),
        ("max_completion_tokens", 5, "max_completion_tokens: Extra inputs are not permitted"),
        ("temperature", 1.5, "temperature: range: 0..1"),
        ("stop_sequences", [" "], "each stop sequence must contain non-whitespace"),
        ("system", [{"type": "text", "text": ""}], "system: text content blocks must be non-empty"),
        ("system", 5, "system: Input should be a valid string"),
        ("tools.0.name", "bad name", "tools.0.custom.name: String should match pattern"),
        ("tools.0.name", "x" * 129, "tools.0.custom.name: String should match pattern"),
        ("tools.0.name", "LS", "Tool names must be unique"),
        ("tools.0.parameters", {}, "tools.0.custom.parameters: Extra inputs are not permitted"),
        ("tools.0.input_schema", DELETE, "tools.0.custom.input_schema: Field required"),
        ("tools.0.input_schema", {}, "tools.0.custom.input_schema.type: Input should be 'object'"),
        ("tools.0.input_schema", {**SCHEMA, "anyOf": []}, "does not support oneOf, allOf, or anyOf"),
        ("tools", DELETE, "must define tools"),
        ("tool_choice", {"type": "tool", "name": "Nope"}, "Tool 'Nope' not found"),
        ("tool_choice", "auto", "tool_choice: Input should be an object"),
        ("messages.0.role", "system", 'Unexpected role "system"'),
        ("messages.0.name", "me", "messages.0.name: Extra inputs are not permitted"),
        ("messages.0+", {"role": "assistant", "content": "hello"}, 'first message must use the "user" role'),
        ("messages.0.content", "", "messages.0: all messages must have non-empty content"),
        ("messages.0.content", [], "messages.0: all messages must have non-empty content"),
        ("messages.0.content", " \n", "text content blocks must contain non-whitespace text"),
        ("messages.1.content.0.text", "", "text content blocks must be non-empty"),
        ("messages.1.content.0.type", "txt", "messages.1.content.0: Input tag 'txt'"),
        ("messages.1.content.1.id", "a b", "messages.1.content.1.tool_use.id: String should match pattern"),
        ("messages.1.content.1.input", "{}", "tool_use.input: Input should be a valid dictionary"),
        ("messages.1.content.1.name", "", "tool_use.name: String should have at least 1"),
        ("messages.1.content.1.id", "toolu_b", "`tool_use` ids must be unique"),
        ("messages.1.content.1.extra", 1, "tool_use.extra: Extra inputs are not permitted"),
        ("messages.1.content.1", DELETE, "unexpected `tool_use_id` found in `tool_result` blocks: toolu_a"),
        ("messages.2.content.0", DELETE, "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        ("messages.2.content.0+", {"type": "text", "text": "first"}, "without `tool_result` blocks immediately after"),
        ("messages.2.content.1+", RESULT, "each tool_use must have a single result"),
        ("messages.2.content.0.is_error", "yes", "tool_result.is_error: Input should be a valid boolean"),
        ("messages.2.content.0.content", 5, "tool_result.content: Input should be a valid string"),
        ("messages.2.content.1.content.0.text", "", "text content blocks must be non-empty"),
        ("messages.2.content.0+", USE, "`tool_use` blocks cannot be in user messages"),
        ("messages.2", DELETE, "`tool_use` ids were found without `tool_result` blocks"),
        ("messages.2+", {"role": "user", "content": "wait"}, "without `tool_result` blocks immediately after"),
        ("messages.3+", {"role": "assistant", "content": "so "}, "cannot end with trailing whitespace"),
        ("messages.1.content.0+", THOUGHT, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        ("messages.1.content.0+", {"type": "thinking", "thinking": "hm"}, "signature: Field required"),
        ("thinking", {"type": "on"}, "thinking: Input tag found does not match"),
        ("thinking", {"type": "enabled"}, "budget_tokens: Field required"),
        ("thinking", {"type": "enabled", "budget_tokens": 1000}, "greater than or equal to 1024"),
        ("thinking", {"type": "enabled", "budget_tokens": 4096}, "`max_tokens` must be greater than"),
    ],
)
def test_anthropic_refuses_invalid_values(path: str, value: Any, sentence: str) -> None:
    status, message = send_changed("anthropic", [(path, value)])
    assert status == 400
    assert sentence in message


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([("thinking", BUDGET), ("temperature", 0.5)], "`temperature` may only be set to 1"),
        ([("thinking", BUDGET), ("tool_choice", {"type": "any"})], "when tool_choice forces tool use"),
        (
            [("messages.2.content.0.content", ""), ("messages.2.content.0.is_error", True)],
            "content cannot be empty if `is_error` is true",
        ),
        ([(f"messages.{n}.content.0.cache_control", {"type": "ephemeral"}) for n in (1, 2)]
         + [(f"messages.{n}.content.1.cache_control", {"type": "ephemeral"}) for n in (1, 2)],
         "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    ],
)  # fmt: skip
def test_anthropic_refuses_invalid_combinations(changes: list[tuple[str, Any]], sentence: str) -> None:
    status, message = send_changed("anthropic", changes)
    assert status == 400
    assert sentence in message


@pytest.mark.parametrize(
    "changes",
    [
        [("messages.3+", {"role": "assistant", "content": ""})],
        [("messages.3+", {"role": "user", "content": "and more"})],
        [("messages.2.content.0.content", "")],
        [("messages.2.content.0.content", DELETE)],
        [("tool_choice", {"type": "tool", "name": "LS"})],
        [("thinking", BUDGET)],
        [("thinking", {"type": "adaptive"})],
        [("system", "plain")],
    ],
)
def test_anthropic_accepts_valid_changes(changes: list[tuple[str, Any]]) -> None:
    assert send_changed("anthropic", changes) == (200, "")


def test_anthropic_merges_consecutive_messages_of_one_role() -> None:
    body = valid_request("anthropic")
    *results, last = body["messages"].pop()["content"]
    body["messages"] += [{"role": "user", "content": [block]} for block in (*results, last)]
    with ScriptedServer([say("ok")]) as server:
        assert send_request(server, "anthropic", body)[0] == 200


# --- thinking that must be sent back ---


def thinking_history(server: ScriptedServer, model: str = "claude-x") -> dict[str, Any]:
    """Return the correct next request after a reply with thinking and a call."""
    body = valid_request("anthropic")
    body.update(model=model, thinking=BUDGET, messages=[{"role": "user", "content": "hi"}])
    _, answer = send_request(server, "anthropic", body)
    result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "one"}
    body["messages"] += [
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result]},
    ]
    return body


def test_missing_or_changed_thinking_is_refused() -> None:
    with ScriptedServer([reply("So.", [call("LS", {})], thinking="hm"), say("ok")]) as server:
        body = thinking_history(server)
        missing = copy.deepcopy(body)
        del missing["messages"][1]["content"][0]
        status, answer = send_request(server, "anthropic", missing)
        assert status == 400 and "must start with a thinking block" in answer["error"]["message"]
        changed = copy.deepcopy(body)
        changed["messages"][1]["content"][0]["thinking"] = "hm!"
        assert "Invalid `signature`" in send_request(server, "anthropic", changed)[1]["error"]["message"]
        assert send_request(server, "anthropic", {**body, "model": "claude-y"})[0] == 400
        assert send_request(server, "anthropic", {**missing, "model": "claude-y"})[0] == 200


def test_redacted_thinking_is_bound_to_its_model_and_position() -> None:
    with ScriptedServer([reply("", [call("LS", {})], thinking="hm").hiding("hush"), say("ok"), say("ok")]) as server:
        body = thinking_history(server)
        thought, hidden, made = body["messages"][1]["content"]
        assert [thought["type"], hidden["type"]] == ["thinking", "redacted_thinking"]
        assert "hush" not in json.dumps(body)

        def get_refusal(*blocks: Any, **changes: Any) -> str:
            changed = copy.deepcopy({**body, **changes})
            changed["messages"][1]["content"] = list(blocks)
            status, answer = send_request(server, "anthropic", changed)
            return "" if status == 200 else answer["error"]["message"]

        assert "cannot be modified" in get_refusal(hidden, made)
        assert "cannot be modified" in get_refusal(thought, made)
        assert "cannot be modified" in get_refusal(hidden, thought, made)
        assert "Invalid `data`" in get_refusal(hidden, made, model="claude-y")
        assert "Invalid `data`" in get_refusal(thought, {**hidden, "data": "made up"}, made)
        assert get_refusal(made, model="claude-y") == ""
        assert get_refusal(thought, hidden, made) == ""


def test_every_step_of_the_running_loop_must_keep_its_thinking() -> None:
    with ScriptedServer([reply("", [call("LS", {})], thinking=text) for text in "ab"] + [say("ok")] * 2) as server:
        body = thinking_history(server)
        _, answer = send_request(server, "anthropic", body)
        result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "one"}
        body["messages"] += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [result]},
        ]
        torn = copy.deepcopy(body)
        del torn["messages"][1]["content"][0]
        status, refusal = send_request(server, "anthropic", torn)
        assert status == 400 and "must start with a thinking block" in refusal["error"]["message"]
        assert send_request(server, "anthropic", body)[0] == 200
        after = copy.deepcopy(torn)
        del after["messages"][3]["content"][0]
        after["messages"] += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}]
        assert send_request(server, "anthropic", after)[0] == 200, "a finished loop needs no thinking"


def test_reasoning_of_one_loop_must_be_sent_back_completely_or_not_at_all() -> None:
    sealed: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    with ScriptedServer([reply("", [call("LS", {})], thinking=text) for text in "ab"] + [say("ok")] * 2) as server:
        body = reasoning_history(server, **sealed)
        _, answer = send_request(server, "responses", body)
        output = {"type": "function_call_output", "call_id": answer["output"][-1]["call_id"], "output": "one"}
        body["input"] += [*answer["output"], output]
        for item in body["input"]:
            if item.get("type") == "function_call":
                del item["id"]
        torn = [item for at, item in enumerate(body["input"]) if at != 1]
        status, refusal = send_request(server, "responses", {**body, "input": torn})
        assert status == 400 and "without its required 'reasoning' item" in refusal["error"]["message"]
        none = [item for item in body["input"] if item.get("type") != "reasoning"]
        assert send_request(server, "responses", {**body, "input": none})[0] == 200
        assert send_request(server, "responses", body)[0] == 200


def test_signature_is_valid_on_another_server_of_the_same_model() -> None:
    with ScriptedServer([reply("So.", [call("LS", {})], thinking="hm")]) as first:
        body = thinking_history(first)
    with ScriptedServer([call("LS", {})]) as second:
        status, answer = send_request(second, "anthropic", body)
    assert status == 200
    assert answer["content"][0]["id"] not in json.dumps(body)


def reasoning_history(server: ScriptedServer, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        **valid_request("responses"),
        "model": "gpt-5",
        "input": [{"role": "user", "content": "hi"}],
        **more,
    }
    _, answer = send_request(server, "responses", body)
    output = {"type": "function_call_output", "call_id": answer["output"][-1]["call_id"], "output": "one"}
    return {**body, "input": [*body["input"], *answer["output"], output]}


def test_reasoning_must_be_sent_back_with_the_item_after_it() -> None:
    sealed: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    with ScriptedServer([reply("", [call("LS", {})], thinking="hm"), say("ok")]) as server:
        body = reasoning_history(server, **sealed)
        types = [item.get("type") for item in body["input"]]
        assert types == [None, "reasoning", "function_call", "function_call_output"]

        def refusal_with(**changes: Any) -> str:
            changed = copy.deepcopy({**body, **changes})
            status, answer = send_request(server, "responses", changed)
            assert status in (400, 404)
            return answer["error"]["message"]

        user, thought, made, output = body["input"]
        assert "without its required 'reasoning' item" in refusal_with(input=[user, made, output])
        assert "without its required following item" in refusal_with(input=[user, thought])
        assert "without its required following item" in refusal_with(input=[user, made, output, thought])
        assert "could not be verified" in refusal_with(model="gpt-5-mini")
        assert "could not be verified" in refusal_with(
            input=[user, {**thought, "encrypted_content": "x"}, made, output]
        )
        open_thought = {key: value for key, value in thought.items() if key != "encrypted_content"}
        assert "not found" in refusal_with(input=[user, open_thought, made, output])
        assert "Duplicate item found" in refusal_with(input=[user, thought, made, output, thought, made])
        assert send_request(server, "responses", body)[0] == 200


def test_stored_reasoning_item_needs_only_its_id() -> None:
    with ScriptedServer([reply("", [call("LS", {})], thinking="hm"), say("ok")]) as server:
        body = reasoning_history(server, store=True)
        assert "encrypted_content" not in body["input"][1]
        assert send_request(server, "responses", body)[0] == 200


# --- chat completions ---


CALL: dict[str, Any] = {"id": "call_c", "type": "function", "function": {"name": "LS", "arguments": "{}"}}
STRICT_SCHEMA: dict[str, Any] = {**SCHEMA, "additionalProperties": False, "required": ["x"]}


def answer_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "plan", "schema": schema, **more}}


@each(
    ("path", "value", "sentence"),
    [
        ("model", DELETE, "you must provide a model parameter"),
        ("messages", DELETE, "Missing required parameter: 'messages'"),
        ("messages", [], "Invalid 'messages': empty array"),
        ("system", "x", "Unrecognized request argument supplied: system"),
        ("stream_options", {"include_usage": True}, "only allowed when 'stream' is enabled"),
        ("max_tokens", 0, "Invalid 'max_tokens': integer below minimum value"),
        ("temperature", 3, "Invalid 'temperature'"),
        ("reasoning_effort", "low", "Unrecognized request argument supplied: reasoning_effort"),
        ("tools", [], "[] is too short - 'tools'"),
        ("tools.0.type", "custom_thing", "'tools[0].type'"),
        ("tools.0.function", DELETE, "'tools[0].function'"),
        ("tools.0.function.name", "bad name", "'tools[0].function.name': string does not match pattern"),
        ("tools.0.function.name", "x" * 65, "'tools[0].function.name': string does not match pattern"),
        ("tools.0.function.name", "LS", "tool names must be unique"),
        ("tools.0.function.parameters", {}, "schema must be a JSON Schema of 'type: \"object\"'"),
        ("tools.0.function.strict", True, "'additionalProperties' is required to be supplied and to be false"),
        ("tool_choice", "maybe", "Invalid value: 'maybe'"),
        ("tool_choice", {"type": "function", "function": {"name": "Nope"}}, "'Nope' not found"),
        ("response_format", {"type": "yaml"}, "Invalid value: 'yaml'"),
        ("response_format", {"type": "json_schema"}, "'response_format.json_schema'"),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": SCHEMA}}, "json_schema.name'"),
        ("response_format", answer_format(None), "json_schema.schema'"),
        ("response_format", answer_format({"type": "array"}), "got 'type: \"array\"'"),
        ("response_format", answer_format(SCHEMA, strict=True), "'additionalProperties' is required"),
        ("response_format", {"type": "json_object"}, "must contain the word 'json'"),
        ("messages.1.role", "human", "Invalid value: 'human'"),
        ("messages.1.content", None, "expected a string, got null"),
        ("messages.1.content", [], "empty array"),
        ("messages.1.content", [{"type": "input_text", "text": "x"}], "Invalid value: 'input_text'"),
        ("messages.2.reasoning_content", "hm", "Unknown parameter: 'messages[2].reasoning_content'"),
        ("messages.2.tool_calls", [], "[] is too short - 'messages[2].tool_calls'"),
        ("messages.2.tool_calls.0.id", "", "'messages[2].tool_calls[0].id': empty string"),
        ("messages.2.tool_calls.0.id", "x" * 41, "string too long. Expected a string with maximum length 40"),
        ("messages.2.tool_calls.1.id", "call_a", "duplicate tool call id"),
        ("messages.2.tool_calls.0.type", DELETE, "'messages[2].tool_calls[0].type'"),
        ("messages.2.tool_calls.0.function.name", "a.b", "string does not match pattern"),
        ("messages.2.tool_calls.0.function.arguments", {"x": 1}, "expected a string, but got an object instead"),
        ("messages.2.tool_calls.0.function.arguments", '{"x": ', "holds a JSON object"),
        ("messages.2.tool_calls.0.function.arguments", "[1]", "holds a JSON object"),
        ("messages.2.tool_calls", DELETE, "Assistant message must have either content or tool_calls"),
        ("messages.3.tool_call_id", DELETE, "'messages[3].tool_call_id'"),
        ("messages.3.tool_call_id", "call_x", "'tool_call_id' of 'call_x' not found"),
        ("messages.4.tool_call_id", "call_a", "more than one message with role 'tool'"),
        ("messages.4", DELETE, "did not have response messages: call_b"),
        ("messages.4+", {"role": "user", "content": "wait"}, "did not have response messages: call_b"),
        ("messages.2", DELETE, "must be a response to a preceeding message with 'tool_calls'"),
        ("messages.6+", {"role": "assistant", "tool_calls": [CALL]}, "did not have response messages: call_c"),
        ("messages.6+", {"role": "assistant", "content": ""}, "must have either content or tool_calls"),
    ],
)
def test_chat_refuses_invalid_values(path: str, value: Any, sentence: str) -> None:
    status, message = send_changed("chat", [(path, value)])
    assert status == 400
    assert sentence in message


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([("model", "gpt-5"), ("max_tokens", 100)], "Use 'max_completion_tokens' instead"),
        ([("model", "o3"), ("temperature", 0.2)], "'temperature' does not support 0.2 with this model"),
        ([("tools", DELETE), ("tool_choice", "auto")], "only allowed when 'tools' are specified"),
        ([("tools", DELETE), ("parallel_tool_calls", True)], "only allowed when 'tools' are specified"),
    ],
)
def test_chat_refuses_invalid_combinations(changes: list[tuple[str, Any]], sentence: str) -> None:
    status, message = send_changed("chat", changes)
    assert status == 400
    assert sentence in message


@pytest.mark.parametrize(
    "changes",
    [
        [("messages.1.content", "")],
        [("messages.2.content", "")],
        [("tools.0.function.parameters", STRICT_SCHEMA), ("tools.0.function.strict", True)],
        [("response_format", answer_format(STRICT_SCHEMA, strict=True))],
        [("response_format", {"type": "json_object"}), ("messages.0.content", "Answer in JSON.")],
        [("tool_choice", {"type": "function", "function": {"name": "LS"}})],
        [("model", "gpt-5"), ("max_completion_tokens", 100), ("reasoning_effort", "low")],
        [("tools", DELETE)],
    ],
)
def test_chat_accepts_valid_changes(changes: list[tuple[str, Any]]) -> None:
    assert send_changed("chat", changes) == (200, "")


# --- responses ---


@each(
    ("path", "value", "sentence"),
    [
        ("model", DELETE, "Missing required parameter: 'model'"),
        ("input", DELETE, "must be provided"),
        ("input", [], "must be provided"),
        ("messages", [], "Unknown parameter: 'messages'"),
        ("max_tokens", 100, "Unknown parameter: 'max_tokens'"),
        ("max_output_tokens", 8, "Expected a value >= 16"),
        ("previous_response_id", "resp_1", "Previous response with id 'resp_1' not found"),
        ("reasoning", {"effort": "low"}, "'reasoning.effort' is not supported with this model"),
        ("reasoning", {"effort": "huge"}, "Invalid value: 'huge'"),
        ("stream_options", {"include_usage": True}, "only allowed when 'stream' is enabled"),
        ("tools.0.type", DELETE, "'tools[0].type'"),
        ("tools.0.name", DELETE, "Missing required parameter: 'tools[0].name'"),
        ("tools.0.name", "bad name", "'tools[0].name': string does not match pattern"),
        ("tools.0.function", {}, "Unknown parameter: 'tools[0].function'"),
        ("tools.0.strict", True, "'additionalProperties' is required to be supplied and to be false"),
        ("tool_choice", {"type": "function", "name": "Nope"}, "'Nope' not found"),
        ("text", {"format": {"type": "json_schema", "schema": SCHEMA}}, "'text.format.name'"),
        ("text", {"format": {"type": "json_schema", "name": "plan"}}, "'text.format.schema'"),
        ("text", {"format": {"type": "yaml"}}, "Invalid value: 'yaml'"),
        ("text", {"format": {"type": "json_object"}}, "must contain the word 'json'"),
        ("input.0.role", "tool", "Invalid value: 'tool'"),
        ("input.0.content", [{"type": "text", "text": "x"}], "Invalid value: 'text'"),
        ("input.0.content", [], "'input[0].content'"),
        ("input.1.content.0.type", "input_text", "Supported values are: 'output_text', 'refusal'"),
        ("input.1.content", "", "assistant messages must not be empty"),
        ("input.1.id", "item_1", "Expected an ID that begins with 'msg'"),
        ("input.1.name", "me", "Unknown parameter: 'input[1].name'"),
        ("input.2.type", "tool_call", "Invalid value: 'tool_call'"),
        ("input.2.id", "call_a", "Expected an ID that begins with 'fc'"),
        ("input.2.arguments", {"x": 1}, "expected a string, but got an object instead"),
        ("input.2.arguments", "nope", "holds a JSON object"),
        ("input.2.name", "a.b", "string does not match pattern"),
        ("input.2.call_id", "x" * 65, "maximum length 64"),
        ("input.2.call_id", "call_b", "Duplicate function call with call_id call_b"),
        ("input.2", DELETE, "No tool call found for function call output with call_id call_a"),
        ("input.2+", {"type": "function_call_output", "call_id": "call_a", "output": ""}, "No tool call found"),
        ("input.4", DELETE, "No tool output found for function call call_a"),
        ("input.5.call_id", "call_a", "Duplicate function call output with call_id call_a"),
        ("input.4.output", DELETE, "'input[4].output'"),
        ("input.6+", {"type": "reasoning", "id": "rs_1"}, "'input[6].summary'"),
    ],
)
def test_responses_refuses_invalid_values(path: str, value: Any, sentence: str) -> None:
    status, message = send_changed("responses", [(path, value)])
    assert status == 400
    assert sentence in message


def test_responses_refuses_the_stream_options_of_chat() -> None:
    status, message = send_changed("responses", [("stream", True), ("stream_options", {"include_usage": True})])
    assert (status, message) == (400, "Unknown parameter: 'stream_options.include_usage'.")


@pytest.mark.parametrize(
    "changes",
    [
        [("input", "hi")],
        [("model", "gpt-5"), ("reasoning", {"effort": "low", "summary": "auto"})],
        [("text", {"format": {"type": "json_schema", "name": "plan", "schema": STRICT_SCHEMA, "strict": True}})],
        [("input.2.id", "fc_1"), ("input.1.id", "msg_1")],
        [("tools", DELETE)],
    ],
)
def test_responses_accepts_valid_changes(changes: list[tuple[str, Any]]) -> None:
    assert send_changed("responses", changes) == (200, "")


# --- incomplete conversations ---


@given(st.sampled_from(sorted(PATHS)), st.data())
def test_conversation_without_one_of_its_calls_or_results_is_refused(api: str, data: st.DataObject) -> None:
    body = valid_request(api)
    if api == "anthropic":
        block = data.draw(st.sampled_from([("1", "1"), ("1", "2"), ("2", "0"), ("2", "1")]))
        path = f"messages.{block[0]}.content.{block[1]}"
    else:
        first = 2 if api == "responses" else 3
        path = f"{'input' if api == 'responses' else 'messages'}.{data.draw(st.integers(first, first + 1))}"
    set_at(body, path, DELETE)
    with ScriptedServer([say("accepted")]) as server:
        assert send_request(server, api, body)[0] == 400


# --- headers, bodies, models and windows ---


@pytest.mark.parametrize(
    ("api", "headers", "status", "sentence"),
    [
        ("anthropic", {"anthropic-version": "2023-06-01"}, 401, "x-api-key header is required"),
        ("anthropic", {"x-api-key": "k"}, 400, "anthropic-version: header is required"),
        ("chat", {}, 401, "You didn't provide an API key"),
        ("chat", {"authorization": "Basic eA=="}, 401, "You didn't provide an API key"),
        ("responses", {"authorization": "Bearer "}, 401, "You didn't provide an API key"),
        ("chat", {"authorization": "Bearer k", "content-type": "text/plain"}, 400, "Unsupported content type"),
    ],
)
def test_headers_are_checked(api: str, headers: dict[str, str], status: int, sentence: str) -> None:
    with ScriptedServer([say("ok")]) as server:
        got, answer = send_request(server, api, valid_request(api), {"content-type": "application/json", **headers})
    assert got == status
    assert sentence in answer["error"]["message"]
    kinds = {"anthropic": {401: "authentication_error", 400: "invalid_request_error"}}
    assert answer["error"]["type"] == kinds.get(api, {}).get(status, "invalid_request_error")


def test_anthropic_accepts_a_token_instead_of_a_key() -> None:
    headers = {"authorization": "Bearer t", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    with ScriptedServer([say("ok")]) as server:
        assert send_request(server, "anthropic", valid_request("anthropic"), headers)[0] == 200


@each("api", PATHS)
@each(
    ("body", "sentence"),
    [
        (b"", "not valid JSON"),
        (b'{"model": ', "not valid JSON"),
        (b'["model"]', "expected an object"),
        (b'{"model": NaN}', "not valid JSON"),
        (b'{"model": "\\ud83d"}', "not valid JSON"),
        (b'{"model": "\xff"}', "not valid UTF-8"),
        (b'{"model": ' + b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_body_must_be_json_in_utf8(api: str, body: bytes, sentence: str) -> None:
    with ScriptedServer([say("ok")]) as server:
        status, answer = send_request(server, api, body)
    assert status == 400
    assert sentence in answer["error"]["message"]


def test_a_body_may_not_be_too_large() -> None:
    with ScriptedServer([say("ok")]) as server:
        status, answer = send_request(server, "anthropic", b" " * (32 * 1024 * 1024 + 1))
    assert (status, answer["error"]["type"]) == (413, "request_too_large")


def test_an_unknown_model_is_not_found() -> None:
    with ScriptedServer([say("ok")] * 3, models=["m-1"]) as server:
        status, answer = send_request(server, "anthropic", valid_request("anthropic"))
        assert (status, answer["error"]) == (404, {"type": "not_found_error", "message": "model: claude-x"})
        status, answer = send_request(server, "chat", valid_request("chat"))
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert send_request(server, "responses", {**valid_request("responses"), "model": "m-1"})[0] == 200


@pytest.mark.parametrize(
    ("api", "sentence", "code"),
    [
        ("anthropic", r"prompt is too long: \d+ tokens > 50 maximum", None),
        ("chat", r"maximum context length is 50 tokens. However, your messages resulted in \d+ tokens", "context"),
        ("responses", r"Your input exceeds the context window of this model", "context"),
    ],
)
def test_request_that_exceeds_the_context_window_is_refused(api: str, sentence: str, code: str | None) -> None:
    with ScriptedServer([say("ok")] * 2, window=50) as server:
        status, answer = send_request(server, api, valid_request(api))
        assert status == 400
        assert answer["error"].get("code") == (code and "context_length_exceeded")
        assert re.search(sentence, answer["error"]["message"])
        small = {key: value for key, value in valid_request(api).items() if key in ("model", "max_tokens")}
        small["input" if api == "responses" else "messages"] = [{"role": "user", "content": "hi"}]
        assert send_request(server, api, small)[0] == 200


def test_vllm_counts_the_requested_completion_tokens() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}
    with ScriptedServer([say("ok")] * 2, window=100, local="vllm") as server:
        status, answer = send_request(server, "chat", body)
        assert status == 400 and "100 in the completion" in answer["error"]["message"]
        assert send_request(server, "chat", {**body, "max_tokens": 50})[0] == 200


def test_the_rules_can_be_relaxed() -> None:
    with ScriptedServer([say("ok")], accepts=["reasoning_content"]) as server:
        body = valid_request("chat")
        body["messages"][2]["reasoning_content"] = "hm"
        assert send_request(server, "chat", body)[0] == 200
    with ScriptedServer([say("ok")], strict=False) as server:
        assert send_request(server, "chat", {"anything": 1}, {})[0] == 200


# --- finding models ---


def test_cloud_apis_list_their_models_only_with_a_key() -> None:
    with ScriptedServer(models=["m-1", "m-2"]) as server:
        assert get(server, "/v1/models") == 401
        found = get(server, "/v1/models", KEYS["chat"])
        assert [model["id"] for model in found["data"]] == ["m-1", "m-2"]
        found = get(server, "/v1/models?limit=20", KEYS["anthropic"])
        assert (found["data"][0]["type"], found["last_id"], found["has_more"]) == ("model", "m-2", False)
        assert get(server, "/v1/nothing", KEYS["chat"]) == 404
        assert [seen.path for seen in server.others][-1] == "/v1/nothing"
        assert server.requests == [] and server.rejected == []


def test_ollama_lists_its_models_and_their_context_window() -> None:
    with ScriptedServer(
        [say("ok")], local=EmulatedLocal("ollama", trained=40960), models=["qwen:8b"], window=8192
    ) as server:
        assert get(server, "/") == "Ollama is running"
        assert [model["name"] for model in get(server, "/api/tags")["models"]] == ["qwen:8b"]
        shown = get(server, "/api/show", body={"model": "qwen:8b"})
        assert shown["model_info"]["llama.context_length"] == 40960
        assert shown["parameters"].split() == ["num_ctx", "8192"]
        assert shown["capabilities"] == ["completion", "tools"]
        assert get(server, "/api/ps")["models"][0]["context_length"] == 8192
        assert get(server, "/api/show", body={"model": "other"}) == 404
        assert get(server, "/v1/models")["data"][0]["id"] == "qwen:8b"
        assert get(server, "/props") == get(server, "/api/v0/models") == 404


def test_llamacpp_lmstudio_and_vllm_report_their_context_window() -> None:
    with ScriptedServer(local="llamacpp", models=["q"], window=8192) as server:
        assert get(server, "/props")["default_generation_settings"]["n_ctx"] == 8192
        assert get(server, "/v1/models")["data"][0]["meta"]["n_ctx_train"] == 131072
        assert get(server, "/api/tags") == 404
    with ScriptedServer(local=EmulatedLocal("lmstudio", tools=False), models=["q"], window=8192) as server:
        entry = get(server, "/api/v0/models")["data"][0]
        assert (entry["loaded_context_length"], entry["max_context_length"]) == (8192, 131072)
        assert entry["capabilities"] == []
    with ScriptedServer(local="vllm", models=["q"], window=8192) as server:
        assert get(server, "/v1/models")["data"][0]["max_model_len"] == 8192


def test_local_server_accepts_unknown_keys_but_not_a_missing_result() -> None:
    with ScriptedServer([say("ok")], local="llamacpp") as server:
        body = valid_request("chat")
        body["chat_template_kwargs"] = {"enable_thinking": False}
        assert send_request(server, "chat", body, {})[0] == 200
        del body["messages"][3]
        assert send_request(server, "chat", body, {})[0] == 400
