"""Publishes a session to Redis. The session never waits for it, except a moment when it is closed.

The log is the truth, Redis a copy of its end. A durable event has its number as the id of its entry, so that what is
sent twice is there once. While Redis cannot be used, nothing is collected: afterwards the publisher asks Redis for the
last event that it has, and reads the following ones from the log.

    PREFIX:SESSION            stream: one entry per durable event
    PREFIX:SESSION:live       channel: transient events, such as chunks of text
    PREFIX:SESSION:snapshot   string: the newest state; the channel of this name says when there is a new one
    PREFIX:SESSION:ops        stream: commands for the session, if it takes any
    PREFIX:SESSION:results    stream: their results
    PREFIX:sessions           sorted set: the open sessions, by the time at which they are given up for dead
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol

from odin.core.call_events import ActivityChanged
from odin.core.client import Client, close_events
from odin.core.errors import OdinError
from odin.core.event import Envelope
from odin.core.policy import SessionRedactor
from odin.core.rights import Right
from odin.core.timing import Timing
from odin.redis.entry import EntryEncoder, StreamEntry
from odin.redis.settings import RedisSettings

if TYPE_CHECKING:
    from odin.redis.commands import OpReader

MAX_WAITING = 1000
"""Events that wait to be sent. If more arrive, transient ones are dropped; durable ones are read from the log later."""

_MAX_BATCH_BYTES = 250_000
_FIRST_ID = "0-0"
_ABSENT = "Nobody can be asked through Redis, because it cannot be reached."

Warn = Callable[[str, Literal["info", "warn"]], object]


class GuestClient(Client, Protocol):
    async def detach(self) -> None:
        """Leave the session, which goes on."""
        ...


class StreamGone(Exception):
    """The stream was deleted or evicted; it must be written again."""


class Publisher:
    """Publishes one session, as a client of it, from the moment it is made. `warn` shows a sentence to the user."""

    def __init__(
        self,
        client: GuestClient,
        session: str,
        settings: RedisSettings,
        redactor: SessionRedactor,
        warn: Warn,
        timing: Timing,
    ) -> None:
        self.dropped = 0
        """How many transient events were dropped because Redis was slow."""
        self._client = client
        self._session = session
        self._settings = settings
        self._warn = warn
        self._timing = timing
        self._key = f"{settings.prefix}:{session}"
        self._encoder = EntryEncoder(redactor)
        self._commands: OpReader | None = None
        self._queue: deque[Envelope] = deque()
        self._has_room = asyncio.Event()
        self._wake = asyncio.Event()
        self._sent = -1
        """The last durable event that is in Redis, or too old for it."""
        self._missed = -1
        """The last event of the log when the connection was made."""
        self._has_stream = False
        self._is_behind = False
        self._is_dirty = False
        self._closing = asyncio.Event()
        self._failures = 0
        self._failing_since = 0.0
        self._is_reported = False
        self._beat_at = self._snapshot_at = 0.0
        self._task = asyncio.create_task(self._run())

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def close(self) -> None:
        """Send what is left, as far as that is possible in a moment."""
        self._closing.set()
        self._wake.set()
        await asyncio.wait({self._task}, timeout=self._timing.redis_end_s)
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._commands is not None:
            self._commands.close()
        await self._client.detach()

    # --- outages ---

    async def _run(self) -> None:
        first, longest = self._timing.redis_pauses_s
        while True:
            try:
                if await self._publish():
                    return
            except StreamGone:
                pass
            except Exception as error:  # whatever it is, the session goes on
                await self._note_failure(error)
                if self._closing.is_set():
                    return
            pause = min(longest, first * 2 ** min(max(0, self._failures - 1), 20))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()

    async def _note_failure(self, error: Exception) -> None:
        """Warn once per outage, and not if the second attempt succeeds."""
        now = time.monotonic()
        self._failing_since = now if self._failures == 0 else self._failing_since
        self._failures += 1
        if self._failures == 2:
            failure = await asyncio.to_thread(_explain, error, self._settings)
            self._is_reported = True
            self._warn(
                f"{failure} The session goes on; what Redis misses is published when it is back. {failure.hint}", "warn"
            )
        if self._settings.accept == "approve" and now - self._failing_since >= self._timing.redis_absent_s:
            self._client.set_answering(False, _ABSENT)

    def _note_success(self) -> None:
        if self._settings.accept == "approve" and self._failures:
            self._client.set_answering(True)
        if self._is_reported:
            self._warn("Redis is back: the events that it missed were published.", "info")
        self._failures, self._is_reported = 0, False

    # --- one connection ---

    async def _publish(self) -> bool:
        """Publish until the session ends; True then. False if events must be read from the log again."""
        connection = await asyncio.to_thread(load_connection)
        redis = connection.connect(self._settings)
        tasks: list[asyncio.Task[None]] = []
        events: AsyncIterator[Envelope] | None = None
        try:
            events = await self._open_events(redis)
            tasks.append(asyncio.create_task(self._collect(events)))
            if (accept := self._settings.accept) != "none":
                tasks.append(await self._start_commands(redis, accept))
            return await self._send_events(redis, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if events is not None:
                close_events(events)
            self._queue.clear()
            self._has_room.set()
            await connection.disconnect(redis)

    async def _open_events(self, redis: Any) -> AsyncIterator[Envelope]:
        """Find out what Redis has, and return the events from there on."""
        last = await self._find_last(redis)
        self._missed = (await self._client.snapshot()).seq
        if last > self._missed:
            raise OdinError(
                f"Redis has events of the session {self._session} that are not in its log.",
                f"Delete the key {self._key} of Redis.",
            )
        self._sent = max(last, self._missed - self._settings.max_events)
        self._has_stream = last >= 0
        self._is_behind, self._is_dirty, self._beat_at, self._snapshot_at = False, True, 0.0, 0.0
        # The turns of the missed events are known only to who has read the log from the start.
        begin = last if last in (self._missed, self._encoder.seq) else -1
        self._encoder.restart(begin)
        return self._client.stream_events(begin)

    async def _find_last(self, redis: Any) -> int:
        """Return the number of the last event in Redis, or -1."""
        async with asyncio.timeout(self._timing.redis_answer_s):
            if not await redis.exists(self._key):
                return -1
            info: Any = await redis.xinfo_stream(self._key)
        last = info["last-generated-id"].decode()
        return -1 if last == _FIRST_ID else int(last.partition("-")[0])

    async def _start_commands(self, redis: Any, right: Right) -> asyncio.Task[None]:
        if self._commands is None:
            from odin.redis.commands import OpReader

            self._commands = OpReader(self._client, right, f"{self._key}:ops", self._wake.set)
        async with asyncio.timeout(self._timing.redis_answer_s):
            await self._commands.find_start(redis)
        listening = self._commands.listen(redis, self._timing.redis_beat_s, self._timing.redis_answer_s)
        task = asyncio.create_task(listening)
        task.add_done_callback(lambda _: self._wake.set())
        return task

    # --- collecting ---

    async def _collect(self, events: AsyncIterator[Envelope]) -> None:
        """Keep events until they are sent. Those of the log wait for room, those that happen now do not."""
        async for envelope in events:
            while envelope.seq <= self._missed and len(self._queue) >= MAX_WAITING:
                self._has_room.clear()
                await self._has_room.wait()
            if not self._keep(envelope):
                self._is_behind = True
                break
            self._wake.set()
        close_events(events)

    def _keep(self, envelope: Envelope) -> bool:
        """Keep an event, or drop a transient one. False if a durable one has no room."""
        if len(self._queue) >= MAX_WAITING:
            if not _is_needed(envelope):
                self.dropped += 1
                return True
            needed = deque(item for item in self._queue if _is_needed(item))
            self.dropped += len(self._queue) - len(needed)
            self._queue = needed
            if len(needed) >= MAX_WAITING:
                return False
        self._queue.append(envelope)
        return True

    # --- sending ---

    async def _send_events(self, redis: Any, tasks: "Sequence[asyncio.Task[None]]") -> bool:
        while True:
            await self._wait()
            for task in tasks:
                if task.done():
                    task.result()  # raises what has ended it
            batch = list(self._queue)
            self._queue.clear()
            self._has_room.set()
            self._is_dirty = self._is_dirty or any(_is_needed(item) for item in batch)
            for entries in _split(await asyncio.to_thread(self._encoder.encode_events, batch, self._sent)):
                await self._write(redis, entries)
            is_over = self._closing.is_set() and self._sent >= (await self._client.snapshot()).seq
            await self._write_state(redis, is_over=is_over)
            if self._failures and self._sent >= self._missed:
                self._note_success()
            if is_over or (self._is_behind and not self._queue):
                return is_over

    @property
    def _needs_snapshot(self) -> bool:
        """True if the state has changed since the last one. A session in which nothing was asked has none."""
        return self._settings.snapshots and self._is_dirty and self._sent >= 0

    async def _wait(self) -> None:
        """Wait until there is something to send, and a little longer for what comes with it."""
        due = min(self._beat_at, self._snapshot_at) if self._needs_snapshot else self._beat_at
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - time.monotonic())):
                await self._wake.wait()
        if self._wake.is_set() and not self._closing.is_set() and len(self._queue) < MAX_WAITING:
            await asyncio.sleep(self._timing.redis_batch_s)
        self._wake.clear()

    async def _write(self, redis: Any, entries: Sequence[StreamEntry]) -> None:
        """Write entries, all or none: an entry after one that was refused would hide the gap."""
        pipe: Any = redis.pipeline(transaction=True)
        for entry in entries:
            if entry.seq is None:
                pipe.publish(f"{self._key}:live", entry.envelope)
                continue
            fields: dict[Any, Any] = {"envelope": entry.envelope, "topic": entry.topic}
            fields |= {"message": entry.message} if entry.message else {}
            # `SEQ-1`, because Redis has no entry `0-0`.
            pipe.xadd(
                self._key, fields, f"{entry.seq}-1", maxlen=self._settings.max_events, nomkstream=self._has_stream
            )
            self._has_stream = True
        async with asyncio.timeout(self._timing.redis_answer_s):
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        for entry, reply in zip(entries, replies, strict=True):
            if isinstance(reply, Exception) and "equal or smaller" not in str(reply):
                raise reply
            if reply is None:
                raise StreamGone
            self._sent = self._sent if entry.seq is None else entry.seq

    async def _write_state(self, redis: Any, *, is_over: bool) -> None:
        """Write what is due: results of commands, the snapshot, the sign of life."""
        now, key = time.monotonic(), self._key
        pipe: Any = redis.pipeline(transaction=True)
        is_dirty = self._is_dirty
        results = self._commands.take_results() if self._commands is not None else []
        try:
            for result in results:
                error, hint = await asyncio.to_thread(self._encoder.hide_texts, (result.error, result.hint))
                fields: dict[Any, Any] = {"id": result.id, "entry": result.entry, "status": result.status}
                pipe.xadd(f"{key}:results", fields | ({"error": error, "hint": hint} if error else {}), maxlen=1000)
            if self._needs_snapshot and (now >= self._snapshot_at or is_over):
                self._is_dirty = False
                snapshot = await self._client.snapshot()
                pipe.set(f"{key}:snapshot", await asyncio.to_thread(self._encoder.encode_snapshot, snapshot))
                pipe.publish(f"{key}:snapshot", snapshot.seq)
                done = time.monotonic()
                self._snapshot_at = done + max(self._timing.redis_snapshot_s, 10 * (done - now))
            async with asyncio.timeout(self._timing.redis_answer_s):
                if now >= self._beat_at or is_over:
                    self._beat_at = now + self._timing.redis_beat_s
                    seconds, _ = await redis.time()
                    self._add_beat(pipe, seconds, is_over=is_over)
                if len(pipe):
                    await pipe.execute()
        except BaseException:
            self._is_dirty = is_dirty
            if self._commands is not None:
                self._commands.results.extendleft(reversed(results))
            raise

    def _add_beat(self, pipe: Any, now: int, *, is_over: bool) -> None:
        sessions, lifetime = f"{self._settings.prefix}:sessions", int(3 * self._timing.redis_beat_s) or 1
        pipe.zremrangebyscore(sessions, "-inf", now)
        if is_over:
            pipe.zrem(sessions, self._session)
        else:
            pipe.zadd(sessions, {self._session: now + lifetime})
        pipe.expire(sessions, lifetime)
        if kept := int(self._settings.keep_h * 3600):
            for suffix in ("", ":snapshot", ":ops", ":results"):
                pipe.expire(self._key + suffix, kept)


def _is_needed(envelope: Envelope) -> bool:
    """True for events that change the state: durable ones, and the end of the work."""
    event = envelope.event
    return event.durable or (isinstance(event, ActivityChanged) and event.activity == "idle")


def _split(entries: Sequence[StreamEntry]) -> Iterator[Sequence[StreamEntry]]:
    """Yield the entries in parts, none much larger than the limit."""
    part: list[StreamEntry] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += len(entry.envelope)
        if size >= _MAX_BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def load_connection() -> Any:
    """Return the module `connection`. Raise OdinError if the package `redis` is not installed."""
    try:
        from odin.redis import connection
    except ImportError as error:
        raise OdinError(
            "Publishing to Redis needs the package redis.", "Install odin-code[redis], or remove redis.url."
        ) from error
    return connection


def _explain(error: Exception, settings: RedisSettings) -> OdinError:
    if isinstance(error, OdinError):
        return error
    return load_connection().explain_failure(error, settings)
