"""Streams the events of the open session to the app, and ends the work that a killed run left open."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
from odin.core.event import Envelope
from odin.core.provider import TimeSlice
from odin.ui.dangling_work import DanglingWork


class SessionObserver(Protocol):
    """A part of the app that follows the session."""

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        """Another session is shown from now on: reset all state."""

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        """Handle one event of any agent; not `live` if it happened before the app attached."""

    def draw_frame(self) -> None:
        """Draw the changes; called up to 30 times a second while events arrive."""


SESSION_ENDED = "The session was closed elsewhere."


class SessionFollower:
    """Follows one session at a time; events of the previous one that are still in flight are dropped.

    `handle_event` gets an event and whether it is live. `handle_end` is called when the session sends no more events,
    with the reason and the number of the last one; `fail` with a bug; `handle_past` after the last event that is not
    live.
    """

    def __init__(
        self,
        handle_event: Callable[[Envelope, bool], None],
        handle_end: Callable[[Client, str, int], None],
        fail: Callable[[BaseException], None],
        handle_past: Callable[[], None] = lambda: None,
    ) -> None:
        self._handle_event = handle_event
        self._handle_past = handle_past
        self._handle_end = handle_end
        self._fail = fail
        self.task: asyncio.Task[None] | None = None
        self.is_catching_up = False

    def start(self, client: Client, last_past_seq: int, *, is_working: bool = True) -> None:
        """Follow from the first event on; events up to `last_past_seq` are not live. `is_working`: a turn runs now."""
        self.stop()
        self.is_catching_up = last_past_seq >= 0
        self.task = asyncio.create_task(self._follow(client, last_past_seq, is_working))
        self.task.add_done_callback(self._handle_done)

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _follow(self, client: Client, past: int, working: bool) -> None:
        time_slice, reason, dangling, last = TimeSlice(), SESSION_ENDED, DanglingWork(), -1
        try:
            async for envelope in client.stream_events(after=-1):
                last = envelope.seq
                was_catching_up, self.is_catching_up = self.is_catching_up, envelope.seq < past
                live = envelope.seq > past or not envelope.event.durable
                if live and dangling.has_ended(envelope):
                    continue
                self._handle_event(envelope, live)
                if not live and not working:
                    dangling.apply(envelope)
                    if envelope.seq == past:
                        for event, agent in dangling.make_end_events():
                            ending = Envelope(envelope.seq, envelope.ts, envelope.session, event, agent)
                            self._handle_event(ending, False)
                if was_catching_up and not self.is_catching_up:
                    self._handle_past()
                await time_slice.maybe_yield()
        except OdinError as error:
            reason = error.describe()
        self._handle_end(client, reason, last)

    def _handle_done(self, task: asyncio.Task[None]) -> None:
        """Fail if following failed: a frozen screen would look idle."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
