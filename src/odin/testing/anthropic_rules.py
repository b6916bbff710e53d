"""What the Anthropic Messages API refuses."""

import re
from collections.abc import Collection
from typing import Any

import msgspec

from odin.core.picture import Picture
from odin.testing.image_rules import check_sizes, check_source
from odin.testing.spoken import is_sealed, signature
from odin.testing.strict import Memory, Refused, a_count, a_list, a_number, an_object, keys, unknown

_TOP = keys(
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
_TOOL_KEYS = keys(
    "type name description input_schema cache_control strict eager_input_streaming input_examples defer_loading "
    "allowed_callers"
)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")

Block = dict[str, Any]


def check(body: dict[str, Any], memory: Memory, accepts: Collection[str] | None) -> None:
    extra = unknown(body, _TOP, accepts)
    if extra:
        raise Refused(f"{extra}: Extra inputs are not permitted")
    _check_basics(body)
    _check_thinking(body)
    _check_system(body)
    names = _check_tools(body, accepts)
    _check_tool_choice(body, names)
    turns = _check_messages(body, accepts)
    _check_pairs(turns)
    check_sizes(_images(turns))
    _check_thoughts(body, turns, memory)
    if not body.get("tools") and any(block["type"] in ("tool_use", "tool_result") for _, _, _, block in _all(turns)):
        raise Refused("Requests which include `tool_use` or `tool_result` blocks must define tools")
    marks = msgspec.json.encode(body).count(b'"cache_control":{')
    if marks > 4:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")


def _check_basics(body: dict[str, Any]) -> None:
    for field in ("model", "messages", "max_tokens"):
        if body.get(field) is None:
            raise Refused(f"{field}: Field required")
    if not isinstance(body["model"], str) or not body["model"]:
        raise Refused("model: String should have at least 1 character")
    limit = a_count(body["max_tokens"])
    if limit is None:
        raise Refused("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(body.get("stream", False), bool):
        raise Refused("stream: Input should be a valid boolean")
    heat = a_number(body.get("temperature", 1.0))
    if heat is None:
        raise Refused("temperature: Input should be a valid number")
    if not 0 <= heat <= 1:
        raise Refused("temperature: range: 0..1")
    for sequence in a_list(body.get("stop_sequences")) or []:
        if not isinstance(sequence, str) or not sequence.strip():
            raise Refused("stop_sequences: each stop sequence must contain non-whitespace")


def _check_thinking(body: dict[str, Any]) -> None:
    if "thinking" not in body:
        return
    thinking = an_object(body["thinking"])
    if thinking is None or thinking.get("type") not in ("enabled", "disabled", "adaptive"):
        raise Refused(
            "thinking: Input tag found does not match any of the expected tags: 'adaptive', 'disabled', 'enabled'"
        )
    if thinking["type"] == "disabled":
        return
    if thinking["type"] == "enabled":
        budget = a_count(thinking.get("budget_tokens"))
        if budget is None:
            raise Refused("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("temperature", 1) != 1:
        raise Refused("`temperature` may only be set to 1 when thinking is enabled.")
    choice = an_object(body.get("tool_choice")) or {}
    if choice.get("type") in ("any", "tool"):
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")


def _check_system(body: dict[str, Any]) -> None:
    system = body.get("system")
    if system is None or isinstance(system, str):
        return
    blocks = a_list(system)
    if blocks is None:
        raise Refused("system: Input should be a valid string or list")
    for at, item in enumerate(blocks):
        block = an_object(item)
        if block is None or block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise Refused(f"system.{at}.type: Input should be 'text'")
        if not block["text"]:
            raise Refused("system: text content blocks must be non-empty")


def _check_tools(body: dict[str, Any], accepts: Collection[str] | None) -> set[str]:
    names: set[str] = set()
    tools = a_list(body.get("tools", []))
    if tools is None:
        raise Refused("tools: Input should be a valid list")
    for at, item in enumerate(tools):
        tool = an_object(item)
        if tool is None:
            raise Refused(f"tools.{at}: Input should be an object")
        name = tool.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise Refused(f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(name)
        if tool.get("type", "custom") == "custom":
            _check_custom_tool(tool, f"tools.{at}.custom", accepts)
    return names


def _check_custom_tool(tool: dict[str, Any], where: str, accepts: Collection[str] | None) -> None:
    extra = unknown(tool, _TOOL_KEYS, accepts)
    if extra:
        raise Refused(f"{where}.{extra}: Extra inputs are not permitted")
    schema = an_object(tool.get("input_schema"))
    if schema is None:
        raise Refused(f"{where}.input_schema: Field required")
    if schema.get("type") != "object":
        raise Refused(f"{where}.input_schema.type: Input should be 'object'")
    if any(key in schema for key in ("oneOf", "allOf", "anyOf")):
        raise Refused(f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if not isinstance(tool.get("description", ""), str):
        raise Refused(f"{where}.description: Input should be a valid string")


def _check_tool_choice(body: dict[str, Any], names: set[str]) -> None:
    if body.get("tool_choice") is None:
        return
    choice = an_object(body["tool_choice"])
    if choice is None or choice.get("type") not in ("auto", "any", "tool", "none"):
        raise Refused("tool_choice: Input should be an object with type 'auto', 'any', 'tool' or 'none'")
    if not names:
        raise Refused("tool_choice may only be specified while providing tools")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise Refused(f"Tool '{choice.get('name')}' not found in provided tools")


# --- messages ---

Turns = list[tuple[int, str, list[tuple[str, Block]]]]
"""Messages with those of the same role put together, as the API does: (first index, role, [(place, block)])."""


def _all(turns: Turns) -> list[tuple[int, str, str, Block]]:
    return [(index, role, place, block) for index, role, blocks in turns for place, block in blocks]


def _check_messages(body: dict[str, Any], accepts: Collection[str] | None) -> Turns:
    messages = a_list(body["messages"])
    if messages is None:
        raise Refused("messages: Input should be a valid list")
    if not messages:
        raise Refused("messages: at least one message is required")
    turns: Turns = []
    for at, item in enumerate(messages):
        role, blocks = _check_message(item, at, at == len(messages) - 1, accepts)
        if turns and turns[-1][1] == role:
            turns[-1][2].extend(blocks)
        else:
            turns.append((at, role, blocks))
    if turns[0][1] != "user":
        raise Refused('messages: first message must use the "user" role')
    return turns


def _check_message(
    item: Any, at: int, is_last: bool, accepts: Collection[str] | None
) -> tuple[str, list[tuple[str, Block]]]:
    message = an_object(item)
    if message is None:
        raise Refused(f"messages.{at}: Input should be an object")
    extra = unknown(message, ("role", "content"), accepts)
    if extra:
        raise Refused(f"messages.{at}.{extra}: Extra inputs are not permitted")
    role = message.get("role")
    if role not in _ROLE_BLOCKS:
        raise Refused(f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"')
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else a_list(content or [])
    if "content" not in message or blocks is None:
        raise Refused(f"messages.{at}.content: Input should be a valid string or list")
    if not blocks and not (is_last and role == "assistant"):
        raise Refused(
            f"messages.{at}: all messages must have non-empty content except for the optional final assistant message"
        )
    found = [
        (f"messages.{at}.content.{n}", _check_block(b, f"messages.{at}.content.{n}", role, accepts))
        for n, b in enumerate(blocks)
    ]
    if is_last and role == "assistant" and found and found[-1][1].get("text", "x")[-1:].isspace():
        raise Refused("messages: final assistant content cannot end with trailing whitespace")
    return role, found


def _check_block(item: Any, where: str, role: str, accepts: Collection[str] | None) -> Block:
    block = an_object(item)
    if block is None:
        raise Refused(f"{where}: Input should be an object")
    kind = block.get("type")
    if kind not in _BLOCK_KEYS:
        raise Refused(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if kind not in _ROLE_BLOCKS[role]:
        raise Refused(f"{where}: `{kind}` blocks cannot be in {role} messages")
    extra = unknown(block, _BLOCK_KEYS[kind], accepts)
    if extra:
        raise Refused(f"{where}.{kind}.{extra}: Extra inputs are not permitted")
    if kind == "text":
        _check_text(block, where)
    elif kind == "tool_use":
        _check_tool_use(block, f"{where}.tool_use")
    elif kind == "tool_result":
        _check_tool_result(block, f"{where}.tool_result", accepts)
    return block


def _check_text(block: Block, where: str) -> None:
    if not isinstance(block.get("text"), str):
        raise Refused(f"{where}.text.text: Field required")
    if not block["text"]:
        raise Refused("messages: text content blocks must be non-empty")
    if not block["text"].strip():
        raise Refused("messages: text content blocks must contain non-whitespace text")


def _check_tool_use(block: Block, where: str) -> None:
    ident = block.get("id")
    if not isinstance(ident, str) or not _CALL_ID.fullmatch(ident):
        raise Refused(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    name = block.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        raise Refused(f"{where}.name: String should have at least 1 and at most 200 characters")
    if not _TOOL_NAME.fullmatch(name):
        raise Refused(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if an_object(block.get("input")) is None:
        raise Refused(f"{where}.input: Input should be a valid dictionary")


def _check_tool_result(block: Block, where: str, accepts: Collection[str] | None) -> None:
    ident = block.get("tool_use_id")
    if not isinstance(ident, str) or not _CALL_ID.fullmatch(ident):
        raise Refused(f"{where}.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("is_error", False), bool):
        raise Refused(f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    parts = a_list(content)
    if not isinstance(content, str) and parts is None:
        raise Refused(f"{where}.content: Input should be a valid string or list")
    if block.get("is_error") and not content:
        raise Refused(f"{where}: content cannot be empty if `is_error` is true")
    for at, part in enumerate(parts or []):
        kind = (an_object(part) or {}).get("type")
        if kind not in ("text", "image", "document"):
            raise Refused(
                f"{where}.content.{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            )
        if block.get("is_error") and kind != "text":
            raise Refused(f"{where}: all content must be type `text` if `is_error` is true")
        _check_block(part, f"{where}.content.{at}", "user", accepts)


def _parts(block: Block) -> list[tuple[int, Block]]:
    return list(enumerate(a_list(block.get("content")) or [])) if block["type"] == "tool_result" else []


def _images(turns: Turns) -> list[tuple[str, Picture]]:
    """Every image whose bytes are in the request, also those inside results."""
    blocks = [(place, block) for _, _, place, block in _all(turns)]
    for place, block in list(blocks):
        blocks += [(f"{place}.tool_result.content.{n}", part) for n, part in _parts(block)]
    found = [(place, check_source(block, f"{place}.image")) for place, block in blocks if block["type"] == "image"]
    return [(place, picture) for place, picture in found if picture is not None]


# --- calls and their results ---


def _check_pairs(turns: Turns) -> None:
    seen: set[str] = set()
    waiting: dict[str, str] = {}
    for index, role, blocks in turns:
        if role == "assistant":
            waiting = _calls_of(blocks, seen)
        else:
            _check_results(index, blocks, waiting)
            waiting = {}
    if waiting:
        raise _unanswered(waiting)


def _calls_of(blocks: list[tuple[str, Block]], seen: set[str]) -> dict[str, str]:
    calls: dict[str, str] = {}
    for place, block in blocks:
        if block["type"] == "tool_use":
            if block["id"] in seen:
                raise Refused("messages: `tool_use` ids must be unique")
            seen.add(block["id"])
            calls[block["id"]] = place
    return calls


def _check_results(index: int, blocks: list[tuple[str, Block]], waiting: dict[str, str]) -> None:
    answered: set[str] = set()
    leading = True
    for place, block in blocks:
        if block["type"] != "tool_result":
            leading = False
            continue
        ident = block["tool_use_id"]
        if ident not in waiting:
            raise Refused(
                f"{place}: unexpected `tool_use_id` found in `tool_result` blocks: {ident}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )
        if ident in answered:
            raise Refused(
                f"{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with "
                f"id: {ident}"
            )
        if leading:
            answered.add(ident)
    missing = {ident: place for ident, place in waiting.items() if ident not in answered}
    if missing:
        raise _unanswered(missing)


def _unanswered(calls: dict[str, str]) -> Refused:
    place = next(iter(calls.values())).rsplit(".content.", 1)[0]
    return Refused(
        f"{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(calls)}. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message."
    )


# --- thinking ---


def _check_thoughts(body: dict[str, Any], turns: Turns, memory: Memory) -> None:
    model = body["model"]
    for _, _, place, block in _all(turns):
        if block["type"] == "thinking":
            text, proof = block.get("thinking"), block.get("signature")
            if not isinstance(text, str) or not isinstance(proof, str):
                raise Refused(f"{place}.thinking.signature: Field required")
            if proof != signature(model, text):
                raise Refused(f"{place}: Invalid `signature` in `thinking` block")
        elif block["type"] == "redacted_thinking":
            if not isinstance(block.get("data"), str) or not block["data"]:
                raise Refused(f"{place}.redacted_thinking.data: Field required")
            if not is_sealed(model, block["data"]):
                raise Refused(f"{place}: Invalid `data` in `redacted_thinking` block")
    for _, _, blocks in turns:
        _check_whole_thoughts(blocks, memory)
    thinking = an_object(body.get("thinking")) or {}
    if thinking.get("type") in ("enabled", "adaptive"):
        _check_last_thoughts(model, turns, memory)


def _check_whole_thoughts(blocks: list[tuple[str, Block]], memory: Memory) -> None:
    """Blocks of thinking come back all or none, in their order: one alone was torn out of its reply."""
    kinds = ("thinking", "redacted_thinking")
    thoughts = [
        (place, block.get("signature") or block.get("data")) for place, block in blocks if block["type"] in kinds
    ]
    for place, proof in thoughts:
        whole = memory.together.get(str(proof), [proof])
        if [other for _, other in thoughts if other in whole] != whole:
            raise Refused(
                f"{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
                "modified. These blocks must remain as they were in the original response."
            )


def _check_last_thoughts(model: str, turns: Turns, memory: Memory) -> None:
    """The calls of the running tool loop must still stand behind the thinking that led to them."""
    for _, role, blocks in reversed(turns):
        if role == "user":
            if not any(block["type"] == "tool_result" for _, block in blocks):
                return
            continue
        place, first = blocks[0] if blocks else ("messages", {"type": "nothing"})
        calls = [block["id"] for _, block in blocks if block["type"] == "tool_use"]
        led = any(memory.thought.get(ident) == model for ident in calls)
        if led and first["type"] not in ("thinking", "redacted_thinking"):
            raise Refused(
                f"{place}.type: Expected `thinking` or `redacted_thinking`, but found `{first['type']}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking block "
                "(preceding the lastmost set of `tool_use` and `tool_result` blocks)."
            )
