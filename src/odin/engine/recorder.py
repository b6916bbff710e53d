"""Emitting an event is always the same three steps, in this order: append to the log, fold into state, publish.

A log that fails (a full disk, a folder that cannot be written any more) is reported at once; the rest of the turn goes
on in memory so that it can end in order. Nothing is lost by that: what the log would not take waits, and is written
before anything new. What announces a change to the world does not happen without its record.
"""

import time
from collections import deque
from typing import Protocol

import msgspec

from odin.core.errors import AgentShutdown, OdinError
from odin.core.event import AnyEvent, CallSpeculated, CheckpointSaved, Envelope, ToolStarted, TurnEnded, TurnStarted
from odin.engine.event_bus import EventBus
from odin.session.state import SessionState

_SYNCED_EVENTS = (TurnStarted, CheckpointSaved, TurnEnded)
"""What must survive a power cut as soon as it was said: a prompt, an answer, and how to undo what comes next."""

_PRE_EFFECT_EVENTS = (ToolStarted, CallSpeculated, CheckpointSaved)
"""What comes right before a side effect."""

_RETRIED_EVENTS = (TurnStarted, TurnEnded, *_PRE_EFFECT_EVENTS)


class EventLog(Protocol):
    def append(self, envelope: Envelope) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def _mark_unsaved(ended: TurnEnded, failure: OdinError) -> TurnEnded:
    """The end of a turn that could not be written: its answer is still given, and why it is not kept."""
    return msgspec.structs.replace(
        ended, reason="error", error=str(failure), error_kind=failure.kind, hint=failure.hint
    )


class Recorder:
    """The only way an event comes to be. It runs on the event loop's thread and never waits, so events never mix."""

    def __init__(self, log: EventLog | None, state: SessionState, hub: EventBus, *, inherited: int = -1) -> None:
        self.state = state
        self.hub = hub
        self._log = log
        self._next = state.seq + 1
        self.last_past_seq = state.seq
        """The number of the last event of earlier runs of the session."""
        self.last_inherited_seq = inherited
        """The number of the last event that is a copy: it happened in the session this one was forked from."""
        self._unwritten: deque[Envelope] = deque()
        """What the log has not taken yet, oldest first."""
        self._failing = False
        self._closed = False

    def emit(self, event: AnyEvent, agent: str = "", *, past: bool = False) -> Envelope:
        """With `past` it is about what was left open long ago: only readers of the whole log hear of it, no one else
        is told as if it were news.

        After the end nothing is recorded any more: the log may be somebody else's by then. Raises AgentShutdown.
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
        self.hub.publish(envelope, past=past)
        if failure is not None:
            raise failure
        return envelope

    def _write(self, envelope: Envelope) -> OdinError | None:
        """Give the log this event, after those that still wait. While a turn runs, a log that failed is left in peace
        until something happens that must not be lost."""
        if self._log is None:
            return None
        self._unwritten.append(envelope)
        if self._failing and self.state.conversation.is_executing and not isinstance(envelope.event, _RETRIED_EVENTS):
            return None
        return self._write_pending(self._log, sync=isinstance(envelope.event, _SYNCED_EVENTS))

    def _write_pending(self, log: EventLog, *, sync: bool) -> OdinError | None:
        try:
            while self._unwritten:
                log.append(self._unwritten[0])
                self._unwritten.popleft()
            if sync:
                log.sync()
        except OdinError as error:
            self._failing = True
            return error
        self._failing = False
        return None

    def close(self) -> None:
        self._closed = True
        if self._log is not None:
            if self._unwritten:
                self._write_pending(self._log, sync=True)
            self._log.close()
