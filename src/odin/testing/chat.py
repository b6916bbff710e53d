"""The OpenAI Chat Completions wire format: chunks, whole completions and errors."""

from typing import Any

import msgspec

from odin.testing.script import StreamError
from odin.testing.spoken import RenderedReply

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


def encode_frames(said: RenderedReply, include_usage: bool) -> list[bytes]:
    """The reply as chunks: the role, the deltas, the reason, the usage where it was asked for, and the end mark."""
    base = _build_base(said, "chat.completion.chunk")
    usage: dict[str, Any] = {"usage": None} if include_usage else {}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return encode_data_frame({**base, "choices": [choice], **usage})

    out = [chunk({"role": "assistant", "content": None if said.calls and not said.text else "", "refusal": None})]
    out += [chunk({"reasoning_content": part}) for part in said.split_chunks(said.thinking)]
    out += [chunk({"content": part}) for part in said.split_chunks(said.text)]
    for index, call in enumerate(said.calls):
        opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        out.append(chunk({"tool_calls": [opening]}))
        for part in said.split_chunks(call.json):
            out.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    out.append(chunk({}, _FINISH_REASONS.get(said.stop, said.stop)))
    if include_usage:
        out.append(encode_data_frame({**base, "choices": [], "usage": _build_usage(said)}))
    out.append(DONE)
    return out


def build_reply(said: RenderedReply) -> dict[str, Any]:
    """The reply when no stream was asked for."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.text or (None if said.calls else ""),
        "refusal": None,
    }
    if said.thinking:
        message["reasoning_content"] = said.thinking
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.json}}
            for call in said.calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _FINISH_REASONS.get(said.stop, said.stop),
    }
    return {**_build_base(said, "chat.completion"), "choices": [choice], "usage": _build_usage(said)}


def build_error_body(
    status: int, message: str, type: str | None, code: str | None, param: str | None
) -> dict[str, Any]:
    kind = type or _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    text = message or f"The scripted server answers {status}."
    return {"error": {"message": text, "type": kind, "param": param, "code": code or _ERROR_CODES.get(status)}}


def encode_error_frames(error: StreamError, sequence: int) -> list[bytes]:
    body = {"message": error.message, "type": error.type, "param": None, "code": error.code}
    return [encode_data_frame({"error": body})]


def _build_base(said: RenderedReply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{said.number:06d}",
        "object": kind,
        "created": said.created,
        "model": said.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _build_usage(said: RenderedReply) -> dict[str, Any]:
    usage = said.usage
    prompt, output = usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }
