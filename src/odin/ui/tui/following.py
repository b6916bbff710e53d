"""Follows the session that is shown, until another one is shown or nothing more comes from it."""

import asyncio
from typing import TYPE_CHECKING

from odin.core.breath import Breath
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import Envelope, TurnEnded, Warned
from odin.ui.tui.leftopen import LeftOpen

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

OVER = "The session has ended elsewhere: nothing more comes from it."


class Following:
    """One session at a time: of the one before, not even an event that was on its way is seen any more."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._seq = -1

    @property
    def task(self) -> asyncio.Task[None] | None:
        return self._task

    def begin(self, client: Client, past: int, *, working: bool = True) -> None:
        """From its first event on; those up to `past` happened before. `working` is what the session says of now."""
        self.stop()
        self._seq = -1
        self._app.catching_up = past >= 0
        self._task = asyncio.create_task(self._follow(client, past, working))
        self._task.add_done_callback(self._done)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, client: Client, past: int, working: bool) -> None:
        breath, why, left = Breath(), OVER, LeftOpen()
        try:
            async for envelope in client.events(after=-1):
                self._seq = envelope.seq
                self._app.catching_up = envelope.seq < past
                live = envelope.seq > past or not envelope.event.durable
                if live and left.ended_already(envelope):
                    continue
                self._app.see(envelope, live=live)
                if not live and not working:
                    self._end_what_is_over(envelope, past, left)
                await breath.take()
        except OdinError as error:
            why = error.sentence()
        if self._app.sessions.client is client:
            self._lost(why)

    def _end_what_is_over(self, envelope: Envelope, past: int, left: LeftOpen) -> None:
        left.see(envelope)
        if envelope.seq == past:
            for event, agent in left.endings():
                ending = Envelope(envelope.seq, envelope.ts, envelope.session, event, agent)
                self._app.see(ending, live=False)

    def _lost(self, why: str) -> None:
        """Nobody goes on as if the session were still there; what was said can still be read, copied and sent again."""
        app = self._app
        app.catching_up = False
        session = app.info.session if app.info is not None else ""
        hint = (
            f"What is on the screen stays. {app.keys.shown('leave')} twice leaves; `odin --resume {session}` goes on."
        )
        event = TurnEnded("", "error", error=why, hint=hint) if app.executing else Warned(f"{why} {hint}", "error")
        app.see(Envelope(self._seq, app.clock(), session, event), live=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        """Whoever cannot see what happens must not look as if nothing did."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._app.fail(error)
