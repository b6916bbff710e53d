"""What a run that was killed left open in its log: shown as ended, because it is, also before the log says so.

A session writes the endings down only when something is said in it again, so that looking at one leaves no trace.
"""

from collections.abc import Iterator

from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    Envelope,
    LoopChanged,
    SpawnFinished,
    SpawnStarted,
    TurnEnded,
    TurnStarted,
)
from odin.ui.tui.panels.facts import ACTIVE_LOOP_STATES

CRASH_MESSAGE = "Odin was killed or crashed in the middle of this turn."


class DanglingWork:
    """Told of the past event by event. What it has ended is not ended once more when the session says so later."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._agents: dict[str, None] = {}
        self._spawns: dict[str, str] = {}
        self._looping = False
        self._ended: set[tuple[str, str]] = set()

    def apply(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        if isinstance(event, TurnStarted):
            self._turns[agent] = event.id
        elif isinstance(event, TurnEnded):
            self._turns.pop(agent, None)
        elif isinstance(event, AgentStarted):
            self._agents[event.id] = None
        elif isinstance(event, AgentEnded):
            self._agents.pop(event.id, None)
        elif isinstance(event, SpawnStarted):
            self._spawns[event.id] = agent
        elif isinstance(event, SpawnFinished):
            self._spawns.pop(event.id, None)
        elif isinstance(event, LoopChanged):
            self._looping = event.state in ACTIVE_LOOP_STATES

    def make_end_events(self) -> Iterator[tuple[AnyEvent, str]]:
        """For a session in which nothing runs now: an event for everything that is open, sub-agents first."""
        for agent, turn in sorted(self._turns.items(), reverse=True):
            yield self._record_end(TurnEnded(turn, "aborted", error=CRASH_MESSAGE), turn), agent
        for agent in self._agents:
            yield self._record_end(AgentEnded(agent, "aborted"), agent), ""
        for spawn, agent in self._spawns.items():
            yield self._record_end(SpawnFinished(spawn, "stopped"), spawn), agent
        if self._looping:
            yield LoopChanged("idle", reason="Odin was killed or crashed."), ""

    def _record_end(self, event: AnyEvent, what: str) -> AnyEvent:
        self._ended.add((type(event).__name__, what))
        return event

    def has_ended(self, envelope: Envelope) -> bool:
        event = envelope.event
        what = event.id if isinstance(event, TurnEnded | AgentEnded | SpawnFinished) else ""
        return (type(event).__name__, what) in self._ended
