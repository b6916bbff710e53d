"""The prompt caches of the vendors: which tokens of a request are read from a cache, and which are written to one.

Written from the vendors' pages, so that the usage of replies says what a session would have cost:

- Anthropic: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
- OpenAI: https://developers.openai.com/api/docs/guides/prompt-caching,
  https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching
- Google: https://ai.google.dev/gemini-api/docs/caching (implicit caching; what is the same at the start is read)

All work on prefixes: a request looks for the longest of its own prefixes that an earlier one has stored. They differ in
where a prefix may end, how long it lives, and what else must be the same. Tokens are estimated: four bytes each.
"""

import re
from binascii import crc32
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from odin.core.message import Usage
from odin.testing.render import count_tokens
from odin.testing.script import Api
from odin.testing.strict import as_list, as_object

_IMAGE_DATA = re.compile(rb"[A-Za-z0-9+/=]{6400,}")
_IMAGE_BYTES = 6400
"""Maximum size counted for an image: 1600 tokens."""


class Boundary(NamedTuple):
    """The end of a prefix: its tokens, the hash of all before it, and how long it lives in the cache."""

    tokens: int
    key: bytes
    life_s: float = 300.0


class MeteredPrompt(NamedTuple):
    """`lookups` are the prefixes that the request looks for, longest first; `writes` those that it stores.

    `charged`: what is stored is reported as written, and costs more than other input.
    """

    tokens: int
    lookups: Sequence[Boundary] = ()
    writes: Sequence[Boundary] = ()
    charged: bool = True


class PromptCache:
    """What the requests to one server have stored. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stored: dict[bytes, tuple[float, float]] = {}
        """The end and the length of a prefix's life, by its hash."""

    def measure(self, prompt: MeteredPrompt) -> Usage:
        """Store the prefixes of this prompt and return its usage, with output counts of 0.

        A life is measured from the start of the request that writes or reads the entry, and each use renews it.
        """
        now = self._clock()
        self._stored = {key: life for key, life in self._stored.items() if life[0] > now}
        found = next((place for place in prompt.lookups if place.key in self._stored), None)
        read = found.tokens if found else 0
        if found is not None:
            length = self._stored[found.key][1]
            self._stored[found.key] = (now + length, length)
        for place in prompt.writes:
            self._stored[place.key] = (now + place.life_s, place.life_s)
        written = max((place.tokens for place in prompt.writes), default=0) - read if prompt.charged else 0
        written = max(0, written)
        return Usage(input=prompt.tokens - read - written, cache_read=read, cache_write=written)


def extract_prompt(api: Api, body: dict[str, Any]) -> MeteredPrompt:
    """Return the size of a request's prompt, and where its prefixes end."""
    if api == "anthropic":
        return _extract_anthropic(body)
    parts = [_encode(value) for value in (body.get("tools"), body.get("instructions"), body.get("systemInstruction"))]
    head = [part for part in parts if part]
    items = body.get("input") or body.get("contents") or body.get("messages")
    talk = as_list(items) or [items]
    return _extract_openai(body, head, talk) if api != "gemini" else _extract_common(b"gemini", head, talk, least=0)


def _encode(value: Any) -> bytes:
    """Return a part of a prompt as bytes. An image has as many as it counts, different for different images."""
    raw = msgspec.json.encode(value) if value else b""
    has_image = b'"image' in raw or b'_image"' in raw or b'"inlineData"' in raw
    return _IMAGE_DATA.sub(_shorten_image, raw) if has_image else raw


