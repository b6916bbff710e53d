"""Emits events, always in three steps: append to the log, fold into the state, publish.

A log that fails (disk full, folder not writable) is reported at once; the turn continues in memory so that it can end
in order. Events the log did not take are kept and written before any new one. Events that precede a side effect are the
exception: if they cannot be recorded, the side effect must not happen.

Syncing to the disk takes milliseconds, or seconds on a slow one. It happens in a thread, so that other sessions of the
process go on, and what must not happen before it waits (`wait_until_synced`).
"""

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Protocol

import msgspec

from odin.core import debug
from odin.core.call_events import CallSpeculated, ToolStarted
from odin.core.errors import AgentShutdown, OdinError
from odin.core.event import AnyEvent, CheckpointSaved, Envelope, TurnEnded, TurnStarted, Warned
from odin.engine.event_bus import EventBus
from odin.session.state import SessionState

_SYNCED_EVENTS = (TurnStarted, CheckpointSaved, TurnEnded)
"""Events that are synced to disk at once, to survive a power cut: prompts, answers and saved files. A request waits for
its prompt, and a change for the saved files."""

_PRE_EFFECT_EVENTS = (ToolStarted, CallSpeculated, CheckpointSaved)
"""Events right before a side effect."""

_RETRIED_EVENTS = (TurnStarted, TurnEnded, *_PRE_EFFECT_EVENTS)


class EventLog(Protocol):
    def append(self, envelope: Envelope) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def _mark_unsaved(ended: TurnEnded, failure: OdinError) -> TurnEnded:
    """Return the end of a turn with the log's failure as its error. The answer stays in it."""
    return msgspec.structs.replace(
        ended, reason="error", error=str(failure), error_kind=failure.kind, hint=failure.hint
    )


class Recorder:
    """The only source of events. It runs on the event loop's thread and never awaits, so events stay in order."""

    def __init__(self, log: EventLog | None, state: SessionState, bus: EventBus, *, inherited: int = -1) -> None:
        self.state = state
        self.bus = bus
        self._log = log
        self._next = state.seq + 1
        self.last_past_seq = state.seq
        """Number of the last event of earlier runs of the session."""
        self.last_inherited_seq = inherited
        """Number of the last event that was copied from the session this one was forked from."""
        self._unwritten: deque[Envelope] = deque()
        """Events the log has not taken yet, oldest first."""
        self._failing = False
        self._closed = False
        self._last_sync: asyncio.Future[OdinError | None] | None = None
        self._sync_threads: list[threading.Thread] = []

    def emit(self, event: AnyEvent, agent: str = "", *, past: bool = False) -> Envelope:
        """Record and publish an event; return it in its envelope.

        `past` marks events that close work left dangling by a crash; only subscribers that replay the whole log
        receive them. Raise AgentShutdown after `close`: another process may own the log by then.
        """
        if self._closed and event.durable:
            raise AgentShutdown
        number = self._next if event.durable else self._next - 1
        envelope = Envelope(number, time.time(), self.state.session, event, agent)
        failure = self._write(envelope) if event.durable else None
        if failure is not None and isinstance(event, TurnEnded):
            envelope = msgspec.structs.replace(envelope, event=_mark_unsaved(event, failure))
        if failure is not None and isinstance(event, _PRE_EFFECT_EVENTS) and self._unwritten:
            self._unwritten.pop()
            raise failure
        self._next += event.durable
        self.state.apply(envelope)
        self.bus.publish(envelope, past=past)
        if debug.write is not None:
            debug.write("event", {"agent": agent, "event": envelope.event})
        if failure is not None:
            raise failure
        return envelope

    async def wait_until_synced(self) -> None:
        """Wait until the last event that must survive a power cut is on the disk. Raise StateUnwritable if it fails."""
        if self._last_sync is not None and (failure := await asyncio.shield(self._last_sync)) is not None:
            raise failure

    def _write(self, envelope: Envelope) -> OdinError | None:
        """Append the event after those that still wait; return the error if that fails.

        While a turn runs, a failed log is retried only for events that must not be lost.
        """
        if self._log is None:
            return None
        self._unwritten.append(envelope)
        if self._failing and self.state.conversation.is_executing and not isinstance(envelope.event, _RETRIED_EVENTS):
            return None
        return self._write_pending(self._log, envelope.event)

    def _write_pending(self, log: EventLog, event: AnyEvent | None = None) -> OdinError | None:
        try:
            while self._unwritten:
                log.append(self._unwritten[0])
                self._unwritten.popleft()
            if isinstance(event, _SYNCED_EVENTS):
                self._begin_sync(log, is_awaited=not isinstance(event, TurnEnded))
        except OdinError as error:
            self._failing = True
            return error
        self._failing = False
        return None

    def _begin_sync(self, log: EventLog, *, is_awaited: bool) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            log.sync()
            return
        done = self._last_sync = loop.create_future()

        def sync() -> None:
            failure = None
            try:
                log.sync()
            except OdinError as error:
                failure = error
            finally:
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(end, failure)

        def end(failure: OdinError | None) -> None:
            done.set_result(failure)
            if failure is not None and not is_awaited:
                with suppress(OdinError):
                    self.emit(Warned(failure.describe()))

        thread = threading.Thread(target=sync, daemon=True)
        self._sync_threads = [*(other for other in self._sync_threads if other.is_alive()), thread]
        try:
            thread.start()
        except RuntimeError:  # too many threads
            self._sync_threads.pop()
            sync()

    def close(self) -> None:
        """Close the log. Await `wait_until_synced` before, or this blocks until the disk is done."""
        self._closed = True
        for thread in self._sync_threads:
            thread.join()
        if self._log is not None:
            if self._unwritten and self._write_pending(self._log) is None:
                with suppress(OdinError):
                    self._log.sync()
            self._log.close()
