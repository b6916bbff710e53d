"""Who hears what happens: every event goes to every subscriber, and a slow one never holds up the agent."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from typing import Literal

import msgspec

from odin.bus.names import BusName, name_of
from odin.core.event import (
    ActivityChanged,
    AnyEvent,
    CallStreamed,
    Envelope,
    PermissionAsked,
    ReplyRolledBack,
    TextStreamed,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnEnded,
)

Topic = Literal["all", "agent", "tool"]
_TOOL_EVENTS = (ToolStarted, ToolEnded, ToolProgressed)
_NEVER_DROPPED = (TurnEnded, PermissionAsked, ReplyRolledBack)


class Subscription:
    """One reader's buffer. When it is full the oldest event that may be lost goes, and is counted.

    With `durable` every durable event is kept, and deltas of one text are joined before any is lost. The end of a turn
    and questions to the user are kept in any case. A reader of the `whole` log also hears what is recorded now of
    things long past.
    """

    def __init__(
        self, bus: "EventBus", topic: Topic, size: int, durable: bool, names: Collection[BusName], whole: bool
    ) -> None:
        self.whole = whole
        self._bus = bus
        self._topic = topic
        self._names = frozenset(names)
        self._size = size
        self._durable = durable
        self._buffer: deque[Envelope] = deque()
        self._ready: asyncio.Future[None] | None = None
        self._closed = False
        self._droppable = 0
        self.dropped = 0

    def wants(self, envelope: Envelope) -> bool:
        if self._names and name_of(envelope) not in self._names:
            return False
        return self._topic == "all" or isinstance(envelope.event, _TOOL_EVENTS) == (self._topic == "tool")

    def offer(self, envelope: Envelope) -> None:
        if len(self._buffer) >= self._size:
            if self._durable and self._merge_into_last(envelope):
                return
            if not self._make_room(envelope):
                self.dropped += 1
                return
        self._buffer.append(envelope)
        self._droppable += not self._is_kept(envelope)
        self._wake()

    def close(self) -> None:
        """No more events; what is buffered can still be read."""
        self._closed = True
        self._bus.forget(self)
        self._wake()

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        while not self._buffer:
            if self._closed:
                raise StopAsyncIteration
            self._ready = asyncio.get_running_loop().create_future()
            await self._ready
        envelope = self._buffer.popleft()
        self._droppable -= not self._is_kept(envelope)
        return envelope

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _is_kept(self, envelope: Envelope) -> bool:
        event = envelope.event
        idle = isinstance(event, ActivityChanged) and event.activity == "idle"
        return idle or isinstance(event, _NEVER_DROPPED) or (self._durable and event.durable)

    def _merge_into_last(self, newcomer: Envelope) -> bool:
        """Put a delta to the one before it when both belong to the same text."""
        last = self._buffer[-1]
        if last.agent != newcomer.agent or last.seq != newcomer.seq:
            return False
        joined = _merge_deltas(last.event, newcomer.event)
        if joined is not None:
            self._buffer[-1] = msgspec.structs.replace(newcomer, event=joined)
        return joined is not None

    def _make_room(self, newcomer: Envelope) -> bool:
        if not self._is_kept(newcomer):
            return False
        if self._droppable and not self._durable:
            index = next(i for i, waiting in enumerate(self._buffer) if not self._is_kept(waiting))
            del self._buffer[index]
            self._droppable -= 1
            self.dropped += 1
        return True


def _merge_deltas(first: AnyEvent, second: AnyEvent) -> AnyEvent | None:
    if isinstance(first, TextStreamed) and isinstance(second, TextStreamed):
        return TextStreamed(first.text + second.text)
    if isinstance(first, ThinkingStreamed) and isinstance(second, ThinkingStreamed):
        return ThinkingStreamed(first.text + second.text)
    if isinstance(first, CallStreamed) and isinstance(second, CallStreamed) and first.call_id == second.call_id:
        return msgspec.structs.replace(second, json=first.json_delta + second.json_delta)
    return None


async def stream_named(heard: Subscription) -> AsyncIterator[tuple[str, Envelope]]:
    """What a subscription hears, each with its name; what has none is left out."""
    try:
        async for envelope in heard:
            if name := name_of(envelope):
                yield name, envelope
    finally:
        heard.close()


class EventBus:
    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self._observer: Callable[[ActivityChanged], None] | None = None

    def subscribe(
        self,
        topic: Topic = "all",
        *,
        size: int = 64,
        durable: bool = False,
        names: Collection[BusName] = (),
        whole: bool = False,
    ) -> Subscription:
        """With `names` only what the bus calls by one of them is heard."""
        subscription = Subscription(self, topic, size, durable, names, whole)
        self._subscriptions.append(subscription)
        return subscription

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        """The one observer that is called in place for each change of activity; a new one replaces the old."""
        self._observer = observer

    def publish(self, envelope: Envelope, *, past: bool = False) -> None:
        """What is of the `past` is told only to readers of the whole log."""
        if self._observer is not None and isinstance(envelope.event, ActivityChanged):
            try:
                self._observer(envelope.event)
            except Exception:  # somebody else's code: an observer that fails is no reason to fail with it
                self._observer = None
        for subscription in tuple(self._subscriptions):
            if (subscription.whole or not past) and subscription.wants(envelope):
                subscription.offer(envelope)

    def forget(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def close(self) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.close()
