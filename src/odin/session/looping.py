"""Where loop mode stands, and what the calls of the round came to: nothing is kept of it while it is off."""

from msgspec import Struct

from odin.core.client import LoopStatus
from odin.core.event import CallStatus, Envelope, FilesChanged, LoopChanged, SessionOpened, ToolEnded, TurnStarted

LOOP_ENDED_BY_RESUME = "The session ended while it was on, and it does not go on by itself."

_LOOP_OFF = LoopChanged("idle")


class LoopCall(Struct, frozen=True):
    """One call. Two with the same `digest` brought the same."""

    name: str
    status: CallStatus
    fingerprint: int

    @property
    def is_success(self) -> bool:
        return self.status == "success"

    @property
    def has_run(self) -> bool:
        return self.status in ("success", "error")


class LoopModeState:
    """`calls` and `changed` are of all agents, since the main agent's turn began or loop mode was switched on."""

    def __init__(self) -> None:
        self._last = _LOOP_OFF
        self.calls: list[LoopCall] = []
        self.has_file_changes = False

    @property
    def status(self) -> LoopStatus:
        last = self._last
        return LoopStatus(last.state, last.goal, last.iteration, last.limit, last.reason)

    @property
    def is_active(self) -> bool:
        return self.status.is_active

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, LoopChanged):
            self._last = event
            if not self.is_active:
                self._clear()
        elif self._last is _LOOP_OFF or not self.is_active:
            return
        elif isinstance(event, SessionOpened):
            self._last = LoopChanged("idle", reason=LOOP_ENDED_BY_RESUME)
            self._clear()
        elif isinstance(event, TurnStarted):
            if not envelope.agent:
                self._clear()
        elif isinstance(event, ToolEnded):
            self.calls.append(LoopCall(event.name, event.status, hash((event.name, event.text))))
        elif isinstance(event, FilesChanged):
            self.has_file_changes = self.has_file_changes or bool(event.changes)

    def _clear(self) -> None:
        self.calls, self.has_file_changes = [], False
