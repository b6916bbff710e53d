"""The work that a killed run left open in the log, and the events that end it on the screen.

A session logs the end events of a crashed run only when its next turn starts, so that viewing it does not change it.
Until then a front end makes up those events, so that nothing looks as if it were still running.
"""

import time
from collections.abc import Iterator

from odin.core.call_events import Replied, SpawnFinished
from odin.core.event import AgentEnded, AnyEvent, Envelope, LoopChanged, ScheduleChanged, TurnEnded, Warned
from odin.core.message import ReplyMessage, Text
from odin.core.schedule import SessionSchedule
from odin.core.timeline import OpenWork
from odin.ui.session_facts import ACTIVE_LOOP_STATES

CRASH_MESSAGE = "Odin was killed or crashed in the middle of this turn."
"""Repeats `CRASH_ERROR` of the engine, which the user interface may not import."""


class DanglingWork:
    """Turns, sub-agents, processes and loops that the log leaves open, folded from past events."""

    def __init__(self) -> None:
        self._open = OpenWork()
        self._looping = False
        self._schedules: dict[str, SessionSchedule] = {}
        self._ended: set[tuple[str, str]] = set()

    def apply(self, envelope: Envelope) -> None:
        self._open.apply(envelope)
        if isinstance(envelope.event, LoopChanged) and not envelope.agent:
            self._looping = envelope.event.state in ACTIVE_LOOP_STATES

        if isinstance(event := envelope.event, ScheduleChanged):
            self._schedules.pop(event.schedule.id, None)
            if event.is_on:
                self._schedules[event.schedule.id] = event.schedule

    def make_end_events(self) -> Iterator[tuple[AnyEvent, str]]:
        """Yield an end event and its agent for everything open, sub-agents first. Only for idle sessions."""
        for agent, turn in sorted(self._open.turns.items(), reverse=True):
            if text := self._open.drafts.get(agent):
                yield self._record_end(Replied(ReplyMessage((Text(text),), interrupted=True)), text), agent
            yield self._record_end(TurnEnded(turn, "aborted", error=CRASH_MESSAGE), turn), agent
        for agent in self._open.agents:
            yield self._record_end(AgentEnded(agent, "aborted"), agent), ""
        for spawn, (_, agent) in self._open.spawns.items():
            yield self._record_end(SpawnFinished(spawn, "stopped"), spawn), agent
        if self._looping:
            yield LoopChanged("idle", reason="Odin was killed or crashed."), ""
        for schedule in self._schedules.values():
            if lost := schedule.describe_loss(time.time()):
                yield self._record_end(Warned(lost, "info"), lost), ""

    def _record_end(self, event: AnyEvent, what: str) -> AnyEvent:
        self._ended.add((type(event).__name__, what))
        return event

    def has_ended(self, envelope: Envelope) -> bool:
        """True if `make_end_events` already made this event, which the session logs later."""
        event = envelope.event
        what = event.id if isinstance(event, TurnEnded | AgentEnded | SpawnFinished) else ""
        if isinstance(event, Replied) and event.message.interrupted:
            what = event.message.text
        if isinstance(event, Warned):
            what = event.text
        return (type(event).__name__, what) in self._ended
