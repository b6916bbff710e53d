"""What servers do otherwise than the OpenAI APIs that they imitate, each with the place where it was seen."""

from collections.abc import Collection
from typing import Any

import msgspec

from odin.testing.script import Api, Oddity
from odin.testing.strict import RequestRefused, as_list, as_object, make_refusal


def check_request(api: Api, body: dict[str, Any], odd: Collection[Oddity]) -> None:
    """Refuse what only some servers refuse, in their words."""
    if "no_responses" in odd and api == "responses":
        # https://github.com/DayuanJiang/next-ai-draw-io/pull/382
        sentence = "Invalid URL (POST /v1/responses)"
        raise RequestRefused(sentence, status=404, type="invalid_request_error", code="unknown_url")
    if "no_cache_key" in odd and "prompt_cache_key" in body:
        # https://github.com/anomalyco/opencode/issues/45113
        raise make_refusal("Validation: Unsupported parameter(s): `prompt_cache_key`")
    if api != "chat":
        return
    for item in as_list(body.get("messages")) or []:
        message = as_object(item) or {}
        if message.get("role") != "assistant":
            continue
        if "needs_content" in odd and message.get("content") is None:
            # https://github.com/SAIL-Research-Lab/cheetahclaws/pull/72
            raise make_refusal("invalid message content type: <nil>")
        if "needs_null_content" in odd and message.get("content") == "":
            # https://github.com/vercel/ai/pull/13538
            raise make_refusal("ValidationException: messages: text content blocks must be non-empty")


def alter_frames(frames: list[bytes], odd: Collection[Oddity]) -> list[bytes]:
    """Return the events of a stream as an odd server sends them."""
    altered = [frame for frame in (_alter_chunk(frame, odd) for frame in frames) if frame] if odd else frames
    if "comments" in odd:  # https://openrouter.ai/docs/api/reference/streaming
        altered = [part for frame in altered for part in (b": OPENROUTER PROCESSING\n\n", frame)]
    if "cr_lines" in odd:  # https://html.spec.whatwg.org/multipage/server-sent-events.html
        altered = [frame.replace(b"\n", b"\r") for frame in altered]
    return altered


def _alter_chunk(frame: bytes, odd: Collection[Oddity]) -> bytes:
    """Return a chunk of Chat Completions without what the server leaves out; other events stay as they are."""
    if b'"chat.completion.chunk"' not in frame:
        return frame
    chunk: dict[str, Any] = msgspec.json.decode(frame.removeprefix(b"data: "))
    choices = as_list(chunk.get("choices")) or []
    if "no_usage" in odd:  # https://github.com/earendil-works/pi/issues/2017
        if not choices:
            return b""
        chunk.pop("usage", None)
    for choice in choices:
        if "no_finish_reason" in odd:  # https://github.com/MLT-OSS/open-assistant-api/pull/28
            choice["finish_reason"] = None
        for call in as_list(choice.get("delta", {}).get("tool_calls")) or []:
            if "null_call_index" in odd:  # https://github.com/chatanywhere/GPT_API_free/issues/254
                call["index"] = None
            if "no_call_index" in odd:  # https://github.com/ollama/ollama/issues/7881
                del call["index"]
    return b"data: %s\n\n" % msgspec.json.encode(chunk)
