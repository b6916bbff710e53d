"""The OpenAI Responses API of the scripted server: wire format, errors, and the checks of the real API."""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from odin.testing.chat_api import build_error_body as build_error_body
from odin.testing.chat_api import (
    check_call_id,
    check_function,
    check_function_call,
    check_json_schema,
    check_sampling,
    check_tool_choice,
)
from odin.testing.openai_rules import check_response_effort
from odin.testing.render import RenderedCall, RenderedReply, is_sealed, seal_reasoning
from odin.testing.script import StreamError
from odin.testing.strict import (
    IssuedIds,
    RequestRefused,
    as_list,
    as_object,
    check_keys,
    check_url,
    make_missing_error,
    make_refusal,
    make_value_error,
    split_keys,
)

PING = b": keepalive\n\n"
GARBLED = b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "del\n\n'

_INCOMPLETE = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}

EventItems = Iterator[tuple[str, dict[str, Any]]]


def encode_event(name: str, data: dict[str, Any], sequence: int) -> bytes:
    body = msgspec.json.encode({"type": name, "sequence_number": sequence, **data})
    return b"event: %s\ndata: %s\n\n" % (name.encode(), body)


def encode_frames(rendered: RenderedReply, body: dict[str, Any]) -> list[bytes]:
    """Return the reply as numbered server-sent events, in the order of the real API."""
    return [encode_event(name, data, number) for number, (name, data) in enumerate(_list_events(rendered, body))]


def _list_events(rendered: RenderedReply, body: dict[str, Any]) -> EventItems:
    started: dict[str, Any] = {**_build_response(rendered, body), "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": started}
    yield "response.in_progress", {"response": started}
    index = 0
    if rendered.thinking:
        yield from _list_reasoning_events(rendered, body, index)
        index += 1
    if rendered.text:
        yield from _list_message_events(rendered, index)
        index += 1
    for number, call in enumerate(rendered.calls):
        yield from _list_call_events(rendered, call, number, index, body)
        index += 1
    done = build_reply(rendered, body)
    yield f"response.{done['status']}", {"response": done}


def _list_reasoning_events(rendered: RenderedReply, body: dict[str, Any], index: int) -> EventItems:
    item = _build_reasoning_item(rendered, body)
    at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    part = {"type": "summary_text", "text": rendered.thinking}
    yield "response.output_item.added", {"output_index": index, "item": {**item, "summary": []}}
    yield "response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
    for chunk in rendered.split_chunks(rendered.thinking):
        yield "response.reasoning_summary_text.delta", {**at, "delta": chunk}
    yield "response.reasoning_summary_text.done", {**at, "text": rendered.thinking}
    yield "response.reasoning_summary_part.done", {**at, "part": part}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _list_message_events(rendered: RenderedReply, index: int) -> EventItems:
    item = _build_message_item(rendered)
    part: dict[str, Any] = item["content"][0]
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    kind, key = ("refusal", "refusal") if rendered.stop == "refusal" else ("output_text", "text")
    started: dict[str, Any] = {**item, "status": "in_progress", "content": []}
    yield "response.output_item.added", {"output_index": index, "item": started}
    yield "response.content_part.added", {**at, "part": {**part, key: ""}}
    for chunk in rendered.split_chunks(rendered.text):
        yield f"response.{kind}.delta", {**at, "delta": chunk}
    yield f"response.{kind}.done", {**at, key: rendered.text}
    yield "response.content_part.done", {**at, "part": part}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _list_call_events(
    rendered: RenderedReply, call: RenderedCall, number: int, index: int, body: dict[str, Any]
) -> EventItems:
    item = _build_call_item(rendered, call, number, body)
    at = {"item_id": item["id"], "output_index": index}
    if item["type"] == "custom_tool_call":
        kind, started, done = "custom_tool_call_input", {"input": ""}, {"input": item["input"]}
    else:
        kind, started = "function_call_arguments", {"status": "in_progress", "arguments": ""}
        done = {"name": call.name, "arguments": call.json}
    yield "response.output_item.added", {"output_index": index, "item": {**item, **started}}
    for chunk in rendered.split_chunks(item["input"] if kind == "custom_tool_call_input" else call.json):
        yield f"response.{kind}.delta", {**at, "delta": chunk}
    yield f"response.{kind}.done", {**at, **done}
    yield "response.output_item.done", {"output_index": index, "item": item}


