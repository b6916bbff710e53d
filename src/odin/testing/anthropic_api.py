"""The Anthropic Messages API of the scripted server: wire format, errors, and the checks of the real API."""

import re
from collections.abc import Collection
from typing import Any

import msgspec

from odin.testing.render import RenderedReply
from odin.testing.script import StreamError
from odin.testing.strict import (
    IssuedIds,
    RequestRefused,
    as_int,
    as_list,
    as_number,
    as_object,
    check_sizes,
    check_source,
    find_unknown_key,
    split_keys,
)

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def encode_event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode({"type": name, **data}))


PING = encode_event("ping", {})
GARBLED = b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "del\n\n'


def encode_frames(rendered: RenderedReply, body: dict[str, Any]) -> list[bytes]:
    """Return the reply as server-sent events, in the order of the real API."""
    start: dict[str, Any] = {
        **_build_message(rendered),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _build_usage(rendered, 1),
    }
    out = [encode_event("message_start", {"message": start})]
    for index, (block, text) in enumerate(_build_blocks(rendered)):
        out.append(encode_event("content_block_start", {"index": index, "content_block": _open_block(block)}))
        if index == 0:
            out.append(PING)
        out += [
            encode_event("content_block_delta", {"index": index, "delta": delta})
            for delta in _build_deltas(rendered, block, text)
        ]
        out.append(encode_event("content_block_stop", {"index": index}))
    if len(out) == 1:
        out.append(PING)
    delta = {"stop_reason": rendered.stop, "stop_sequence": None}
    out.append(
        encode_event("message_delta", {"delta": delta, "usage": _build_usage(rendered, _count_output(rendered))})
    )
    out.append(encode_event("message_stop", {}))
    return out


