"""What the OpenAI Responses API refuses."""

from collections.abc import Collection
from typing import Any

from odin.testing.chat_rules import (
    check_call_id,
    check_called,
    check_function,
    check_json_schema,
    check_sampling,
    check_tool_choice,
    wrong,
)
from odin.testing.image_rules import check_url
from odin.testing.spoken import is_sealed
from odin.testing.strict import Memory, Refused, a_count, a_list, an_object, keys, unknown

_TOP = keys(
    "model input instructions tools tool_choice parallel_tool_calls stream stream_options store "
    "previous_response_id conversation include max_output_tokens max_tool_calls metadata reasoning service_tier "
    "temperature text top_p top_logprobs truncation user background prompt prompt_cache_key "
    "prompt_cache_retention safety_identifier"
)
_ITEM_KEYS: dict[str, set[str]] = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "item_reference": {"type", "id"},
}
_ID_PREFIX = {"message": "msg", "function_call": "fc", "function_call_output": "fc", "reasoning": "rs"}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_MAX_CALL_ID = 64
_INPUT = ("input_text", "input_image", "input_file")


def check(body: dict[str, Any], memory: Memory, accepts: Collection[str] | None) -> None:
    extra = unknown(body, _TOP, accepts)
    if extra:
        raise wrong(f"Unknown parameter: '{extra}'.", extra, "unknown_parameter")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise wrong("Missing required parameter: 'model'.", "model", "missing_required_parameter")
    _check_options(body)
    _check_reasoning_options(body)
    check_sampling(body)
    _check_tools(body)
    _check_format(body)
    items = _check_items(body, accepts)
    _check_pairs(items)
    _check_reasoning(body, items, memory)