def build_reply(rendered: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request without streaming; also the last event of a stream."""
    output: list[dict[str, Any]] = []
    if rendered.thinking:
        output.append(_build_reasoning_item(rendered, body))
    if rendered.text:
        output.append(_build_message_item(rendered))
    output += [_build_call_item(rendered, call, number, body) for number, call in enumerate(rendered.calls)]
    reason = _INCOMPLETE.get(rendered.stop)
    return {
        **_build_response(rendered, body),
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "usage": _build_usage(rendered),
    }


def encode_error_frames(error: StreamError, sequence: int) -> list[bytes]:
    code = error.code or ("server_is_overloaded" if error.type == "overloaded_error" else "server_error")
    response: dict[str, Any] = {
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": code, "message": error.message},
    }
    return [
        encode_event("error", {"code": code, "message": error.message, "param": None}, sequence),
        encode_event("response.failed", {"response": response}, sequence + 1),
    ]


def _build_response(rendered: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{rendered.number:06d}",
        "object": "response",
        "created_at": rendered.created,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": rendered.model,
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": None,
        "metadata": {},
    }


def _build_reasoning_item(rendered: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": f"rs_{rendered.number:06d}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": rendered.thinking}],
    }
    if "reasoning.encrypted_content" in (body.get("include") or []):
        item["encrypted_content"] = seal_reasoning(rendered.model, rendered.thinking)
    return item


def _build_message_item(rendered: RenderedReply) -> dict[str, Any]:
    if rendered.stop == "refusal":
        part: dict[str, Any] = {"type": "refusal", "refusal": rendered.text}
    else:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": rendered.text}
    status = "incomplete" if rendered.stop in _INCOMPLETE else "completed"
    ident = f"msg_{rendered.number:06d}"
    return {"id": ident, "type": "message", "status": status, "content": [part], "role": "assistant"}


def _build_call_item(rendered: RenderedReply, call: RenderedCall, number: int, body: dict[str, Any]) -> dict[str, Any]:
    """Return the item of a call: with JSON arguments, or with the text for a custom tool."""
    tools = [as_object(tool) or {} for tool in as_list(body.get("tools")) or []]
    if call.name in {str(tool.get("name")) for tool in tools if tool.get("type") == "custom"}:
        text = call.args if isinstance(call.args, str) else str(next(iter(call.args.values()), ""))
        ident = f"ctc_{rendered.number:06d}_{number}"
        return {"id": ident, "type": "custom_tool_call", "input": text, "call_id": call.id, "name": call.name}
    return {
        "id": f"fc_{rendered.number:06d}_{number}",
        "type": "function_call",
        "status": "incomplete" if rendered.stop in _INCOMPLETE else "completed",
        "arguments": call.json,
        "call_id": call.id,
        "name": call.name,
    }


def _build_usage(rendered: RenderedReply) -> dict[str, Any]:
    usage = rendered.usage
    prompt, output = usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": prompt + output,
    }


_TOP_LEVEL_KEYS = split_keys(
    "model input instructions tools tool_choice parallel_tool_calls stream stream_options store "
    "previous_response_id conversation include max_output_tokens max_tool_calls metadata reasoning service_tier "
    "temperature text top_p top_logprobs truncation user background prompt prompt_cache_key "
    "prompt_cache_retention prompt_cache_options safety_identifier"
)
_ITEM_KEYS: dict[str, set[str]] = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "custom_tool_call": {"type", "call_id", "name", "input", "id"},
    "custom_tool_call_output": {"type", "call_id", "output", "id"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "item_reference": {"type", "id"},
}
_ID_PREFIX = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
"""The type of the output for each type of call."""

_MAX_CALL_ID = 64
_INPUT_TYPES = ("input_text", "input_image", "input_file")


def check_request(body: dict[str, Any], memory: IssuedIds, accepts: Collection[str] | None) -> None:
    check_keys(body, _TOP_LEVEL_KEYS, accepts=accepts)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise make_missing_error("model")
    _check_options(body)
    effort = (as_object(body.get("reasoning")) or {}).get("effort")
    check_sampling(body, effort, 16, "max_output_tokens")
    _check_tools(body)
    _check_format(body)
    items = _check_items(body, accepts)
    _check_pairs(items)
    _check_reasoning(body, items, memory)


def _check_options(body: dict[str, Any]) -> None:
    if body.get("previous_response_id") is not None:
        raise make_refusal(
            f"Previous response with id '{body['previous_response_id']}' not found.",
            "previous_response_id",
            "previous_response_not_found",
        )
    options = as_object(body.get("stream_options")) or {}
    if options and not body.get("stream"):
        raise make_refusal("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    check_keys(options, ("include_obfuscation",), "stream_options.")
    wanted = body.get("reasoning")
    if wanted is None:
        return
    reasoning = as_object(wanted)
    if reasoning is None:
        raise make_refusal("Invalid type for 'reasoning': expected an object.", "reasoning", "invalid_type")
    check_response_effort(body["model"], reasoning.get("effort"))


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    for at, item in enumerate(as_list(body.get("tools")) or []):
        tool = as_object(item) or {}
        if "type" not in tool:
            raise make_missing_error(f"tools[{at}].type")
        if tool["type"] == "function":
            if "name" in tool:
                check_keys(tool, ("type", "name", "description", "parameters", "strict"), f"tools[{at}].")
            check_function(tool, f"tools[{at}]", names)
        elif tool["type"] == "custom":
            check_keys(tool, ("type", "name", "description", "format"), f"tools[{at}].")
            if body["model"].startswith(("gpt-3", "gpt-4", "o")):
                text = "Custom tools are not supported with this model."
                raise make_refusal(text, f"tools[{at}]", "unsupported_parameter")
            check_function({"name": tool.get("name")}, f"tools[{at}]", names)
    check_tool_choice(body, names, ("name",))


def _check_format(body: dict[str, Any]) -> None:
    wanted = as_object((as_object(body.get("text")) or {}).get("format"))
    if wanted is None:
        return
    kind = wanted.get("type")
    if kind == "json_schema":
        check_json_schema(wanted, "text.format")
    elif kind == "json_object":
        if "json" not in str(body.get("input")).lower():
            raise make_refusal(
                "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
                "'json_object'.",
                "input",
            )
    elif kind != "text":
        raise make_value_error(kind, "'json_object', 'json_schema', and 'text'", "text.format.type")


# --- input ---


def _check_items(body: dict[str, Any], accepts: Collection[str] | None) -> list[dict[str, Any]]:
    given = body.get("input")
    if isinstance(given, str) and given:
        return []
    items = as_list(given)
    if not items:
        raise make_refusal(
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
            "input",
            "missing_required_parameter",
        )
    seen: set[str] = set()
    return [_check_item(item, f"input[{at}]", body["model"], seen, accepts) for at, item in enumerate(items)]


def _check_item(item: Any, where: str, model: str, seen: set[str], accepts: Collection[str] | None) -> dict[str, Any]:
    found = as_object(item)
    if found is None:
        raise make_refusal(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
    kind = found.get("type", "message")
    if kind not in _ITEM_KEYS:
        raise make_refusal(f"Invalid value: '{kind}'.", f"{where}.type", "invalid_value")
    check_keys(found, _ITEM_KEYS[kind], f"{where}.", accepts)
    _check_id(found.get("id"), kind, where, seen)
    if kind == "message":
        _check_content(found, where, model)
    elif kind == "function_call":
        check_call_id(found.get("call_id"), f"{where}.call_id", _MAX_CALL_ID)
        check_function_call(found, where)
    elif kind == "custom_tool_call":
        check_call_id(found.get("call_id"), f"{where}.call_id", _MAX_CALL_ID)
        if not isinstance(found.get("input"), str) or not isinstance(found.get("name"), str):
            raise make_refusal(f"Invalid type for '{where}.input': expected a string.", where, "invalid_type")
    elif kind in ("function_call_output", "custom_tool_call_output"):
        check_call_id(found.get("call_id"), f"{where}.call_id", _MAX_CALL_ID)
        # A result is text, or parts that are not empty.
        output = found.get("output")
        parts = as_list(output)
        if parts is None and not isinstance(output, str):
            raise make_missing_error(f"{where}.output")
        _check_parts(parts or [], f"{where}.output", _INPUT_TYPES, model)
    elif kind == "reasoning" and as_list(found.get("summary")) is None:
        raise make_missing_error(f"{where}.summary")
    return {**found, "type": kind}


def _check_id(ident: Any, kind: str, where: str, seen: set[str]) -> None:
    if ident is None:
        return
    prefix = _ID_PREFIX.get(kind, "")
    if not isinstance(ident, str) or not ident.startswith(prefix):
        raise make_refusal(
            f"Invalid '{where}.id': '{ident}'. Expected an ID that begins with '{prefix}'.",
            f"{where}.id",
            "invalid_value",
        )
    if ident in seen:
        raise make_refusal(
            f"Duplicate item found with id {ident}. Remove duplicate items from your input and try again.", "input"
        )
    seen.add(ident)


def _check_parts(parts: list[Any], where: str, allowed: tuple[str, ...], model: str) -> None:
    for at, item in enumerate(parts):
        part = as_object(item) or {}
        kind = part.get("type")
        if kind not in allowed:
            raise make_value_error(kind, ", ".join(map(repr, allowed)), f"{where}[{at}]")
        if kind in ("input_text", "output_text") and not isinstance(part.get("text"), str):
            raise make_missing_error(f"{where}[{at}].text")
        if kind == "input_image":
            check_keys(part, ("type", "image_url", "file_id", "detail"), f"{where}[{at}].")
            check_url(part.get("image_url"), f"{where}[{at}].image_url", model)


def _check_content(item: dict[str, Any], where: str, model: str) -> None:
    role = item.get("role")
    if role not in ("user", "system", "developer", "assistant"):
        raise make_value_error(role, "'assistant', 'system', 'developer', and 'user'", f"{where}.role")
    content = item.get("content")
    if isinstance(content, str):
        if role == "assistant" and not content:
            raise make_refusal(f"Invalid '{where}.content': assistant messages must not be empty.", f"{where}.content")
        return
    parts = as_list(content)
    if not parts:
        raise make_missing_error(f"{where}.content")
    _check_parts(parts, f"{where}.content", ("output_text", "refusal") if role == "assistant" else _INPUT_TYPES, model)


# --- items that belong together ---


def _check_pairs(items: list[dict[str, Any]]) -> None:
    open_calls: dict[str, None] = {}
    made: dict[str, str] = {}
    for item in items:
        ident = str(item.get("call_id"))
        if item["type"] in _CALLS:
            if ident in made:
                raise make_refusal(f"Duplicate function call with call_id {ident}.", "input")
            made[ident] = _CALLS[item["type"]]
            open_calls[ident] = None
        elif item["type"] in _CALLS.values():
            if made.get(ident) != item["type"]:
                raise make_refusal(f"No tool call found for function call output with call_id {ident}.", "input")
            if ident not in open_calls:
                raise make_refusal(f"Duplicate function call output with call_id {ident}.", "input")
            del open_calls[ident]
    if open_calls:
        raise make_refusal(f"No tool output found for function call {next(iter(open_calls))}.", "input")


def _check_reasoning(body: dict[str, Any], items: list[dict[str, Any]], memory: IssuedIds) -> None:
    _check_chain(body, items, memory)
    present = {item.get("id") for item in items if item["type"] == "reasoning"}
    for at, item in enumerate(items):
        needed = memory.reasoning_by_item.get(str(item.get("id")))
        if needed is not None and needed not in present:
            raise make_refusal(
                f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: "
                f"'{needed}'.",
                "input",
            )
        if item["type"] != "reasoning":
            continue
        _check_reasoning_item(body, item, memory)
        following = items[at + 1] if at + 1 < len(items) else {}
        if following.get("type") not in (*_CALLS, "reasoning") and following.get("role") != "assistant":
            raise make_refusal(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.",
                "input",
            )


def _check_chain(body: dict[str, Any], items: list[dict[str, Any]], memory: IssuedIds) -> None:
    """The reasoning of the running tool loop must come back all or none."""
    begins = 0
    for at, item in enumerate(items):
        follows = items[at - 1]["type"] in _CALLS.values() if at else False
        if item.get("role") == "user" and not follows:
            begins = at
    loop = items[begins:]
    present = {item.get("id") for item in loop if item["type"] == "reasoning"}
    led = [memory.reasoning_by_call.get(str(item.get("call_id"))) for item in loop if item["type"] in _CALLS]
    needed = [found[0] for found in led if found is not None and found[1] == body["model"]]
    missing = [ident for ident in needed if ident not in present]
    if missing and present:
        raise make_refusal(
            f"Item of type 'function_call' was provided without its required 'reasoning' item: '{missing[0]}'.", "input"
        )


def _check_reasoning_item(body: dict[str, Any], item: dict[str, Any], memory: IssuedIds) -> None:
    sealed = item.get("encrypted_content")
    if sealed is not None:
        if not isinstance(sealed, str) or not is_sealed(body["model"], sealed):
            raise make_refusal(
                f"The encrypted content for item {item.get('id')} could not be verified.",
                None,
                "invalid_encrypted_content",
            )
    elif body.get("store") is False or item.get("id") not in memory.reasoning:
        raise RequestRefused(
            f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try "
            "again with `store` set to true, or remove this item from your input.",
            status=404,
            type="invalid_request_error",
            param="input",
        )
