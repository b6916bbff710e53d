"""What happens in one session for all who watch it over HTTP: encoded once, collected in frames, kept for a moment.

A watcher has a position among the frames. Each new frame is written to all whose connection takes it, without a task
for each. One that falls behind what is kept gets a last event, `resync`, and starts again from the log, so that a slow
reader costs no memory.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol

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
_CHECK_S = 1.0
"""How often it is looked whether the tokens of the watchers are still valid."""

_encoder = msgspec.json.Encoder()


class Writer(Protocol):
    """The connection of a watcher. What is written while it is congested would be buffered."""

    @property
    def is_congested(self) -> bool: ...

    def write_chunk(self, data: bytes) -> None:
        """Write a part of the body that `encode_chunk` has encoded."""
        ...


def encode_chunk(data: bytes) -> bytes:
    """Return the data as a chunk of an HTTP/1.1 body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


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


class Watcher:
    """Who reads the frames of a feed, from `position` on. `done` is set when nothing more follows."""

    def __init__(self, writer: Writer, token: str) -> None:
        self.writer = writer
        self.position = 0
        self.token = token
        self.is_live = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class FrameFeed:
    """Frames for watchers, `FRAME_S` apart. `last_seq` is the number of the last event that it has seen.

    A watcher whose token is no longer valid gets nothing more.
    """

    def __init__(
        self, seq: int, *, is_valid: Callable[[str], bool] = lambda _: True, kept_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self.last_seq = seq
        self.watchers: set[Watcher] = set()
        self.cut_off = 0
        """How many watchers were too slow."""
        self.is_over = False
        self._is_valid = is_valid
        self._kept_bytes = kept_bytes
        self._collected: list[bytes] = []
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._first = 0
        """Position of the oldest frame that is kept."""
        self._loop = asyncio.get_running_loop()
        self._frame_timer: asyncio.TimerHandle | None = None
        self._beats = 0
        self._beat_timer = self._loop.call_later(_CHECK_S, self._beat)

    def begin(self, watcher: Watcher) -> AsyncGenerator[bytes]:
        """Yield what comes before the frames for a new watcher, which gets them from now on."""
        raise NotImplementedError

    def _collect(self, data: bytes) -> None:
        self._collected.append(data)
        self._wake()

    def _wake(self) -> None:
        if self._frame_timer is None:
            self._frame_timer = self._loop.call_later(FRAME_S, self._cut)

    def _cut(self) -> None:
        """Make a frame of what was collected, and write it to the watchers."""
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        if data := self._take():
            frame = encode_chunk(data)
            self._frames.append(frame)
            self._size += len(frame)
            while self._size > self._kept_bytes and len(self._frames) > 1:
                self._size -= len(self._frames.popleft())
                self._first += 1
        for watcher in self._list_valid():
            self._serve(watcher)

    def _take(self) -> bytes:
        """Return what was collected since the last frame."""
        data = b"".join(self._collected)
        self._collected.clear()
        return data

    def _list_valid(self) -> list[Watcher]:
        """Return the watchers with a valid token, after the others were ended."""
        is_valid = {token: self._is_valid(token) for token in {watcher.token for watcher in self.watchers}}
        for watcher in self.watchers:
            if not is_valid[watcher.token]:
                watcher.finish()
        return [watcher for watcher in self.watchers if is_valid[watcher.token]]

    def _serve(self, watcher: Watcher) -> None:
        """Write the frames that a watcher does not have yet, unless its connection is congested."""
        end = self._first + len(self._frames)
        if not watcher.is_live or watcher.writer.is_congested or watcher.done.done():
            return
        if watcher.position < self._first:
            self.cut_off += 1
            watcher.writer.write_chunk(encode_chunk(encode_notice("resync", seq=self.last_seq)))
            watcher.finish()
        elif watcher.position == end - 1:
            watcher.writer.write_chunk(self._frames[-1])
        elif watcher.position < end:
            frames = itertools.islice(self._frames, watcher.position - self._first, None)
            watcher.writer.write_chunk(b"".join(frames))
        watcher.position = end
        if self.is_over:
            watcher.finish()

    def _beat(self) -> None:
        self._beat_timer = self._loop.call_later(_CHECK_S, self._beat)
        self._beats += 1
        for watcher in self._list_valid():
            self._serve(watcher)  # its connection may be free again
        if self.watchers and self._beats % int(HEARTBEAT_S / _CHECK_S) == 0:
            self._collect(encode_notice("heartbeat", seq=self.last_seq))

    def join(self, writer: Writer, token: str = "") -> Watcher:
        """Return a new watcher, which gets frames after it has begun. It must leave, too."""
        watcher = Watcher(writer, token)
        self.watchers.add(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)

    def _go_live(self, watcher: Watcher) -> None:
        watcher.is_live = True
        self._serve(watcher)

    def _end(self, reason: str) -> None:
        self.is_over = True
        self._collect(encode_notice("closed", reason=reason))
        self._cut()
        self._beat_timer.cancel()


class Feed(FrameFeed):
    """The events of a session from the event `seq` on."""

    def __init__(
        self,
        client: Client,
        seq: int,
        *,
        is_valid: Callable[[str], bool] = lambda _: True,
        kept_bytes: int = MAX_KEPT_BYTES,
    ) -> None:
        super().__init__(seq, is_valid=is_valid, kept_bytes=kept_bytes)
        self._client = client
        self._live = LiveEvents()
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
            self._end(reason)

    async def begin(self, watcher: Watcher, after: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the durable events after this number up to now, and what is going on now.

        Without a number only a notice. The frames from now on follow.
        """
        self._cut()
        watcher.position = self._first + len(self._frames)
        last, now = self.last_seq, b"".join(map(encode_envelope, self._live.list_current(self.last_seq)))
        yield encode_notice("open", seq=last)
        if after is not None and after < last:
            async for data in self._replay(after, last):
                if not self._is_valid(watcher.token):
                    watcher.finish()
                    return
                yield data
        if after is not None and now:
            yield now
        self._go_live(watcher)

    async def _replay(self, after: int, last: int) -> AsyncGenerator[bytes]:
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