def _shorten_image(found: re.Match[bytes]) -> bytes:
    return (b"%08x" % crc32(found[0])) * (_IMAGE_BYTES // 8)


class _Prefix:
    """A prompt so far. What is mixed in counts no tokens, but must be the same for a prefix to be found."""

    def __init__(self, *settings: Any) -> None:
        self._hash = blake2b(msgspec.json.encode(settings), digest_size=16)
        self._size = 0

    def mix(self, *settings: Any) -> None:
        self._hash.update(msgspec.json.encode(settings))

    def add(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)

    @property
    def tokens(self) -> int:
        return count_tokens(self._size)

    def end(self, life_s: float) -> Boundary:
        return Boundary(self.tokens, self._hash.digest(), life_s)


# --- Anthropic ---

_MINIMUMS = (
    (r"opus-4-[56]|haiku-4-5|mythos-preview", 4096),
    (r"opus-4-7|haiku-3|3-5-haiku", 2048),
    (r"opus-4-8|opus-4|sonnet-5$|sonnet-4", 1024),
    ("", 512),
)
"""The least tokens that are cached (…/prompt-caching#cache-limitations): 512 of models since Opus 5, but Sonnet 5."""

_LOOKBACK = 20
"""The positions that are checked for each breakpoint, itself included. A run of tool_use blocks is one, and so is one
of tool_result blocks (…/prompt-caching#how-automatic-prefix-checking-works)."""

_RUNS = ("tool_use", "tool_result")
_STRIPPING = re.compile(r"claude-(3|opus-4(-1|-2|-\d{8}|$)|sonnet-4(-5|-\d{8}|$)|haiku-[34])")
"""Models that drop the thinking of earlier turns: Opus before 4.5, Sonnet before 4.6, Haiku before 5.5
(…/prompt-caching#caching-with-thinking-blocks)."""
_DEFAULT_EFFORTS = {"claude-opus-5-5": "medium", "claude-haiku-5-5": "medium"}


def _extract_anthropic(body: dict[str, Any]) -> MeteredPrompt:
    """Follow `tools`, `system` and `messages` in this order. A change in one of them changes all prefixes behind it."""
    model = str(body.get("model", ""))
    prefix = _Prefix("anthropic", model)
    ends: list[Boundary] = []
    kinds: list[str] = []
    marks: dict[int, float] = {}

    def add(kind: str, block: dict[str, Any], *more: Any) -> None:
        if (mark := as_object(block.get("cache_control"))) is not None:
            block = {key: value for key, value in block.items() if key != "cache_control"}
            marks[len(ends)] = _get_life(mark)
        for part in (block, *more):
            prefix.add(_encode(part))
        kinds.append(kind)
        ends.append(prefix.end(0.0))

    tools = _list_blocks(body.get("tools"))
    deferred = {tool.get("name"): tool for tool in tools if tool.get("defer_loading")}
    for tool in tools:
        if not tool.get("defer_loading"):  # such a tool is part of the prefix where it is added
            add("tool", tool)
    output = as_object(body.get("output_config")) or {}
    prefix.mix(body.get("speed"), output.get("format"))
    for block in _list_blocks(body.get("system")):
        add("system", block)
    messages = _list_messages(body, model)
    prefix.mix(
        body.get("tool_choice"),
        *_list_thinking_settings(body),
        output.get("effort") or _DEFAULT_EFFORTS.get(model, "high"),
        any(_has_image(block) for _, blocks in messages for block in blocks),
    )
    for role, blocks in messages:
        prefix.mix(role)
        for block in blocks:
            added = deferred.get((as_object(block.get("tool")) or {}).get("name"))
            add(str(block.get("type")), block, *([added] if added and block.get("type") == "tool_addition" else ()))
    if (top := as_object(body.get("cache_control"))) is not None:
        # The automatic breakpoint: the last block that may have one.
        places = [at for at, kind in enumerate(kinds) if "thinking" not in kind]
        marks = {**dict.fromkeys(places[-1:], _get_life(top)), **marks}
    least = next(size for pattern, size in _MINIMUMS if re.search(pattern, model))
    marks = {at: life for at, life in marks.items() if ends[at].tokens >= least}
    lookups = sorted({at for mark in marks for at in _look_back(kinds, mark)}, reverse=True)
    writes = [ends[at]._replace(life_s=life) for at, life in marks.items()]
    return MeteredPrompt(prefix.tokens, [ends[at] for at in lookups], writes)


def _get_life(mark: dict[str, Any]) -> float:
    return 3600.0 if mark.get("ttl") == "1h" else 300.0


def _look_back(kinds: Sequence[str], mark: int) -> Iterator[int]:
    """Yield the blocks at which the prefix of a breakpoint may have been stored before."""
    left = _LOOKBACK
    for at in range(mark, -1, -1):
        is_same_run = at < mark and kinds[at] in _RUNS and kinds[at] == kinds[at + 1]
        left -= not is_same_run
        if left < 0:
            return
        yield at


def _list_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [as_object(item) or {"type": "text", "text": item} for item in as_list(content) or []]


def _list_messages(body: dict[str, Any], model: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return roles and blocks, without the thinking that the model does not keep."""
    messages = [as_object(item) or {} for item in as_list(body.get("messages")) or []]
    found = [(str(message.get("role")), _list_blocks(message.get("content"))) for message in messages]
    if not _STRIPPING.match(model):
        return found
    start = 0
    for at, (role, blocks) in enumerate(found):
        if role == "user" and not any(block.get("type") == "tool_result" for block in blocks):
            start = at
    return [
        (role, [block for block in blocks if at > start or "thinking" not in str(block.get("type"))])
        for at, (role, blocks) in enumerate(found)
    ]


def _list_thinking_settings(body: dict[str, Any]) -> tuple[Any, ...]:
    """Return what of the thinking parameters is part of the prompt: the mode and the budget."""
    thinking = as_object(body.get("thinking")) or {}
    usual = "adaptive" if re.search(r"claude-[a-z]+-[5-9]", str(body.get("model"))) else "disabled"
    return thinking.get("type", usual), thinking.get("budget_tokens")


def _has_image(block: dict[str, Any]) -> bool:
    return "image" in (block.get("type"), *(part.get("type") for part in _list_blocks(block.get("content"))))


# --- OpenAI ---

_LEAST = 1024
_STEP = 128
"""Models before GPT-5.6 report what they read as a multiple of this (…/prompt-caching#summary-of-model-differences)."""
_INTERVALS = {"gpt-5.5": 2048}
_EARLIER_ENDINGS = 20
_HALF_HOUR = 1800.0


def _extract_openai(body: dict[str, Any], head: list[bytes], talk: list[Any]) -> MeteredPrompt:
    model, key = str(body.get("model", "")), body.get("prompt_cache_key")
    effort = (as_object(body.get("reasoning")) or {}).get("effort", body.get("reasoning_effort"))
    form = ("text", "response_format", "verbosity", "parallel_tool_calls")
    settings = ("openai", model, key, effort, *(body.get(name) for name in form))
    version = re.search(r"gpt-(\d+)(?:\.(\d+))?", model)
    if version is None or (int(version[1]), int(version[2] or 0)) < (5, 6):
        # These models do not see the reasoning of earlier turns, whether it is sent or not.
        # https://developers.openai.com/api/docs/guides/reasoning#preserve-reasoning-across-calls
        kinds = [_get_kind(item) for item in talk]
        prompt = max((at for at, kind in enumerate(kinds) if kind == "user"), default=0)
        talk = [item for at, item in enumerate(talk) if at > prompt or kinds[at] != "reasoning"]
        return _extract_common(msgspec.json.encode(settings), head, talk, _LEAST, _INTERVALS.get(model, _STEP))
    return _extract_by_messages(_Prefix(*settings), head, talk)


def _extract_by_messages(prefix: _Prefix, head: list[bytes], talk: list[Any]) -> MeteredPrompt:
    """GPT-5.6 and later: a prefix ends with a message of the user, with the last result of a group, or with the
    instructions at the start. The last of these is written, for at least half an hour."""
    for part in head:
        prefix.add(part)
    ends: list[Boundary] = []
    kinds = [_get_kind(item) for item in talk]
    has_begun = False
    for at, item in enumerate(talk):
        following = kinds[at + 1] if at + 1 < len(kinds) else ""
        if kinds[at] != "developer" and not has_begun:
            has_begun = True
            if head or at:
                ends.append(prefix.end(_HALF_HOUR))
        prefix.add(_encode(item))
        if kinds[at] == "user" or (kinds[at] == "result" and following != "result"):
            ends.append(prefix.end(_HALF_HOUR))
    eligible = [end for end in ends if end.tokens >= _LEAST]
    if not eligible:
        return MeteredPrompt(prefix.tokens)
    *earlier, last = eligible
    lookups = [last, *reversed(earlier[-_EARLIER_ENDINGS:])]
    if earlier and earlier[0] == ends[0]:
        lookups.append(ends[0])
    return MeteredPrompt(prefix.tokens, lookups, [last])


def _get_kind(item: Any) -> str:
    found = as_object(item) or {"role": "user"}
    if found.get("role") in ("developer", "system"):
        return "developer"
    if found.get("role") == "tool" or str(found.get("type")).endswith("_output"):
        return "result"
    return str(found.get("role") or found.get("type", ""))


def _extract_common(
    settings: bytes, head: list[bytes], talk: list[Any], least: int, interval: int = _STEP
) -> MeteredPrompt:
    """Models whose prefixes end at regular intervals, and which charge nothing for writing.

    The start of a prompt and its key decide which machine answers; each has a cache of its own.
    """
    data = b"\n".join([*head, *map(_encode, talk)])
    found = blake2b(settings, digest_size=16)
    ends: list[Boundary] = []
    for start in range(0, len(data) - 4 * interval + 1, 4 * interval):
        found.update(data[start : start + 4 * interval])
        tokens = start // 4 + interval
        if tokens >= least:
            ends.append(Boundary(tokens, found.digest()))
    return MeteredPrompt(count_tokens(len(data)), ends[::-1], ends, charged=False)
