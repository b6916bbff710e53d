"""Where loop mode stands, and what the calls of the round came to: nothing is kept of it while it is off."""

from msgspec import Struct

from odin.core.client import LoopStatus
from odin.core.event import CallStatus, Envelope, FilesLeft, LoopChanged, SessionOpened, ToolEnded, TurnStarted

RESUMED = "The session ended while it was on, and it does not go on by itself."

_OFF = LoopChanged("idle")


class RoundCall(Struct, frozen=True):
    """One call. Two with the same `digest` brought the same."""

    name: str
    status: CallStatus
    digest: int

    @property
    def succeeded(self) -> bool:
        return self.status == "success"

    @property
    def ran(self) -> bool:
        return self.status in ("success", "error")


class Looping:
    """`calls` and `changed` are of all agents, since the main agent's turn began or loop mode was switched on."""

    def __init__(self) -> None:
        self._last = _OFF
        self.calls: list[RoundCall] = []
        self.changed = False

    @property
    def status(self) -> LoopStatus:
        last = self._last
        return LoopStatus(last.state, last.target, last.iteration, last.limit, last.reason)

    @property
    def on(self) -> bool:
        return self.status.on

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, LoopChanged):
            self._last = event
            if not self.on:
                self._clear()
        elif self._last is _OFF or not self.on:
            return
        elif isinstance(event, SessionOpened):
            self._last = LoopChanged("idle", reason=RESUMED)
            self._clear()
        elif isinstance(event, TurnStarted):
            if not envelope.agent:
                self._clear()
        elif isinstance(event, ToolEnded):
            self.calls.append(RoundCall(event.name, event.status, hash((event.name, event.text))))
        elif isinstance(event, FilesLeft):
            self.changed = self.changed or bool(event.changes)

    def _clear(self) -> None:
        self.calls, self.changed = [], False