def _check_options(body: dict[str, Any]) -> None:
    if body.get("previous_response_id") is not None:
        raise wrong(
            f"Previous response with id '{body['previous_response_id']}' not found.",
            "previous_response_id",
            "previous_response_not_found",
        )
    limit = body.get("max_output_tokens")
    if limit is not None and (a_count(limit) is None or limit < 16):
        raise wrong(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, "
            f"but got {limit!r} instead.",
            "max_output_tokens",
            "integer_below_min_value",
        )
    options = an_object(body.get("stream_options")) or {}
    if options and not body.get("stream"):
        raise wrong("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    odd = next((key for key in options if key != "include_obfuscation"), None)
    if odd:
        raise wrong(f"Unknown parameter: 'stream_options.{odd}'.", f"stream_options.{odd}", "unknown_parameter")


def _check_reasoning_options(body: dict[str, Any]) -> None:
    wanted = body.get("reasoning")
    if wanted is None:
        return
    reasoning = an_object(wanted)
    if reasoning is None:
        raise wrong("Invalid type for 'reasoning': expected an object.", "reasoning", "invalid_type")
    effort = reasoning.get("effort")
    if effort is not None and effort not in _EFFORTS:
        raise wrong(
            f"Invalid value: '{effort}'. Supported values are: {', '.join(map(repr, _EFFORTS))}.",
            "reasoning.effort",
            "invalid_value",
        )
    if effort is not None and body["model"].startswith(("gpt-3", "gpt-4")):
        raise wrong(
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            "reasoning.effort",
            "unsupported_parameter",
        )


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    for at, item in enumerate(a_list(body.get("tools")) or []):
        tool = an_object(item) or {}
        if "type" not in tool:
            raise wrong(
                f"Missing required parameter: 'tools[{at}].type'.", f"tools[{at}].type", "missing_required_parameter"
            )
        if tool["type"] == "function":
            extra = unknown(tool, ("type", "name", "description", "parameters", "strict"), ())
            if "name" in tool and extra:
                raise wrong(f"Unknown parameter: 'tools[{at}].{extra}'.", f"tools[{at}].{extra}", "unknown_parameter")
            check_function(tool, f"tools[{at}]", names)
    check_tool_choice(body, names, ("name",))


def _check_format(body: dict[str, Any]) -> None:
    wanted = an_object((an_object(body.get("text")) or {}).get("format"))
    if wanted is None:
        return
    kind = wanted.get("type")
    if kind == "json_schema":
        check_json_schema(wanted, "text.format")
    elif kind == "json_object":
        if "json" not in str(body.get("input")).lower():
            raise wrong(
                "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
                "'json_object'.",
                "input",
            )
    elif kind != "text":
        raise wrong(
            f"Invalid value: '{kind}'. Supported values are: 'json_object', 'json_schema', and 'text'.",
            "text.format.type",
            "invalid_value",
        )


# --- the input ---


def _check_items(body: dict[str, Any], accepts: Collection[str] | None) -> list[dict[str, Any]]:
    given = body.get("input")
    if isinstance(given, str) and given:
        return []
    items = a_list(given)
    if not items:
        raise wrong(
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
            "input",
            "missing_required_parameter",
        )
    seen: set[str] = set()
    return [_check_item(item, f"input[{at}]", body["model"], seen, accepts) for at, item in enumerate(items)]


def _check_item(item: Any, where: str, model: str, seen: set[str], accepts: Collection[str] | None) -> dict[str, Any]:
    found = an_object(item)
    if found is None:
        raise wrong(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
    kind = found.get("type", "message")
    if kind not in _ITEM_KEYS:
        raise wrong(f"Invalid value: '{kind}'.", f"{where}.type", "invalid_value")
    extra = unknown(found, _ITEM_KEYS[kind], accepts)
    if extra:
        raise wrong(f"Unknown parameter: '{where}.{extra}'.", f"{where}.{extra}", "unknown_parameter")
    _check_id(found.get("id"), kind, where, seen)
    if kind == "message":
        _check_content(found, where, model)
    elif kind == "function_call":
        check_call_id(found.get("call_id"), f"{where}.call_id", _MAX_CALL_ID)
        check_called(found, where)
    elif kind == "function_call_output":
        check_call_id(found.get("call_id"), f"{where}.call_id", _MAX_CALL_ID)
        _check_output(found.get("output"), f"{where}.output", model)
    elif kind == "reasoning" and a_list(found.get("summary")) is None:
        raise wrong(f"Missing required parameter: '{where}.summary'.", f"{where}.summary", "missing_required_parameter")
    return {**found, "type": kind}


def _check_id(ident: Any, kind: str, where: str, seen: set[str]) -> None:
    if ident is None:
        return
    prefix = _ID_PREFIX.get(kind, "")
    if not isinstance(ident, str) or not ident.startswith(prefix):
        raise wrong(
            f"Invalid '{where}.id': '{ident}'. Expected an ID that begins with '{prefix}'.",
            f"{where}.id",
            "invalid_value",
        )
    if ident in seen:
        raise wrong(
            f"Duplicate item found with id {ident}. Remove duplicate items from your input and try again.", "input"
        )
    seen.add(ident)


def _check_output(output: Any, where: str, model: str) -> None:
    """A result is text, or parts of which none may be empty of its own kind."""
    if isinstance(output, str):
        return
    parts = a_list(output)
    if parts is None:
        raise wrong(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    _check_parts(parts, where, _INPUT, model)


def _check_parts(parts: list[Any], where: str, allowed: tuple[str, ...], model: str) -> None:
    for at, item in enumerate(parts):
        part = an_object(item) or {}
        kind = part.get("type")
        if kind not in allowed:
            raise wrong(
                f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, allowed))}.",
                f"{where}[{at}]",
                "invalid_value",
            )
        if kind in ("input_text", "output_text") and not isinstance(part.get("text"), str):
            raise wrong(
                f"Missing required parameter: '{where}[{at}].text'.",
                f"{where}[{at}].text",
                "missing_required_parameter",
            )
        if kind == "input_image":
            extra = unknown(part, ("type", "image_url", "file_id", "detail"), ())
            if extra:
                raise wrong(f"Unknown parameter: '{where}[{at}].{extra}'.", f"{where}[{at}]", "unknown_parameter")
            check_url(part.get("image_url"), f"{where}[{at}].image_url", model)


