"""Takes commands for a session from Redis: each entry of a stream is one op. The results go to another stream."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from redis.asyncio import Redis

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.core.op import Op
from odin.core.rights import Right, attribute, get_needed_right, has_right

MAX_COMMAND_BYTES = 1_000_000
MAX_RESULTS = 1000
_MAX_RUNNING = 100
_MAX_NAME_CHARS = 60
_BATCH = 16

Fields = dict[bytes, bytes]


class OpResult(Struct, frozen=True):
    """`id` is that of the sender, `entry` that of Redis. `nothing`: there was nothing to act on."""

    id: str
    entry: str
    status: str
    error: str = ""
    hint: str = ""


class OpReader:
    """Carries out commands as one client of the session, at most once each and none from before it was opened.

    `results` are to be written by the publisher, so that those of an outage are not lost; `notify` tells it.
    """

    def __init__(self, client: Client, right: Right, key: str, notify: Callable[[], object]) -> None:
        self.results: deque[OpResult] = deque(maxlen=MAX_RESULTS)
        self._client = client
        self._right: Right = right
        self._key = key
        self._notify = notify
        self._last: tuple[int, int] | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def find_start(self, redis: Redis) -> None:
        """Skip what is there when the session opens, and what a Redis restored from a backup has again."""
        newest: Any = await redis.xrevrange(self._key, count=1)
        top = _parse_id(newest[0][0]) if newest else (0, 0)
        self._last = top if self._last is None else min(self._last, top)

    async def listen(self, redis: Redis, block_s: float, answer_s: float) -> None:
        """Take commands until the connection fails."""
        while True:
            milliseconds, number = self._last or (0, 0)
            async with asyncio.timeout(block_s + answer_s):
                found: Any = await redis.xread(
                    {self._key: f"{milliseconds}-{number}"}, count=_BATCH, block=int(block_s * 1000)
                )
            for entry, fields in found[0][1] if found else ():
                self._last = _parse_id(entry)
                self._take(entry.decode(), fields)

    def take_results(self) -> list[OpResult]:
        taken = list(self.results)
        self.results.clear()
        return taken

    def close(self) -> None:
        for task in self._running:
            task.cancel()

    def _take(self, entry: str, fields: Fields | None) -> None:
        fields = fields or {}
        name = fields.get(b"id", b"").decode("utf-8", "replace")
        if len(self._running) >= _MAX_RUNNING:
            problem = f"{_MAX_RUNNING} commands are running."
            self._add(OpResult(name, entry, "error", problem, "Wait for their results."))
            return
        try:
            op = _read_op(fields, self._right)
        except UsageError as error:
            self._add(OpResult(name, entry, "error", str(error), error.hint))
            return
        task = asyncio.create_task(self._submit(op, name, entry))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _submit(self, op: Op, name: str, entry: str) -> None:
        try:
            result = OpResult(name, entry, "ok" if await self._client.submit(op) else "nothing")
        except OdinError as error:
            result = OpResult(name, entry, "error", str(error), error.hint)
        except Exception as error:  # a bug must reach the sender, not the session
            result = OpResult(name, entry, "error", f"Odin failed: {type(error).__name__}.")
        self._add(result)

    def _add(self, result: OpResult) -> None:
        self.results.append(result)
        self._notify()


def _parse_id(entry: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry.partition(b"-")
    return int(milliseconds), int(number)


def _read_op(fields: Fields, right: Right) -> Op:
    raw = fields.get(b"op")
    if raw is None:
        raise UsageError("The entry has no field op.", "Its value is the JSON of an op, with its name as type.")
    if len(raw) > MAX_COMMAND_BYTES:
        raise UsageError(f"The op has {len(raw):,} bytes; {MAX_COMMAND_BYTES:,} is the limit.")
    try:
        op = msgspec.json.decode(raw, type=Op)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"The op cannot be read: {error}.", "docs/events.md lists the ops and their fields."
        ) from error
    if not has_right(right, needed := get_needed_right(op)):
        raise UsageError(f"{type(op).__name__} needs redis.accept to be {needed}, and it is {right}.")
    who = "".join(filter(str.isprintable, fields.get(b"by", b"").decode("utf-8", "replace")))[:_MAX_NAME_CHARS]
    return attribute(op, right, f"Redis ({who})" if who else "Redis")
