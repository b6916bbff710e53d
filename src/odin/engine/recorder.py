"""Emitting an event is always the same three steps, in this order: append to the log, fold into state, publish."""

import time
from typing import Protocol

import msgspec

from odin.bus.hub import Hub
from odin.core.errors import OdinError
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted
from odin.session.state import State

_WORTH_A_SYNC = (TurnStarted, TurnEnded)


class Log(Protocol):
    def append(self, envelope: Envelope) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def _unsaved(ended: TurnEnded, failure: OdinError) -> TurnEnded:
    """The end of a turn that could not be written: its answer is still given, and why it is not kept."""
    return msgspec.structs.replace(
        ended, reason="error", error=str(failure), error_kind=failure.kind, hint=failure.hint
    )


class Recorder:
    """The only way an event comes to be. It runs on the event loop's thread and never waits, so events never mix."""

    def __init__(self, log: Log | None, state: State, hub: Hub) -> None:
        self.state = state
        self.hub = hub
        self._log = log
        self._next = state.seq + 1

    def emit(self, event: AnyEvent, agent: str = "") -> Envelope:
        number = self._next if event.durable else self._next - 1
        envelope = Envelope(number, time.time(), self.state.session, event, agent)
        failure = self._write(envelope) if event.durable else None
        if failure is not None and isinstance(event, TurnEnded):
            envelope = msgspec.structs.replace(envelope, event=_unsaved(event, failure))
        self._next += event.durable
        self.state.apply(envelope)
        self.hub.publish(envelope)
        if failure is not None:
            raise failure
        return envelope

    def _write(self, envelope: Envelope) -> OdinError | None:
        """A log that fails is reported once; the rest of the turn goes on in memory so that it can end in order."""
        if self._log is None:
            return None
        try:
            self._log.append(envelope)
            if isinstance(envelope.event, _WORTH_A_SYNC):
                self._log.sync()
        except OdinError as error:
            self._log.close()
            self._log = None
            return error
        return None

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
