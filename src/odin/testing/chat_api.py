"""The OpenAI Chat Completions API of the scripted server: wire format, errors, and the checks of the real API."""

import re
from collections.abc import Collection
from itertools import pairwise
from typing import Any

import msgspec

from odin.testing.openai_rules import check_cache_key, check_chat_effort, check_temperature, is_reasoner
from odin.testing.render import RenderedReply
from odin.testing.script import StreamError
from odin.testing.strict import (
    NAME_PATTERN,
    IssuedIds,
    RequestRefused,
    as_int,
    as_list,
    as_number,
    as_object,
    check_image_part,
    check_keys,
    find_strict_schema_error,
    find_unknown_key,
    is_json_object,
    make_missing_error,
    make_refusal,
    make_value_error,
    split_keys,
)

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}
_ERROR_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_ERROR_TYPES = {429: "requests", 500: "server_error", 502: "server_error", 503: "server_error", 504: "server_error"}

PING = b": ping\n\n"
GARBLED = b'data: {"id": "chatcmpl-garbled", "object": "chat.completion.chunk", "choi\n\n'
DONE = b"data: [DONE]\n\n"


def encode_data_frame(value: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(value)


def encode_frames(rendered: RenderedReply, body: dict[str, Any]) -> list[bytes]:
    """Return the reply as chunks: role, deltas, finish reason, usage if requested, and [DONE]."""
    include_usage = (as_object(body.get("stream_options")) or {}).get("include_usage") is True
    base = _build_base(rendered, "chat.completion.chunk")
    usage: dict[str, Any] = {"usage": None} if include_usage else {}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return encode_data_frame({**base, "choices": [choice], **usage})

    out = [
        chunk({"role": "assistant", "content": None if rendered.calls and not rendered.text else "", "refusal": None})
    ]
    out += [chunk({"reasoning_content": part}) for part in rendered.split_chunks(rendered.thinking)]
    out += [chunk({"content": part}) for part in rendered.split_chunks(rendered.text)]
    for index, call in enumerate(rendered.calls):
        opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        out.append(chunk({"tool_calls": [opening]}))
        for part in rendered.split_chunks(call.json):
            out.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    out.append(chunk({}, _FINISH_REASONS.get(rendered.stop, rendered.stop)))
    if include_usage:
        out.append(encode_data_frame({**base, "choices": [], "usage": _build_usage(rendered)}))
    out.append(DONE)
    return out


def build_reply(rendered: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request without streaming."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": rendered.text or (None if rendered.calls else ""),
        "refusal": None,
    }
    if rendered.thinking:
        message["reasoning_content"] = rendered.thinking
    if rendered.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.json}}
            for call in rendered.calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _FINISH_REASONS.get(rendered.stop, rendered.stop),
    }
    return {**_build_base(rendered, "chat.completion"), "choices": [choice], "usage": _build_usage(rendered)}


def build_error_body(
    status: int, message: str, type: str | None, code: str | None, param: str | None
) -> dict[str, Any]:
    kind = type or _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    text = message or f"The scripted server answers {status}."
    return {"error": {"message": text, "type": kind, "param": param, "code": code or _ERROR_CODES.get(status)}}


def encode_error_frames(error: StreamError, sequence: int) -> list[bytes]:
    body = {"message": error.message, "type": error.type, "param": None, "code": error.code}
    return [encode_data_frame({"error": body})]


def _build_base(rendered: RenderedReply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{rendered.number:06d}",
        "object": kind,
        "created": rendered.created,
        "model": rendered.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _build_usage(rendered: RenderedReply) -> dict[str, Any]:
    usage = rendered.usage
    prompt, output = usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


_TOP_LEVEL_KEYS = split_keys(
    "model messages tools tool_choice stream stream_options max_tokens max_completion_tokens temperature top_p n "
    "stop presence_penalty frequency_penalty logit_bias logprobs top_logprobs user seed response_format "
    "parallel_tool_calls functions function_call reasoning_effort store metadata service_tier modalities audio "
    "prediction web_search_options verbosity prompt_cache_key prompt_cache_retention "
    "prompt_cache_options safety_identifier"
)
_MESSAGE_KEYS: dict[str, set[str]] = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "audio", "function_call", "annotations"},
    "tool": {"role", "content", "tool_call_id"},
}
_PART_TYPES: dict[str, set[str]] = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}
_MAX_CALL_ID = 40
_MISTRAL_MODEL = re.compile(r"(?i)(mi|mini|dev|code|magi)stral|pixtral")