def build_reply(rendered: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request without streaming."""
    return {
        **_build_message(rendered),
        "content": [block for block, _ in _build_blocks(rendered)],
        "stop_reason": rendered.stop,
        "stop_sequence": None,
        "usage": _build_usage(rendered, _count_output(rendered)),
    }


def build_error_body(
    status: int, message: str, type: str | None, code: str | None, param: str | None
) -> dict[str, Any]:
    kind = type or _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error = {"type": kind, "message": message or kind.replace("_", " ").capitalize()}
    return {"type": "error", "error": error, "request_id": "req_scripted"}


def encode_error_frames(error: StreamError, sequence: int) -> list[bytes]:
    return [encode_event("error", {"error": {"type": error.type, "message": error.message}})]


def _build_message(rendered: RenderedReply) -> dict[str, Any]:
    found = {"id": f"msg_{rendered.number:06d}", "type": "message", "role": "assistant", "model": rendered.model}
    return found if rendered.dropped is None else {**found, "input_transformations": list(rendered.dropped)}


def _build_blocks(rendered: RenderedReply) -> list[tuple[dict[str, Any], str]]:
    """Return the content blocks, each with the text of its deltas."""
    blocks: list[tuple[dict[str, Any], str]] = [
        ({"type": "redacted_thinking", "data": signature}, "")
        if shown is None
        else ({"type": "thinking", "thinking": shown, "signature": signature}, shown)
        for shown, signature in rendered.thoughts
    ]
    if rendered.text:
        blocks.append(({"type": "text", "text": rendered.text}, rendered.text))
    for call in rendered.calls:
        args = {} if isinstance(call.args, str) else call.args
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": args}, call.json))
    return blocks


def _open_block(block: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, dict[str, Any]] = {
        "thinking": {"thinking": "", "signature": ""},
        "text": {"text": ""},
        "tool_use": {"input": {}},
    }
    return {**block, **empty.get(block["type"], {})}


def _build_deltas(rendered: RenderedReply, block: dict[str, Any], text: str) -> list[dict[str, Any]]:
    if block["type"] == "redacted_thinking":
        return []
    if block["type"] == "text":
        return [{"type": "text_delta", "text": part} for part in rendered.split_chunks(text)]
    if block["type"] == "thinking":
        parts = [{"type": "thinking_delta", "thinking": part} for part in rendered.split_chunks(text)]
        return [*parts, {"type": "signature_delta", "signature": block["signature"]}]
    fragments = ["", *rendered.split_chunks("" if text == "{}" else text)]
    return [{"type": "input_json_delta", "partial_json": fragment} for fragment in fragments]


def _count_output(rendered: RenderedReply) -> int:
    return rendered.usage.output + rendered.usage.reasoning


def _build_usage(rendered: RenderedReply, output: int) -> dict[str, Any]:
    return {
        "input_tokens": rendered.usage.input,
        "cache_creation_input_tokens": rendered.usage.cache_write,
        "cache_read_input_tokens": rendered.usage.cache_read,
        "output_tokens": output,
    }


_TOP_LEVEL_KEYS = split_keys(
    "model messages max_tokens system metadata stop_sequences stream temperature top_k top_p tools tool_choice "
    "thinking service_tier container context_management mcp_servers output_config output_format cache_control "
    "inference_geo speed"
)
_BLOCK_KEYS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "context", "citations", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
_ROLE_BLOCKS = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
_TOOL_KEYS = split_keys(
    "type name description input_schema cache_control strict eager_input_streaming input_examples defer_loading "
    "allowed_callers"
)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")

ContentBlock = dict[str, Any]


def _check_keys(found: ContentBlock, known: Collection[str], where: str, accepts: Collection[str] | None) -> None:
    extra = find_unknown_key(found, known, accepts)
    if extra:
        raise RequestRefused(f"{where}{extra}: Extra inputs are not permitted")


def _require_object(value: Any, where: str) -> dict[str, Any]:
    found = as_object(value)
    if found is None:
        raise RequestRefused(f"{where}: Input should be an object")
    return found


def check_request(body: dict[str, Any], memory: IssuedIds, accepts: Collection[str] | None) -> None:
    _check_keys(body, _TOP_LEVEL_KEYS, "", accepts)
    _check_basics(body)
    _check_output(body)
    _check_thinking(body)
    _check_system(body)
    names = _check_tools(body, accepts)
    if body.get("tool_choice") is not None:
        choice = as_object(body["tool_choice"])
        if choice is None or choice.get("type") not in ("auto", "any", "tool", "none"):
            raise RequestRefused("tool_choice: Input should be an object with type 'auto', 'any', 'tool' or 'none'")
        if not names:
            raise RequestRefused("tool_choice may only be specified while providing tools")
        if choice["type"] == "tool" and choice.get("name") not in names:
            raise RequestRefused(f"Tool '{choice.get('name')}' not found in provided tools")
    turns = _check_messages(body, accepts)
    _check_pairs(turns)
    # Every image whose bytes are in the request, including those inside results.
    blocks = [(place, block) for _, _, place, block in _list_blocks(turns)]
    for place, block in list(blocks):
        blocks += [(f"{place}.tool_result.content.{n}", part) for n, part in _list_result_parts(block)]
    found = [(place, check_source(block, f"{place}.image")) for place, block in blocks if block["type"] == "image"]
    check_sizes([(place, picture) for place, picture in found if picture is not None])
    _check_thoughts(body, turns, memory)
    if not body.get("tools") and any(
        block["type"] in ("tool_use", "tool_result") for _, _, _, block in _list_blocks(turns)
    ):
        raise RequestRefused("Requests which include `tool_use` or `tool_result` blocks must define tools")
    marks = msgspec.json.encode(body).count(b'"cache_control":{')
    if marks > 4:
        raise RequestRefused(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")


def _check_basics(body: dict[str, Any]) -> None:
    for field in ("model", "messages", "max_tokens"):
        if body.get(field) is None:
            raise RequestRefused(f"{field}: Field required")
    if not isinstance(body["model"], str) or not body["model"]:
        raise RequestRefused("model: String should have at least 1 character")
    limit = as_int(body["max_tokens"])
    if limit is None:
        raise RequestRefused("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise RequestRefused("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(body.get("stream", False), bool):
        raise RequestRefused("stream: Input should be a valid boolean")
    heat = as_number(body.get("temperature", 1.0))
    if heat is None:
        raise RequestRefused("temperature: Input should be a valid number")
    if not 0 <= heat <= 1:
        raise RequestRefused("temperature: range: 0..1")
    for sequence in as_list(body.get("stop_sequences")) or []:
        if not isinstance(sequence, str) or not sequence.strip():
            raise RequestRefused("stop_sequences: each stop sequence must contain non-whitespace")


def _check_output(body: dict[str, Any]) -> None:
    form = (as_object(body.get("output_config")) or {}).get("format")
    found = as_object(form) or {}
    if form is not None and (found.get("type") != "json_schema" or as_object(found.get("schema")) is None):
        raise RequestRefused("output_config.format.schema: Field required")


def _check_thinking(body: dict[str, Any]) -> None:
    if "thinking" not in body:
        return
    thinking = as_object(body["thinking"])
    if thinking is None or thinking.get("type") not in ("enabled", "disabled", "adaptive", "between_tools"):
        raise RequestRefused(
            "thinking: Input tag found does not match any of the expected tags: 'adaptive', 'between_tools', "
            "'disabled', 'enabled'"
        )
    if thinking["type"] in ("disabled", "between_tools"):
        return
    if thinking["type"] == "enabled":
        budget = as_int(thinking.get("budget_tokens"))
        if budget is None:
            raise RequestRefused("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            raise RequestRefused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            raise RequestRefused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("temperature", 1) != 1:
        raise RequestRefused("`temperature` may only be set to 1 when thinking is enabled.")
    choice = as_object(body.get("tool_choice")) or {}
    if thinking["type"] == "enabled" and choice.get("type") in ("any", "tool"):
        raise RequestRefused("Thinking may not be enabled when tool_choice forces tool use.")


def _check_system(body: dict[str, Any]) -> None:
    system = body.get("system")
    if system is None or isinstance(system, str):
        return
    blocks = as_list(system)
    if blocks is None:
        raise RequestRefused("system: Input should be a valid string or list")
    for at, item in enumerate(blocks):
        block = as_object(item)
        if block is None or block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise RequestRefused(f"system.{at}.type: Input should be 'text'")
        if not block["text"]:
            raise RequestRefused("system: text content blocks must be non-empty")


def _check_tools(body: dict[str, Any], accepts: Collection[str] | None) -> set[str]:
    names: set[str] = set()
    tools = as_list(body.get("tools", []))
    if tools is None:
        raise RequestRefused("tools: Input should be a valid list")
    for at, item in enumerate(tools):
        tool = _require_object(item, f"tools.{at}")
        name = tool.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise RequestRefused(f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise RequestRefused("tools: Tool names must be unique.")
        names.add(name)
        if tool.get("type", "custom") == "custom":
            _check_custom_tool(tool, f"tools.{at}.custom", accepts)
    return names


def _check_custom_tool(tool: dict[str, Any], where: str, accepts: Collection[str] | None) -> None:
    _check_keys(tool, _TOOL_KEYS, f"{where}.", accepts)
    schema = as_object(tool.get("input_schema"))
    if schema is None:
        raise RequestRefused(f"{where}.input_schema: Field required")
    if schema.get("type") != "object":
        raise RequestRefused(f"{where}.input_schema.type: Input should be 'object'")
    if any(key in schema for key in ("oneOf", "allOf", "anyOf")):
        raise RequestRefused(
            f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
        )
    if not isinstance(tool.get("description", ""), str):
        raise RequestRefused(f"{where}.description: Input should be a valid string")


# --- messages ---

MergedMessages = list[tuple[int, str, list[tuple[str, ContentBlock]]]]
"""Messages with consecutive ones of the same role merged, as the API does: (first index, role, [(place, block)])."""


def _list_blocks(turns: MergedMessages) -> list[tuple[int, str, str, ContentBlock]]:
    return [(index, role, place, block) for index, role, blocks in turns for place, block in blocks]


def _check_messages(body: dict[str, Any], accepts: Collection[str] | None) -> MergedMessages:
    messages = as_list(body["messages"])
    if messages is None:
        raise RequestRefused("messages: Input should be a valid list")
    if not messages:
        raise RequestRefused("messages: at least one message is required")
    turns: MergedMessages = []
    for at, item in enumerate(messages):
        role, blocks = _check_message(item, at, at == len(messages) - 1, accepts)
        if turns and turns[-1][1] == role:
            turns[-1][2].extend(blocks)
        else:
            turns.append((at, role, blocks))
    if turns[0][1] != "user":
        raise RequestRefused('messages: first message must use the "user" role')
    return turns


def _check_message(
    item: Any, at: int, is_last: bool, accepts: Collection[str] | None
) -> tuple[str, list[tuple[str, ContentBlock]]]:
    message = _require_object(item, f"messages.{at}")
    _check_keys(message, ("role", "content"), f"messages.{at}.", accepts)
    role = message.get("role")
    if role not in _ROLE_BLOCKS:
        raise RequestRefused(f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"')
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else as_list(content or [])
    if "content" not in message or blocks is None:
        raise RequestRefused(f"messages.{at}.content: Input should be a valid string or list")
    if not blocks and not (is_last and role == "assistant"):
        raise RequestRefused(
            f"messages.{at}: all messages must have non-empty content except for the optional final assistant message"
        )
    found = [
        (f"messages.{at}.content.{n}", _check_block(b, f"messages.{at}.content.{n}", role, accepts))
        for n, b in enumerate(blocks)
    ]
    if is_last and role == "assistant" and found and found[-1][1].get("text", "x")[-1:].isspace():
        raise RequestRefused("messages: final assistant content cannot end with trailing whitespace")
    return role, found


def _check_block(item: Any, where: str, role: str, accepts: Collection[str] | None) -> ContentBlock:
    block = _require_object(item, where)
    kind = block.get("type")
    if kind not in _BLOCK_KEYS:
        raise RequestRefused(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if kind not in _ROLE_BLOCKS[role]:
        raise RequestRefused(f"{where}: `{kind}` blocks cannot be in {role} messages")
    _check_keys(block, _BLOCK_KEYS[kind], f"{where}.{kind}.", accepts)
    if kind == "text":
        if not isinstance(block.get("text"), str):
            raise RequestRefused(f"{where}.text.text: Field required")
        if not block["text"]:
            raise RequestRefused("messages: text content blocks must be non-empty")
        if not block["text"].strip():
            raise RequestRefused("messages: text content blocks must contain non-whitespace text")
    elif kind == "tool_use":
        _check_tool_use(block, f"{where}.tool_use")
    elif kind == "tool_result":
        _check_tool_result(block, f"{where}.tool_result", accepts)
    return block


def _check_tool_use(block: ContentBlock, where: str) -> None:
    ident = block.get("id")
    if not isinstance(ident, str) or not _CALL_ID.fullmatch(ident):
        raise RequestRefused(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    name = block.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        raise RequestRefused(f"{where}.name: String should have at least 1 and at most 200 characters")
    if not _TOOL_NAME.fullmatch(name):
        raise RequestRefused(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if as_object(block.get("input")) is None:
        raise RequestRefused(f"{where}.input: Input should be a valid dictionary")


def _check_tool_result(block: ContentBlock, where: str, accepts: Collection[str] | None) -> None:
    ident = block.get("tool_use_id")
    if not isinstance(ident, str) or not _CALL_ID.fullmatch(ident):
        raise RequestRefused(f"{where}.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("is_error", False), bool):
        raise RequestRefused(f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    parts = as_list(content)
    if not isinstance(content, str) and parts is None:
        raise RequestRefused(f"{where}.content: Input should be a valid string or list")
    if block.get("is_error") and not content:
        raise RequestRefused(f"{where}: content cannot be empty if `is_error` is true")
    for at, part in enumerate(parts or []):
        kind = (as_object(part) or {}).get("type")
        if kind not in ("text", "image", "document"):
            raise RequestRefused(
                f"{where}.content.{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            )
        if block.get("is_error") and kind != "text":
            raise RequestRefused(f"{where}: all content must be type `text` if `is_error` is true")
        _check_block(part, f"{where}.content.{at}", "user", accepts)


def _list_result_parts(block: ContentBlock) -> list[tuple[int, ContentBlock]]:
    return list(enumerate(as_list(block.get("content")) or [])) if block["type"] == "tool_result" else []


# --- calls and their results ---


def _check_pairs(turns: MergedMessages) -> None:
    seen: set[str] = set()
    waiting: dict[str, str] = {}
    for index, role, blocks in turns:
        if role == "assistant":
            waiting = {}
            for place, block in blocks:
                if block["type"] == "tool_use":
                    if block["id"] in seen:
                        raise RequestRefused("messages: `tool_use` ids must be unique")
                    seen.add(block["id"])
                    waiting[block["id"]] = place
        else:
            _check_results(index, blocks, waiting)
            waiting = {}
    if waiting:
        raise _make_unanswered_error(waiting)


def _check_results(index: int, blocks: list[tuple[str, ContentBlock]], waiting: dict[str, str]) -> None:
    answered: set[str] = set()
    leading = True
    for place, block in blocks:
        if block["type"] != "tool_result":
            leading = False
            continue
        ident = block["tool_use_id"]
        if ident not in waiting:
            raise RequestRefused(
                f"{place}: unexpected `tool_use_id` found in `tool_result` blocks: {ident}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )
        if ident in answered:
            raise RequestRefused(
                f"{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with "
                f"id: {ident}"
            )
        if leading:
            answered.add(ident)
    missing = {ident: place for ident, place in waiting.items() if ident not in answered}
    if missing:
        raise _make_unanswered_error(missing)


def _make_unanswered_error(calls: dict[str, str]) -> RequestRefused:
    place = next(iter(calls.values())).rsplit(".content.", 1)[0]
    return RequestRefused(
        f"{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(calls)}. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message."
    )


# --- thinking ---


def _check_thoughts(body: dict[str, Any], turns: MergedMessages, memory: IssuedIds) -> None:
    for _, _, blocks in turns:
        _check_whole_thoughts(blocks, memory)
    thinking = as_object(body.get("thinking")) or {}
    if thinking.get("type") == "enabled":  # with adaptive thinking, turns need not start with it
        _check_last_thoughts(body["model"], turns, memory)


def _check_whole_thoughts(blocks: list[tuple[str, ContentBlock]], memory: IssuedIds) -> None:
    """Thinking blocks must come back all or none, and in order."""
    kinds = ("thinking", "redacted_thinking")
    thoughts = [
        (place, block.get("signature") or block.get("data")) for place, block in blocks if block["type"] in kinds
    ]
    for place, proof in thoughts:
        whole = memory.thinking_groups.get(str(proof), [proof])
        if [other for _, other in thoughts if other in whole] != whole:
            raise RequestRefused(
                f"{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
                "modified. These blocks must remain as they were in the original response."
            )


def _check_last_thoughts(model: str, turns: MergedMessages, memory: IssuedIds) -> None:
    """The calls of the running tool loop must keep the thinking that led to them."""
    for _, role, blocks in reversed(turns):
        if role == "user":
            if not any(block["type"] == "tool_result" for _, block in blocks):
                return
            continue
        place, first = blocks[0] if blocks else ("messages", {"type": "nothing"})
        calls = [block["id"] for _, block in blocks if block["type"] == "tool_use"]
        led = any(memory.thinking_calls.get(ident) == model for ident in calls)
        if led and first["type"] not in ("thinking", "redacted_thinking"):
            raise RequestRefused(
                f"{place}.type: Expected `thinking` or `redacted_thinking`, but found `{first['type']}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking block "
                "(preceding the lastmost set of `tool_use` and `tool_result` blocks)."
            )