def _check_content(item: dict[str, Any], where: str, model: str) -> None:
    role = item.get("role")
    if role not in ("user", "system", "developer", "assistant"):
        raise wrong(
            f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
            f"{where}.role",
            "invalid_value",
        )
    content = item.get("content")
    if isinstance(content, str):
        if role == "assistant" and not content:
            raise wrong(f"Invalid '{where}.content': assistant messages must not be empty.", f"{where}.content")
        return
    parts = a_list(content)
    if not parts:
        raise wrong(f"Missing required parameter: '{where}.content'.", f"{where}.content", "missing_required_parameter")
    _check_parts(parts, f"{where}.content", ("output_text", "refusal") if role == "assistant" else _INPUT, model)


# --- what belongs together ---


def _check_pairs(items: list[dict[str, Any]]) -> None:
    open_calls: dict[str, None] = {}
    made: set[str] = set()
    for item in items:
        ident = item.get("call_id")
        if item["type"] == "function_call":
            if ident in made:
                raise wrong(f"Duplicate function call with call_id {ident}.", "input")
            made.add(str(ident))
            open_calls[str(ident)] = None
        elif item["type"] == "function_call_output":
            if ident not in made:
                raise wrong(f"No tool call found for function call output with call_id {ident}.", "input")
            if ident not in open_calls:
                raise wrong(f"Duplicate function call output with call_id {ident}.", "input")
            del open_calls[str(ident)]
    if open_calls:
        raise wrong(f"No tool output found for function call {next(iter(open_calls))}.", "input")


def _check_reasoning(body: dict[str, Any], items: list[dict[str, Any]], memory: Memory) -> None:
    _check_chain(body, items, memory)
    present = {item.get("id") for item in items if item["type"] == "reasoning"}
    for at, item in enumerate(items):
        needed = memory.reasoned.get(str(item.get("id")))
        if needed is not None and needed not in present:
            raise wrong(
                f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: "
                f"'{needed}'.",
                "input",
            )
        if item["type"] != "reasoning":
            continue
        _check_reasoning_item(body, item, memory)
        following = items[at + 1] if at + 1 < len(items) else {}
        if not _is_reply(following):
            raise wrong(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.",
                "input",
            )


def _check_chain(body: dict[str, Any], items: list[dict[str, Any]], memory: Memory) -> None:
    """The reasoning of the running tool loop comes back all or none: each item was written knowing those before it."""
    begins = 0
    for at, item in enumerate(items):
        follows = items[at - 1]["type"] == "function_call_output" if at else False
        if item.get("role") == "user" and not follows:
            begins = at
    loop = items[begins:]
    present = {item.get("id") for item in loop if item["type"] == "reasoning"}
    led = [memory.led.get(str(item.get("call_id"))) for item in loop if item["type"] == "function_call"]
    needed = [found[0] for found in led if found is not None and found[1] == body["model"]]
    missing = [ident for ident in needed if ident not in present]
    if missing and present:
        raise wrong(
            f"Item of type 'function_call' was provided without its required 'reasoning' item: '{missing[0]}'.",
            "input",
        )


def _is_reply(item: dict[str, Any]) -> bool:
    return item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"


def _check_reasoning_item(body: dict[str, Any], item: dict[str, Any], memory: Memory) -> None:
    sealed = item.get("encrypted_content")
    if sealed is not None:
        if not isinstance(sealed, str) or not is_sealed(body["model"], sealed):
            raise wrong(
                f"The encrypted content for item {item.get('id')} could not be verified.",
                None,
                "invalid_encrypted_content",
            )
    elif body.get("store") is False or item.get("id") not in memory.reasoning:
        raise Refused(
            f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try "
            "again with `store` set to true, or remove this item from your input.",
            status=404,
            type="invalid_request_error",
            param="input",
        )
