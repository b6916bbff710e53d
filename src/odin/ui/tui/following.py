"""Follows the session that is shown, until another one is shown or nothing more comes from it."""

import asyncio
from typing import TYPE_CHECKING

from odin.core.breath import TimeSlice
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import Envelope, TurnEnded, Warned
from odin.ui.tui.leftopen import DanglingWork

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

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
        hint = f"What is on the screen stays. {app.keys.label_of('leave')} twice leaves; `odin --resume {session}` goes on."
        event = TurnEnded("", "error", error=why, hint=hint) if app.executing else Warned(f"{why} {hint}", "error")
        app.handle_session_event(Envelope(self._last_seq, app.clock(), session, event), live=True)

    def _handle_done(self, task: asyncio.Task[None]) -> None:
        """Whoever cannot see what happens must not look as if nothing did."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._app.fail(error)
