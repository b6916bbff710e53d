"""Token counts from sizes, and an honest model of the prompt cache: what counts is the bytes that came before."""

import re
from binascii import crc32
from collections import deque
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.core.message import Usage
from odin.testing.seen import Api

_CACHE_MARK = re.compile(rb',?"cache_control":(?:\{[^{}]*\}|null)')
_MAX_PROMPTS = 16
_IMAGE_DATA = re.compile(rb"[A-Za-z0-9+/=]{6400,}")
_IMAGE_BYTES = 6400
"""What an image counts at most, whatever its bytes: 1600 tokens."""


def count_tokens(size: int) -> int:
    """A rough rule that holds for code and English: four bytes are one token."""
    return (size + 3) // 4


class MeteredPrompt(Struct, frozen=True):
    """What a model reads, in the order in which caches compare it. `marks` are the cache breakpoints."""

    data: bytes
    marks: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return count_tokens(len(self.data))


def prompt_of(api: Api, body: dict[str, Any]) -> MeteredPrompt:
    """Tools, system and messages as bytes, without the cache marks, which move from request to request."""
    system = body.get("system") if api == "anthropic" else body.get("instructions")
    conversation = body.get("input") if api == "responses" else body.get("messages")
    items = cast("list[Any]", conversation) if isinstance(conversation, list) else [conversation]
    raw = b"\n".join(msgspec.json.encode(item) for item in (body.get("tools"), system, *items) if item)
    if b'"image' in raw or b'_image"' in raw:
        raw = _IMAGE_DATA.sub(_shorten_image, raw)
    if b'"cache_control"' not in raw:
        return MeteredPrompt(raw, ())
    kept: list[bytes] = []
    marks: list[int] = []
    at = size = 0
    for found in _CACHE_MARK.finditer(raw):
        kept.append(raw[at : found.start()])
        size += found.start() - at
        marks.append(size)
        at = found.end()
    kept.append(raw[at:])
    return MeteredPrompt(b"".join(kept), tuple(marks))


def _shorten_image(found: re.Match[bytes]) -> bytes:
    """As many bytes as an image counts, different for different images."""
    return (b"%08x" % crc32(found[0])) * (_IMAGE_BYTES // 8)


def measure_common_prefix(a: bytes, b: bytes) -> int:
    """How many leading bytes are the same, by halving: comparing slices is far faster than comparing bytes."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class CacheMeter:
    """Remembers the last prompts of each model and says how much of a new one was read from the cache."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Api, str], deque[MeteredPrompt]] = {}

    def measure(self, api: Api, model: str, prompt: MeteredPrompt) -> Usage:
        """The prompt's share of the usage, the output counts being 0."""
        earlier = self._seen.setdefault((api, model), deque(maxlen=_MAX_PROMPTS))
        if api == "anthropic":
            read, written = _measure_by_marks(prompt, earlier)
        else:
            read, written = _measure_automatic(prompt, earlier), 0
        earlier.append(prompt)
        return Usage(input=max(0, prompt.tokens - read - written), cache_read=read, cache_write=written)


def _measure_automatic(prompt: MeteredPrompt, earlier: deque[MeteredPrompt]) -> int:
    shared = max((measure_common_prefix(prompt.data, old.data) for old in earlier), default=0)
    return shared // 4


def _measure_by_marks(prompt: MeteredPrompt, earlier: deque[MeteredPrompt]) -> tuple[int, int]:
    """Reads need a mark now and the same bytes up to a mark before; what lies between is written."""
    if not prompt.marks:
        return 0, 0
    limit = prompt.marks[-1]
    read = 0
    for old in earlier:
        for mark in old.marks:
            if read < mark <= limit and prompt.data.startswith(old.data[:mark]):
                read = mark
    return read // 4, limit // 4 - read // 4
