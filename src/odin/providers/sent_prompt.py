"""What a request sends, as hashes of the parts that the caches of prompts compare. It is read from the bytes that are
sent, so whatever an encoder leaves out or edits is seen."""

import re
from zlib import crc32

import msgspec

from odin.core.provider import SentPrompt

_SETTINGS = ("thinking", "output_config", "reasoning", "reasoning_effort", "text", "response_format", "tool_choice")
_CACHE_MARK = re.compile(rb',?"cache_control":\{[^{}]*\}')
_SYSTEM_ROLES = (b'{"role":"system"', b'{"role":"developer"')


def hash_prompt(body: bytes) -> SentPrompt:
    parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    items = parts.get("messages") or parts.get("input") or parts.get("contents") or b"[]"
    messages = msgspec.json.decode(items, type=list[msgspec.Raw])
    system = parts.get("system") or parts.get("instructions") or parts.get("systemInstruction") or b""
    if messages and bytes(messages[0]).startswith(_SYSTEM_ROLES):
        system = messages.pop(0)
    ends: list[int] = []
    for message in messages:
        ends.append(_hash(message, ends[-1] if ends else 0))
    settings = b",".join(b"%b:%b" % (name.encode(), parts[name]) for name in _SETTINGS if name in parts)
    return SentPrompt(_hash(parts.get("tools", b"")), _hash(system), _hash(settings), tuple(ends))


def _hash(part: bytes | msgspec.Raw, before: int = 0) -> int:
    """Return the hash of a part, without the marks of the cache: they move from request to request."""
    data = bytes(part)
    return crc32(_CACHE_MARK.sub(b"", data) if b'"cache_control"' in data else data, before)
