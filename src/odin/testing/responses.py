"""The OpenAI Responses wire format: typed events, whole responses and errors."""

from collections.abc import Iterator
from typing import Any

import msgspec

from odin.testing.chat import build_error_body
from odin.testing.script import StreamError
from odin.testing.spoken import RenderedCall, RenderedReply, seal_reasoning

__all__ = ["GARBLED", "PING", "build_error_body", "build_reply", "encode_error_frames", "encode_frames"]

PING = b": keepalive\n\n"
GARBLED = b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "del\n\n'

_INCOMPLETE = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}

EventItems = Iterator[tuple[str, dict[str, Any]]]


def encode_event(name: str, data: dict[str, Any], sequence: int) -> bytes:
    body = msgspec.json.encode({"type": name, "sequence_number": sequence, **data})
    return b"event: %s\ndata: %s\n\n" % (name.encode(), body)


def encode_frames(said: RenderedReply, body: dict[str, Any]) -> list[bytes]:
    """The reply as server-sent events, numbered, in the order of the real API."""
    return [encode_event(name, data, number) for number, (name, data) in enumerate(_list_events(said, body))]


def _list_events(said: RenderedReply, body: dict[str, Any]) -> EventItems:
    begun: dict[str, Any] = {**_build_response(said, body), "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    index = 0
    if said.thinking:
        yield from _list_reasoning_events(said, body, index)
        index += 1
    if said.text:
        yield from _list_message_events(said, index)
        index += 1
    for number, call in enumerate(said.calls):
        yield from _list_call_events(said, call, number, index)
        index += 1
    done = build_reply(said, body)
    yield f"response.{done['status']}", {"response": done}


def _list_reasoning_events(said: RenderedReply, body: dict[str, Any], index: int) -> EventItems:
    item = _build_reasoning_item(said, body)
    at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    part = {"type": "summary_text", "text": said.thinking}
    yield "response.output_item.added", {"output_index": index, "item": {**item, "summary": []}}
    yield "response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
    for piece in said.split_chunks(said.thinking):
        yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
    yield "response.reasoning_summary_text.done", {**at, "text": said.thinking}
    yield "response.reasoning_summary_part.done", {**at, "part": part}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _list_message_events(said: RenderedReply, index: int) -> EventItems:
    item = _build_message_item(said)
    part: dict[str, Any] = item["content"][0]
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    kind, key = ("refusal", "refusal") if said.stop == "refusal" else ("output_text", "text")
    yield (
        "response.output_item.added",
        {
            "output_index": index,
            "item": {**item, "status": "in_progress", "content": []},
        },
    )
    yield "response.content_part.added", {**at, "part": {**part, key: ""}}
    for piece in said.split_chunks(said.text):
        yield f"response.{kind}.delta", {**at, "delta": piece}
    yield f"response.{kind}.done", {**at, key: said.text}
    yield "response.content_part.done", {**at, "part": part}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _list_call_events(said: RenderedReply, call: RenderedCall, number: int, index: int) -> EventItems:
    item = _build_call_item(said, call, number)
    at = {"item_id": item["id"], "output_index": index}
    yield (
        "response.output_item.added",
        {
            "output_index": index,
            "item": {**item, "status": "in_progress", "arguments": ""},
        },
    )
    for piece in said.split_chunks(call.json):
        yield "response.function_call_arguments.delta", {**at, "delta": piece}
    yield "response.function_call_arguments.done", {**at, "name": call.name, "arguments": call.json}
    yield "response.output_item.done", {"output_index": index, "item": item}


def build_reply(said: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    """The reply when no stream was asked for, and the last event of one."""
    output: list[dict[str, Any]] = []
    if said.thinking:
        output.append(_build_reasoning_item(said, body))
    if said.text:
        output.append(_build_message_item(said))
    output += [_build_call_item(said, call, number) for number, call in enumerate(said.calls)]
    reason = _INCOMPLETE.get(said.stop)
    return {
        **_build_response(said, body),
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "usage": _build_usage(said),
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


def _build_response(said: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{said.number:06d}",
        "object": "response",
        "created_at": said.created,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": said.model,
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


def _build_reasoning_item(said: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": f"rs_{said.number:06d}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": said.thinking}],
    }
    if "reasoning.encrypted_content" in (body.get("include") or []):
        item["encrypted_content"] = seal_reasoning(said.model, said.thinking)
    return item


def _build_message_item(said: RenderedReply) -> dict[str, Any]:
    if said.stop == "refusal":
        part: dict[str, Any] = {"type": "refusal", "refusal": said.text}
    else:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": said.text}
    status = "incomplete" if said.stop in _INCOMPLETE else "completed"
    ident = f"msg_{said.number:06d}"
    return {"id": ident, "type": "message", "status": status, "content": [part], "role": "assistant"}


def _build_call_item(said: RenderedReply, call: RenderedCall, number: int) -> dict[str, Any]:
    return {
        "id": f"fc_{said.number:06d}_{number}",
        "type": "function_call",
        "status": "incomplete" if said.stop in _INCOMPLETE else "completed",
        "arguments": call.json,
        "call_id": call.id,
        "name": call.name,
    }


def _build_usage(said: RenderedReply) -> dict[str, Any]:
    usage = said.usage
    prompt, output = usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": prompt + output,
    }
