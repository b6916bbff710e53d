"""Messages of servers before the official package reads them: sizes, floods, broken JSON, lists with wrong entries.

The package rejects a list in which one entry breaks the protocol, and it drops what it cannot parse. Here one wrong
entry costs itself, and a message that cannot be read fails the request that it answers.
"""

import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

from msgspec import Struct

from odin.mcp.schema import WRITTEN

MAX_MESSAGE_BYTES = 16_000_000
MAX_MESSAGES = 1_000
FLOOD_S = 5.0
"""More than so many messages in so many seconds are dropped, and many more end the connection."""

_MAX_EXCESS = 20_000
_CHUNK = 1 << 16
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)(?:"(\s*:\s*(\d{1,15})?)?|$)|[{}\[\]]', re.DOTALL)
_LAST_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_VERSION = "2025-11-25"
_LISTS = {"tools": "tools/list", "prompts": "prompts/list", "resources": "resources/list"}


class OversizedLine(Struct, frozen=True):
    """A line that was too long to keep: its first and last bytes."""

    head: bytes
    tail: bytes
    size: int


async def read_lines(
    read: Callable[[int], Awaitable[bytes]], limit: int = MAX_MESSAGE_BYTES
) -> AsyncIterator[bytes | OversizedLine]:
    """Yield the lines of a stream. No more than `limit` bytes of one are kept."""
    parts: list[bytes] = []
    size = 0
    while chunk := await read(_CHUNK):
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            parts.append(line)
            size += len(line)
            yield b"".join(parts) if size <= limit else OversizedLine(parts[0], b"".join(parts[-2:])[-4096:], size)
            parts, size = [], 0
        if rest:
            parts.append(rest)
            size += len(rest)
            if size > limit and len(parts) > 3:
                parts = [parts[0], *parts[-2:]]
    if parts and size <= limit:
        yield b"".join(parts)


def find_request_id(head: bytes, tail: bytes = b"") -> int | None:
    """Return the id of the request that a message answers, which is cut or broken; None if it cannot be seen.

    Only the keys of the message itself count: what it contains may have an `id`, too.
    """
    depth = 0
    for token in _TOKEN.finditer(head[:_CHUNK]):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and token[2] is not None:
            if token[1] == b"method":
                return None
            if token[1] == b"id":
                return int(token[3]) if token[3] else None
    found = _LAST_ID.search(tail or head[-_CHUNK:])
    return int(found[1]) if found else None


def make_error(number: int | str, why: str) -> Any:
    """Return the message that fails the request with this id."""
    from mcp.shared.message import SessionMessage
    from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError

    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=INTERNAL_ERROR, message=why)))


def fail_request(response: Any, why: str) -> None:
    """Replace the body of a refused HTTP request by an error, which the package gives to the one who waits for it."""
    import httpx2

    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": why}}
    response.headers.update({"content-type": "application/json"})
    response.stream = httpx2.ByteStream(json.dumps(error).encode())


class RateLimiter:
    """Counts the messages of a server. `fault` says that it sent far too many."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_excess: int = _MAX_EXCESS) -> None:
        self.fault = ""
        self._max_messages = max_messages
        self._max_excess = max_excess
        self._window = (0.0, 0)
        self._excess = 0

    def allow(self, message: Any) -> bool:
        """False for a notification or request that is dropped. Responses are counted, but never dropped."""
        now = time.monotonic()
        since, count = self._window
        self._window = (now, 1) if now - since > FLOOD_S else (since, count + 1)
        if self._window[1] <= self._max_messages:
            return True
        self._excess += 1
        if self._excess > self._max_excess:
            self.fault = "it flooded Odin with messages"
        return not hasattr(message, "method")


def repair_lists(message: Any) -> None:
    """Repair the tools, prompts and resources in a response: a wrong field is left out, or a wrong entry."""
    result: Any = getattr(message, "result", None)
    for key in _LISTS if isinstance(result, dict) else ():
        fields = cast("dict[str, Any]", result)
        if isinstance(fields.get(key), list):
            fields[key] = list(_repair_items(key, fields[key]))


def _repair_items(key: str, items: list[Any]) -> Iterator[dict[str, Any]]:
    from mcp_types.methods import parse_server_result
    from pydantic import ValidationError

    for item in items:
        if not isinstance(item, dict):
            continue
        fields = cast("dict[str, Any]", item)
        fields.pop("outputSchema", None)  # the package would check results with it: a pattern can hang Odin
        for _ in range(2):
            try:
                parse_server_result(_LISTS[key], _VERSION, {key: [fields]})
            except ValidationError as error:
                wrong = {place["loc"][2] for place in error.errors() if len(place["loc"]) > 2}
            except (RecursionError, ValueError):
                break
            else:
                yield fields
                break
            if "inputSchema" in wrong:
                fields["inputSchema"] = {"type": "object", WRITTEN: fields.get("inputSchema")}
            fields = {name: value for name, value in fields.items() if name not in wrong - {"inputSchema"}}


class RepairedStream:
    """The stream of messages that a transport of the package reads, with the limits and repairs of this module.

    `on_end` is called when it ends, before the calls that wait for an answer learn of it.
    """

    def __init__(self, stream: Any, limiter: RateLimiter, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._limiter = limiter
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        return self._stream.last_context

    def __aiter__(self) -> "RepairedStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._receive()
        except BaseException:
            self._on_end()
            raise

    async def _receive(self) -> Any:
        while True:
            item = await self._stream.__anext__()
            message = getattr(item, "message", None)
            is_allowed = self._limiter.allow(message)
            if self._limiter.fault:
                raise StopAsyncIteration
            if is_allowed:
                repair_lists(message)
                return item

    async def __aenter__(self) -> "RepairedStream":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()
