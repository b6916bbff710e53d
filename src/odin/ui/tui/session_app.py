"""The app without its widgets: what each of them may ask of it.

A widget or dialog sees the app as a `SessionApp`, which knows no widget. `OdinApp` puts them together.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from textual.app import App
from textual.driver import Driver

from odin.core.client import Client, SessionInfo, Sessions
from odin.core.errors import OdinError
from odin.core.event import Envelope, TurnEnded, TurnStarted, Warned
from odin.core.event_values import Delivery, Mode
from odin.core.message import Attachment
from odin.core.op import Op, Prompt
from odin.core.tui_settings import TuiSettings
from odin.ui.session_facts import SessionFacts
from odin.ui.session_follower import SessionFollower, SessionObserver
from odin.ui.slash_commands.reports import ErrorLog
from odin.ui.transcript.model import TranscriptModels
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.palette import DARK, LIGHT, choose_theme_name, make_palette
from odin.ui.tui.timers import FrameTimer
from odin.ui.tui.timing import AppTiming
from odin.ui.tui.toasts import ToastLevel, Toasts


class SessionApp(App[int], inherit_bindings=False):
    """Follows the open session and passes its events to the observers (panels, dialogs, notifier).

    `agent` is the agent whose transcript is shown, "" the main agent. `typed_ahead` are lines typed before the start.
    `typed_at` is when a key last went to the composer, `key_pause` the seconds between the last two keys.
    """

    def __init__(
        self,
        settings: TuiSettings,
        mode: Mode | None,
        clock: Callable[[], float],
        timing: AppTiming,
        driver_class: type[Driver] | None,
    ) -> None:
        super().__init__(driver_class=driver_class)
        self.settings = settings
        self.clock = clock
        self.timing = timing
        self.keys = KeyTable(settings.keys)
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = choose_theme_name(settings.theme)
        self.palette = make_palette(self.current_theme)
        self.failure: BaseException | None = None
        self.ending = asyncio.Event()
        self.last_key_at = self.typed_at = float("-inf")
        self.key_pause = 0.0
        self.typed_ahead: list[str] = []
        self.info: SessionInfo | None = None
        self.facts = SessionFacts()
        self.transcripts = TranscriptModels()
        self.own_answers: set[str] = set()
        """The requests that were answered in this app, and not in another front end."""
        self.agent = ""
        self.executing = False
        self.is_mode_chosen = mode is not None
        self.error_log = ErrorLog()
        self.observers: list[SessionObserver] = []
        self.follower = SessionFollower(
            self.handle_session_event, self._handle_session_end, self.fail, lambda: self._frame_timer.draw_frame()
        )
        self._mode: Mode = mode or "edit_mode"
        self._sessions: Sessions | None = None
        self._toasts = Toasts(self)
        self._frame_timer = FrameTimer(self, self.draw_frame, timing.frame_s)

    @property
    def recipient(self) -> str:
        """The agent that prompts go to: the shown one, or the main agent if the task of the shown one has ended."""
        return self.agent if self.facts.agents.is_open(self.agent) else ""

    @property
    def mode(self) -> Mode:
        """The mode of the next prompt."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        self.request_frame()

    @property
    def sessions(self) -> Sessions:
        """The sessions of the project. Raise OdinError until the first one is open."""
        if self._sessions is None:
            raise OdinError("The session is still opening.")
        return self._sessions

    @property
    def client(self) -> Client:
        return self.sessions.client

    @property
    def is_catching_up(self) -> bool:
        """True while events from before the app attached to the session are applied."""
        return self.follower.is_catching_up

    # --- the session ---

    async def show_session(self) -> None:
        """Show the open session from its first event."""
        client = self.client
        self.info = await client.get_info()
        if not self.is_mode_chosen:
            self.mode = self.info.mode
        self.is_mode_chosen = False
        self.transcripts = TranscriptModels()
        self.executing = False
        for observer in self.observers:
            observer.enter_session(client, self.info)
        self.follower.stop()
        shot = await client.snapshot()
        self.follower.start(client, shot.seq, is_working=shot.is_working)

    def handle_session_event(self, envelope: Envelope, live: bool) -> None:
        """Apply an event of the session. `live` is false for events from before the app attached to it."""
        event = envelope.event
        self.transcripts.apply(envelope)
        if not envelope.agent and isinstance(event, TurnStarted | TurnEnded):
            self.executing = isinstance(event, TurnStarted)
        for observer in self.observers:
            observer.handle_event(envelope, live)
        self.request_frame()

    def _handle_session_end(self, client: Client, reason: str, last_seq: int) -> None:
        """Say why no more events come, unless another session is shown by now."""
        if self.client is not client:
            return
        self.follower.is_catching_up = False
        session, leave = self.info.session if self.info is not None else "", self.keys.get_label("leave")
        hint = f"The transcript stays readable. Press {leave} twice to leave; `odin --resume {session}` continues."
        ended = TurnEnded("", "error", error=reason, hint=hint)
        event = ended if self.executing else Warned(f"{reason} {hint}", "error")
        self.handle_session_event(Envelope(last_seq, self.clock(), session, event), True)

    def fail(self, error: BaseException | None) -> None:
        """End the app because of a bug. The caller reports the first failure."""
        self.failure = self.failure or error or RuntimeError("unknown error")
        self.ending.set()
        self._close_messages_no_wait()

    def request_frame(self) -> None:
        """Draw the changes with the next frame."""
        self._frame_timer.request_frame()

    def draw_frame(self) -> None:
        for observer in self.observers:
            observer.draw_frame()

    # --- operations ---

    async def submit(self, op: Op) -> bool:
        """Submit an operation; show an error and return False if it is refused."""
        try:
            return await self.client.submit(op)
        except OdinError as error:
            self.show_toast(error.describe(), "error")
            return False

    async def send_prompt(
        self, text: str, delivery: Delivery | None = None, attached: Sequence[Attachment] = ()
    ) -> bool:
        return await self.submit(
            Prompt(os.urandom(6).hex(), text, self.mode, delivery=delivery, attachments=tuple(attached))
        )

    def show_toast(self, text: str, level: ToastLevel = "info") -> None:
        """Show a notice that disappears by itself. Errors are also added to the error log."""
        if level == "error":
            self.error_log.add(self.clock(), "refused", text)
        self._toasts.show(text, level)

    def run_in_background(self, work: Coroutine[Any, Any, object]) -> None:
        """Run in a worker; show an error if it fails."""
        self.run_worker(self._run_and_report(work), exit_on_error=True)

    async def _run_and_report(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except OdinError as error:
            self.show_toast(error.describe(), "error")