def check_request(body: dict[str, Any], memory: IssuedIds, accepts: Collection[str] | None) -> None:
    extra = find_unknown_key(body, _TOP_LEVEL_KEYS, accepts)
    if extra:
        raise make_refusal(f"Unrecognized request argument supplied: {extra}")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise make_refusal("you must provide a model parameter")
    messages = as_list(body.get("messages"))
    if messages is None:
        raise make_missing_error("messages")
    if not messages:
        raise make_refusal(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            "messages",
            "empty_array",
        )
    _check_options(body)
    check_sampling(body, body.get("reasoning_effort"), 1, "max_tokens", "max_completion_tokens")
    _check_tools(body)
    _check_response_format(body, messages)
    checked = [_check_message(item, at, body["model"], accepts) for at, item in enumerate(messages)]
    _check_pairs(checked)
    if _MISTRAL_MODEL.search(body["model"]):
        # Mistral accepts no user message directly after a tool result.
        for before, after in pairwise(message["role"] for message in checked):
            if (before, after) == ("tool", "user"):
                raise RequestRefused(
                    "Unexpected role 'user' after role 'tool'", type="invalid_request_message_order", code="3230"
                )


def _check_options(body: dict[str, Any]) -> None:
    if not isinstance(body.get("stream") or False, bool):
        raise make_refusal("Invalid type for 'stream': expected a boolean.", "stream", "invalid_type")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise make_refusal("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    model = body["model"]
    if is_reasoner(model) and body.get("max_tokens") is not None:
        raise make_refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    check_chat_effort(model, body.get("reasoning_effort"), has_tools=bool(body.get("tools")))


def check_sampling(body: dict[str, Any], effort: Any, least: int, *limits: str) -> None:
    """Check the temperature, the cache key and that each limit of the output is at least `least`, as both APIs do."""
    check_cache_key(body.get("prompt_cache_key"))
    for name in limits:
        limit = body.get(name)
        if limit is not None and (as_int(limit) is None or limit < least):
            text = f"integer below minimum value. Expected a value >= {least}, but got {limit!r} instead."
            raise make_refusal(f"Invalid '{name}': {text}", name, "integer_below_min_value")
    heat = body.get("temperature")
    if heat is None:
        return
    value = as_number(heat)
    if value is None or not 0 <= value <= 2:
        raise make_refusal(
            f"Invalid 'temperature': expected a number between 0 and 2, but got {heat!r} instead.", "temperature"
        )
    check_temperature(body["model"], effort, value)


# --- tools and formats ---


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    tools = as_list(body.get("tools"))
    if body.get("tools") is not None and not tools:
        raise make_refusal("[] is too short - 'tools'", "tools")
    for at, item in enumerate(tools or []):
        tool = as_object(item) or {}
        function = as_object(tool.get("function"))
        if tool.get("type") != "function":
            raise make_refusal(f"Invalid value for 'tools[{at}].type': expected 'function'.", f"tools[{at}].type")
        if function is None:
            raise make_refusal(f"Missing required parameter: 'tools[{at}].function'.", f"tools[{at}].function")
        check_function(function, f"tools[{at}].function", names)
    check_tool_choice(body, names, ("function", "name"))


def _check_name(name: Any, param: str, length: str = "+") -> None:
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        text = "string does not match pattern. Expected a string that matches the pattern"
        raise make_refusal(f"Invalid '{param}': {text} '^[a-zA-Z0-9_-]{length}$'.", param, "invalid_value")


def check_function(function: dict[str, Any], where: str, names: set[str]) -> None:
    """Check a function definition; shared by both OpenAI APIs."""
    name = function.get("name")
    if name is None:
        raise make_missing_error(f"{where}.name")
    _check_name(name, f"{where}.name", "{1,64}")
    if name in names:
        raise make_refusal(
            f"Invalid '{where}.name': tool names must be unique, but '{name}' is used twice.", f"{where}.name"
        )
    names.add(name)
    parameters = function.get("parameters")
    if parameters is None:
        return
    flaw = _find_schema_error(parameters, function)
    if flaw:
        text = f"Invalid schema for function '{name}': {flaw}"
        raise make_refusal(text, f"{where}.parameters", "invalid_function_parameters")


def _find_schema_error(schema: Any, spec: dict[str, Any]) -> str | None:
    kind = (as_object(schema) or {}).get("type")
    if kind != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
    return find_strict_schema_error(schema) if spec.get("strict") else None


def check_tool_choice(body: dict[str, Any], names: set[str], path: tuple[str, ...]) -> None:
    for key in ("tool_choice", "parallel_tool_calls"):
        if body.get(key) is not None and not body.get("tools"):
            raise make_refusal(f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", key)
    choice = body.get("tool_choice")
    node: Any = choice
    if isinstance(choice, dict):
        for key in path:
            node = (as_object(node) or {}).get(key)
        if node not in names:
            raise make_refusal(f"Tool choice '{node}' not found in 'tools' parameter.", "tool_choice")
    elif choice not in (None, "none", "auto", "required"):
        raise make_value_error(choice, "'none', 'auto', and 'required'", "tool_choice")


def _check_response_format(body: dict[str, Any], messages: list[Any]) -> None:
    if body.get("response_format") is None:
        return
    wanted = as_object(body["response_format"]) or {}
    kind = wanted.get("type")
    if kind == "json_schema":
        spec = as_object(wanted.get("json_schema"))
        if spec is None:
            raise make_missing_error("response_format.json_schema")
        check_json_schema(spec, "response_format.json_schema")
    elif kind == "json_object":
        if "json" not in str(messages).lower():
            raise make_refusal(
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
                "messages",
            )
    elif kind != "text":
        raise make_value_error(kind, "'json_object', 'json_schema', and 'text'", "response_format.type")


def check_json_schema(spec: dict[str, Any], where: str) -> None:
    """Check a named response schema; shared by both OpenAI APIs."""
    name = spec.get("name")
    if name is None:
        raise make_missing_error(f"{where}.name")
    _check_name(name, f"{where}.name")
    schema = as_object(spec.get("schema"))
    if schema is None:
        raise make_missing_error(f"{where}.schema")
    flaw = _find_schema_error(schema, spec)
    if flaw:
        raise make_refusal(f"Invalid schema for response_format '{name}': {flaw}", where)


# --- messages ---


def _check_message(item: Any, at: int, model: str, accepts: Collection[str] | None) -> dict[str, Any]:
    message = as_object(item)
    where = f"messages[{at}]"
    if message is None:
        raise make_refusal(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
    role = message.get("role")
    if role not in _MESSAGE_KEYS:
        supported = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
        raise make_value_error(role, supported, f"{where}.role")
    check_keys(message, _MESSAGE_KEYS[role], f"{where}.", accepts)
    if role == "assistant":
        _check_assistant(message, where)
    elif role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise make_missing_error(f"{where}.tool_call_id")
    if role != "assistant" or message.get("content") is not None:
        _check_content(message.get("content"), role, where, model)
    return message


def _check_content(content: Any, role: str, where: str, model: str) -> None:
    if isinstance(content, str):
        return
    parts = as_list(content)
    if parts is None:
        got = "null" if content is None else type(content).__name__
        raise make_refusal(f"Invalid value for 'content': expected a string, got {got}.", f"{where}.content")
    if not parts:
        raise make_refusal(f"Invalid '{where}.content': empty array. Expected an array with minimum length 1.", where)
    for at, item in enumerate(parts):
        part = as_object(item) or {}
        kind = part.get("type")
        if kind not in _PART_TYPES[role]:
            raise make_value_error(kind, str(sorted(_PART_TYPES[role])), f"{where}.content[{at}].type")
        if kind == "text" and not isinstance(part.get("text"), str):
            raise make_missing_error(f"{where}.content[{at}].text")
        if kind == "image_url":
            check_image_part(part, f"{where}.content[{at}].image_url", model)


def _check_assistant(message: dict[str, Any], where: str) -> None:
    calls = as_list(message.get("tool_calls"))
    if message.get("tool_calls") is not None and not calls:
        raise make_refusal(f"[] is too short - '{where}.tool_calls'", f"{where}.tool_calls")
    if not calls and not message.get("content") and not message.get("refusal"):
        raise make_refusal(f"{where}: Assistant message must have either content or tool_calls, but not none.", where)
    ids: set[str] = set()
    for at, item in enumerate(calls or []):
        ids.add(_check_call(as_object(item) or {}, f"{where}.tool_calls[{at}]", ids))


def _check_call(call: dict[str, Any], where: str, ids: set[str]) -> str:
    ident = call.get("id")
    check_call_id(ident, f"{where}.id", _MAX_CALL_ID)
    if ident in ids:
        raise make_refusal(f"Invalid '{where}.id': duplicate tool call id '{ident}'.", f"{where}.id")
    if call.get("type") != "function":
        raise make_refusal(f"Invalid value for '{where}.type': expected 'function'.", f"{where}.type", "invalid_value")
    function = as_object(call.get("function"))
    if function is None:
        raise make_missing_error(f"{where}.function")
    check_function_call(function, f"{where}.function")
    return str(ident)


def check_call_id(ident: Any, where: str, most: int) -> None:
    if not isinstance(ident, str):
        raise make_missing_error(where)
    if not ident:
        raise make_refusal(
            f"Invalid '{where}': empty string. Expected a string with minimum length 1.", where, "empty_string"
        )
    if len(ident) > most:
        raise make_refusal(
            f"Invalid '{where}': string too long. Expected a string with maximum length {most}, but got a string with "
            f"length {len(ident)} instead.",
            where,
            "string_above_max_length",
        )


def check_function_call(function: dict[str, Any], where: str) -> None:
    """Check name and arguments of a call in the history; shared by both OpenAI APIs."""
    _check_name(function.get("name"), f"{where}.name")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        got = "an object" if isinstance(arguments, dict) else type(arguments).__name__
        raise make_refusal(
            f"Invalid type for '{where}.arguments': expected a string, but got {got} instead.",
            f"{where}.arguments",
            "invalid_type",
        )
    if not is_json_object(arguments):
        raise make_refusal(
            f"Invalid '{where}.arguments': expected a string that holds a JSON object.", f"{where}.arguments"
        )


# --- calls and their results ---


def _check_pairs(messages: list[dict[str, Any]]) -> None:
    calls: set[str] = set()
    waiting: dict[str, None] = {}
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            ident = message["tool_call_id"]
            if not calls:
                raise make_refusal(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{at}].role",
                )
            if ident not in calls:
                raise make_refusal(
                    f"Invalid parameter: 'tool_call_id' of '{ident}' not found in 'tool_calls' of previous message.",
                    f"messages.[{at}].tool_call_id",
                )
            if ident not in waiting:
                raise make_refusal(
                    f"Invalid parameter: more than one message with role 'tool' answers the tool_call_id '{ident}'.",
                    f"messages.[{at}].tool_call_id",
                )
            del waiting[ident]
            continue
        _check_answered(waiting, at)
        waiting = dict.fromkeys(str(call["id"]) for call in as_list(message.get("tool_calls")) or [])
        calls = set(waiting)
    _check_answered(waiting, len(messages))


def _check_answered(waiting: dict[str, None], at: int) -> None:
    if waiting:
        raise make_refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            f"messages.[{at}].role",
        )
