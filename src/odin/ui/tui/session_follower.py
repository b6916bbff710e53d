"""Who is told what happens in the session: the panels, the notifier, the dialogs.

What a run that was killed left open in its log: shown as ended, because it is, also before the log says so.

A session writes the endings down only when something is said in it again, so that looking at one leaves no trace.

Follows the session that is shown, until another one is shown or nothing more comes from it.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
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
    Warned,
)
from odin.core.time_slice import TimeSlice
from odin.ui.tui.panels.facts import ACTIVE_LOOP_STATES

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


class SessionObserver(Protocol):
    """One that shows something of the session."""

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        """Another session is shown from now on; whatever was known of the one before is over."""
        ...

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        """One event of any agent. `live` is false for what happened before this app looked."""
        ...

    def draw_frame(self) -> None:
        """Draw what has changed; called some thirty times a second while things happen, never when nothing does."""
        ...


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


SESSION_ENDED = "The session has ended elsewhere: nothing more comes from it."


class SessionFollower:
    """One session at a time: of the one before, not even an event that was on its way is seen any more."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._last_seq = -1

    @property
    def task(self) -> asyncio.Task[None] | None:
        return self._task

    def start(self, client: Client, last_past_seq: int, *, is_working: bool = True) -> None:
        """From its first event on; those up to `past` happened before. `working` is what the session says of now."""
        self.stop()
        self._last_seq = -1
        self._app.is_catching_up = last_past_seq >= 0
        self._task = asyncio.create_task(self._follow(client, last_past_seq, is_working))
        self._task.add_done_callback(self._handle_done)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, client: Client, past: int, working: bool) -> None:
        breath, why, left = TimeSlice(), SESSION_ENDED, DanglingWork()
        try:
            async for envelope in client.stream_events(after=-1):
                self._last_seq = envelope.seq
                self._app.is_catching_up = envelope.seq < past
                live = envelope.seq > past or not envelope.event.durable
                if live and left.has_ended(envelope):
                    continue
                self._app.handle_session_event(envelope, live=live)
                if not live and not working:
                    self._end_dangling(envelope, past, left)
                await breath.maybe_yield()
        except OdinError as error:
            why = error.describe()
        if self._app.sessions.client is client:
            self._report_loss(why)

    def _end_dangling(self, envelope: Envelope, past: int, left: DanglingWork) -> None:
        left.apply(envelope)
        if envelope.seq == past:
            for event, agent in left.make_end_events():
                ending = Envelope(envelope.seq, envelope.ts, envelope.session, event, agent)
                self._app.handle_session_event(ending, live=False)

    def _report_loss(self, why: str) -> None:
        """Nobody goes on as if the session were still there; what was said can still be read, copied and sent again."""
        app = self._app
        app.is_catching_up = False
        session = app.info.session if app.info is not None else ""
        leave = app.keys.label_of("leave")
        hint = f"What is on the screen stays. {leave} twice leaves; `odin --resume {session}` goes on."
        event = TurnEnded("", "error", error=why, hint=hint) if app.executing else Warned(f"{why} {hint}", "error")
        app.handle_session_event(Envelope(self._last_seq, app.clock(), session, event), live=True)

    def _handle_done(self, task: asyncio.Task[None]) -> None:
        """Whoever cannot see what happens must not look as if nothing did."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._app.fail(error)
