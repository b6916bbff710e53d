"""Queue of dialogs for interactions: shows one at a time and withdraws those answered elsewhere."""

import os
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.core.call_events import AnswerEvent, AskEvent, PermissionAnswered
from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
from odin.core.event import AgentEnded, Envelope, TurnEnded, TurnStarted
from odin.core.event_values import Mode
from odin.core.interaction import Interaction, make_interaction
from odin.core.op import Answer, Prompt
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.timers import call_after

if TYPE_CHECKING:
    from odin.ui.tui.dialogs.interaction import InteractionDialog

_STRAY_KEY_S = 1.0
"""A key pressed this soon after a dialog closed was meant for that dialog."""


class _PendingAsk(Struct):
    interaction: Interaction
    since: float


class DialogQueue:
    """Session observer that opens the dialogs."""

    def __init__(self, app: SessionApp) -> None:
        self._app = app
        self._client: Client | None = None
        self._info: SessionInfo | None = None
        self._pending: deque[_PendingAsk] = deque()
        self._dialog: InteractionDialog | None = None
        self._closed_at = float("-inf")
        self._turn_mode: Mode | None = None
        self._asking_agent = ""
        self._is_scheduled = False
        self._is_announced = False

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._client, self._info, self._turn_mode = client, info, None
        self._pending.clear()
        self._close("")

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event, agent = envelope.event, envelope.agent
        if isinstance(event, AskEvent):
            self._pending.append(_PendingAsk(make_interaction(event, agent), self._app.timing.clock()))
        elif isinstance(event, AnswerEvent):
            self._pending = deque(ask for ask in self._pending if ask.interaction.id != event.ask_id)
            if self._dialog is not None and self._dialog.ask_id == event.ask_id:
                self._close("" if self._dialog.is_answered else _explain_withdrawal(event))
        elif isinstance(event, TurnStarted) and not agent:
            self._turn_mode = event.mode
        elif isinstance(event, TurnEnded):
            self._drop_all(agent)
        elif isinstance(event, AgentEnded):
            self._drop_all(event.id)
        else:
            return
        if self._dialog is not None:
            self._dialog.set_waiting_count(len(self._pending))

    def draw_frame(self) -> None:
        self._open_next()

    def _drop_all(self, agent: str) -> None:
        """Drop the requests of an agent that has ended."""
        self._pending = deque(ask for ask in self._pending if ask.interaction.agent != agent)
        if self._dialog is not None and self._asking_agent == agent:
            self._close("")

    def _close(self, why: str) -> None:
        dialog, self._dialog = self._dialog, None
        if dialog is None:
            return
        self._closed_at = self._app.timing.clock()
        dialog.withdraw()
        if why:
            self._app.show_toast(why)

    def _open_next(self) -> None:
        """Open the next dialog, or try again shortly if the user is typing or in another dialog."""
        self._is_scheduled = False
        if self._dialog is not None or not self._pending or self._app.is_catching_up:
            return
        if self._is_user_busy():
            if not self._is_scheduled:
                self._is_scheduled = True
                call_after(self._app, self._app.timing.retry_s, self._open_next)
            return
        self._is_announced = False
        self._show(self._pending.popleft())

    def _is_user_busy(self) -> bool:
        if len(self._app.screen_stack) > 1:
            if not self._is_announced:
                self._is_announced = True
                self._app.show_toast("Odin needs an answer. Close this to see the request.")
            return True
        timing = self._app.timing
        return timing.clock() - self._app.typed_at < timing.typing_s

    def _show(self, ask: _PendingAsk) -> None:
        interaction, info = ask.interaction, self._info
        self._asking_agent = interaction.agent
        is_permission = interaction.kind == "permission"
        patience = 0.0 if info is None else info.confirm_timeout_s if is_permission else info.question_timeout_s
        deadline = ask.since + patience if patience else 0.0
        from odin.ui.tui.dialogs.interaction import InteractionDialog

        self._dialog = InteractionDialog(interaction, self._submit_answer)
        stray_until = self._closed_at + _STRAY_KEY_S
        self._dialog.expect(waiting=len(self._pending), deadline=deadline, stray_until=stray_until)
        self._app.push_screen(self._dialog, lambda _: self._open_next())

    async def _submit_answer(self, answer: Answer, note: str) -> str:
        """Submit the note before the answer, because the answer may trigger the next request of the turn at once."""
        if note:
            mode = self._turn_mode or self._app.mode
            error = await self._submit(Prompt(os.urandom(6).hex(), note, mode, delivery="merge"))
            if error:
                return error
        return await self._submit(answer)

    async def _submit(self, op: Answer | Prompt) -> str:
        """Submit and return the error message, or ""."""
        if self._client is None:
            return "The session is closed."
        if isinstance(op, Answer):
            self._app.own_answers.add(op.id)
        try:
            await self._client.submit(op)
        except OdinError as error:
            self._app.own_answers.discard(op.id)
            return error.describe()
        if isinstance(op, Answer) and self._dialog is not None and self._dialog.ask_id == op.id:
            self._dialog, self._closed_at = None, self._app.timing.clock()
        self._app.request_frame()
        return ""


def _explain_withdrawal(event: AnswerEvent) -> str:
    """Return why a dialog was withdrawn, or "" if that is obvious."""
    if event.by == "timeout":
        return "No answer in time: denied." if isinstance(event, PermissionAnswered) else "No answer in time."
    from odin.ui.permission_text import describe_answer_elsewhere

    return describe_answer_elsewhere(event)
