"""The Anthropic Messages wire format: events, whole messages and errors."""

from typing import Any

import msgspec

from odin.testing.script import StreamError
from odin.testing.spoken import RenderedReply, compute_signature, seal_reasoning

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


def encode_frames(said: RenderedReply) -> list[bytes]:
    """The reply as server-sent events, in the order of the real API."""
    start: dict[str, Any] = {
        **_build_message(said),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _build_usage(said, 1),
    }
    out = [encode_event("message_start", {"message": start})]
    for index, (block, text) in enumerate(_build_blocks(said)):
        out.append(encode_event("content_block_start", {"index": index, "content_block": _open_block(block)}))
        if index == 0:
            out.append(PING)
        out += [
            encode_event("content_block_delta", {"index": index, "delta": delta})
            for delta in _build_deltas(said, block, text)
        ]
        out.append(encode_event("content_block_stop", {"index": index}))
    if len(out) == 1:
        out.append(PING)
    delta = {"stop_reason": said.stop, "stop_sequence": None}
    out.append(encode_event("message_delta", {"delta": delta, "usage": _build_usage(said, _count_output(said))}))
    out.append(encode_event("message_stop", {}))
    return out


def build_reply(said: RenderedReply) -> dict[str, Any]:
    """The reply when no stream was asked for."""
    return {
        **_build_message(said),
        "content": [block for block, _ in _build_blocks(said)],
        "stop_reason": said.stop,
        "stop_sequence": None,
        "usage": _build_usage(said, _count_output(said)),
    }


def build_error_body(
    status: int, message: str, type: str | None, code: str | None, param: str | None
) -> dict[str, Any]:
    kind = type or _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error = {"type": kind, "message": message or kind.replace("_", " ").capitalize()}
    return {"type": "error", "error": error, "request_id": "req_scripted"}


def encode_error_frames(error: StreamError, sequence: int) -> list[bytes]:
    return [encode_event("error", {"error": {"type": error.type, "message": error.message}})]


def _build_message(said: RenderedReply) -> dict[str, Any]:
    return {"id": f"msg_{said.number:06d}", "type": "message", "role": "assistant", "model": said.model}


def _build_blocks(said: RenderedReply) -> list[tuple[dict[str, Any], str]]:
    """The content blocks, each with the text that its deltas carry."""
    blocks: list[tuple[dict[str, Any], str]] = []
    if said.thinking:
        proof = compute_signature(said.model, said.thinking)
        blocks.append(({"type": "thinking", "thinking": said.thinking, "signature": proof}, said.thinking))
    if said.redacted:
        blocks.append(({"type": "redacted_thinking", "data": seal_reasoning(said.model, said.redacted)}, ""))
    if said.text:
        blocks.append(({"type": "text", "text": said.text}, said.text))
    for call in said.calls:
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


def _build_deltas(said: RenderedReply, block: dict[str, Any], text: str) -> list[dict[str, Any]]:
    if block["type"] == "redacted_thinking":
        return []
    if block["type"] == "text":
        return [{"type": "text_delta", "text": part} for part in said.split_chunks(text)]
    if block["type"] == "thinking":
        parts = [{"type": "thinking_delta", "thinking": part} for part in said.split_chunks(text)]
        return [*parts, {"type": "signature_delta", "signature": block["signature"]}]
    fragments = ["", *said.split_chunks("" if text == "{}" else text)]
    return [{"type": "input_json_delta", "partial_json": fragment} for fragment in fragments]


def _count_output(said: RenderedReply) -> int:
    return said.usage.output + said.usage.reasoning


def _build_usage(said: RenderedReply, output: int) -> dict[str, Any]:
    return {
        "input_tokens": said.usage.input,
        "cache_creation_input_tokens": said.usage.cache_write,
        "cache_read_input_tokens": said.usage.cache_read,
        "output_tokens": output,
    }
