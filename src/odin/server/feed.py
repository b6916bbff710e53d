"""The events of one session for all who watch it over HTTP: encoded once, collected in frames, kept for a moment.

A watcher has a position among the frames and takes what is there when it can. One that falls behind what is kept gets
a last event, `resync`, and starts again from the log, so that a slow reader costs no memory.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress

import msgspec

from odin.core.client import Client, close_events
from odin.core.errors import OdinError
from odin.core.event import Envelope
from odin.core.live_events import LiveEvents
from odin.core.text import to_valid_unicode_all
from odin.remote.protocol import FRAME_S, HEARTBEAT_S

MAX_KEPT_BYTES = 4_000_000
_REPLAY_BYTES = 64_000
_REPLAY_WAIT_S = 5.0
_CLOSE_S = 1.0

_encoder = msgspec.json.Encoder()


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the envelope as a server-sent event. JSON has no line breaks, so no text can end it."""
    try:
        data = _encoder.encode(envelope)
    except UnicodeEncodeError:
        data = _encoder.encode(to_valid_unicode_all(msgspec.to_builtins(envelope)))
    return b"id: %d\ndata: %b\n\n" % (envelope.seq, data) if envelope.event.durable else b"data: %b\n\n" % data


def encode_notice(name: str, **fields: object) -> bytes:
    """Return an event about the stream itself, without a number."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encoder.encode(fields))


class Feed:
    """Follows a session from the event `seq` on; `last_seq` is the number of the last event it has seen."""

    def __init__(self, client: Client, seq: int, *, kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self.last_seq = seq
        self.watchers = 0
        self.cut_off = 0
        """Watchers that were too slow."""
        self.is_over = False
        self._client = client
        self._kept_bytes = kept_bytes
        self._live = LiveEvents()
        self._collected: list[bytes] = []
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._first = 0
        """Position of the oldest frame that is kept."""
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._frame_timer: asyncio.TimerHandle | None = None
        self._heartbeat = self._loop.call_later(HEARTBEAT_S, self._beat)
        self._task = asyncio.create_task(self._follow(client.stream_events(after=seq)))

    async def _follow(self, events: AsyncIterator[Envelope]) -> None:
        reason = "The session was closed."
        try:
            async for envelope in events:
                self._live.apply(envelope)
                self.last_seq = max(self.last_seq, envelope.seq)
                self._collect(encode_envelope(envelope))
        except OdinError as error:
            reason = error.describe()
        finally:
            close_events(events)
            self._collect(encode_notice("closed", reason=reason))
            self._cut()
            self.is_over = True
            self._heartbeat.cancel()

    def _collect(self, data: bytes) -> None:
        self._collected.append(data)
        if self._frame_timer is None:
            self._frame_timer = self._loop.call_later(FRAME_S, self._cut)

    def _cut(self) -> None:
        """Make a frame of what was collected, and wake the watchers."""
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        if not self._collected:
            return
        frame = b"".join(self._collected)
        self._collected.clear()
        self._frames.append(frame)
        self._size += len(frame)
        while self._size > self._kept_bytes and len(self._frames) > 1:
            self._size -= len(self._frames.popleft())
            self._first += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _beat(self) -> None:
        self._heartbeat = self._loop.call_later(HEARTBEAT_S, self._beat)
        if self.watchers:
            self._collect(encode_notice("heartbeat", seq=self.last_seq))

    async def watch(self, after: int | None, is_allowed: Callable[[], bool] = lambda: True) -> AsyncGenerator[bytes]:
        """Yield the durable events after this number, what is going on now, then all events, as server-sent events.

        Without a number only what happens from now on. It ends with the session, when the watcher is too slow, or when
        it is no longer allowed.
        """
        self._cut()
        position, last = self._first + len(self._frames), self.last_seq
        now = b"".join(map(encode_envelope, self._live.list_current()))
        self.watchers += 1
        try:
            yield encode_notice("open", seq=last)
            if after is not None and after < last:
                async for data in self._replay(after, last):
                    yield data
            if after is not None and now:
                yield now
            while is_allowed():
                if position < self._first:
                    self.cut_off += 1
                    yield encode_notice("resync", seq=self.last_seq)
                    return
                frames = list(itertools.islice(self._frames, position - self._first, None))
                if frames:
                    position += len(frames)
                    yield frames[0] if len(frames) == 1 else b"".join(frames)
                elif self.is_over:
                    return
                else:
                    await self._changed.wait()
        finally:
            self.watchers -= 1

    async def _replay(self, after: int, last: int) -> AsyncIterator[bytes]:
        """Yield the events of the log after one number and up to another."""
        events, parts, size = self._client.stream_events(after=after), list[bytes](), 0
        try:
            # Events that a full disk did not take are not in the log: they do not come before the next event does.
            while (envelope := await asyncio.wait_for(anext(events), _REPLAY_WAIT_S)).seq <= last:
                if not envelope.event.durable:
                    break
                parts.append(encode_envelope(envelope))
                size += len(parts[-1])
                if size > _REPLAY_BYTES:
                    yield b"".join(parts)
                    parts.clear()
                    size = 0
                if envelope.seq == last:
                    break
        except (StopAsyncIteration, TimeoutError):
            pass
        finally:
            close_events(events)
            if (close := getattr(events, "aclose", None)) is not None:
                await close()
        if parts:
            yield b"".join(parts)

    async def close(self) -> None:
        """End the streams of all watchers. One whose session was closed before has its last events."""
        await asyncio.wait({self._task}, timeout=_CLOSE_S)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
