"""What a session asks a person: one dialog at a time, taken back when it no longer matters."""

import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError
from odin.core.event import (
    Envelope,
    Mode,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    TurnEnded,
    TurnStarted,
)
from odin.core.op import Answer, AnswerQuestions, Prompt

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp
    from odin.ui.tui.dialogs.permission import PermissionDialog
    from odin.ui.tui.dialogs.questions import QuestionsDialog

TYPING_S = 0.7
"""Whoever wrote a letter of a prompt so recently is not interrupted by a dialog that takes the keyboard."""

_AGAIN_S = 0.1
_AFTER_ANOTHER_S = 1.0
"""A key that comes so soon after a dialog closed was meant for that one."""


class _Ask(Struct):
    event: PermissionAsked | QuestionsAsked
    agent: str
    since: float


class Asking:
    """A watcher. `clock` is the one that never jumps."""

    def __init__(self, app: "OdinApp", clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._client: Client | None = None
        self._info: SessionInfo | None = None
        self._asks: deque[_Ask] = deque()
        self._open: PermissionDialog | QuestionsDialog | None = None
        self._closed = float("-inf")
        self._mode: Mode | None = None
        self._scheduled = False
        self._told = False

    # --- what happens ---

    def enter(self, client: Client, info: SessionInfo) -> None:
        self._client, self._info, self._mode = client, info, None
        self._asks.clear()
        self._close("")

    def see(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        if isinstance(event, PermissionAsked | QuestionsAsked):
            self._asks.append(_Ask(event, envelope.agent, self._clock()))
        elif isinstance(event, PermissionAnswered | QuestionsAnswered):
            self._drop(event)
        elif isinstance(event, TurnStarted) and not envelope.agent:
            self._mode = event.mode
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._asks.clear()
            self._close("")
        else:
            return
        if self._open is not None:
            self._open.wait_behind(len(self._asks))

    def frame(self) -> None:
        self._next()

    def _drop(self, event: PermissionAnswered | QuestionsAnswered) -> None:
        self._asks = deque(ask for ask in self._asks if ask.event.ask_id != event.ask_id)
        if self._open is not None and self._open.ask_id == event.ask_id:
            self._close("" if self._open.given else _said(event))

    def _close(self, why: str) -> None:
        dialog, self._open = self._open, None
        if dialog is None:
            return
        self._closed = self._clock()
        dialog.take_away()
        if why:
            self._app.tell(why)

    # --- opening ---

    def _next(self) -> None:
        """Open the next question, unless the person is at something else; then look again in a moment."""
        self._scheduled = False
        if self._open is not None or not self._asks or self._app.catching_up:
            return
        if self._occupied():
            self._later()
            return
        self._told = False
        self._show(self._asks.popleft())

    def _later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._app.set_timer(_AGAIN_S, self._next)

    def _occupied(self) -> bool:
        if len(self._app.screen_stack) > 1:
            if not self._told:
                self._told = True
                self._app.tell("Odin asks you something as soon as this is closed.")
            return True
        return bool(self._app.composer.text) and self._clock() - self._app.last_key < TYPING_S

    def _show(self, ask: _Ask) -> None:
        event, info = ask.event, self._info
        permission = isinstance(event, PermissionAsked)
        patience = 0.0 if info is None else info.confirm_timeout_s if permission else info.question_timeout_s
        deadline = ask.since + patience if patience else 0.0
        keep = self._clock() - self._closed > _AFTER_ANOTHER_S
        waiting = len(self._asks)
        if isinstance(event, PermissionAsked):
            from odin.ui.tui.dialogs.permission import PermissionDialog

            self._open = PermissionDialog(event, ask.agent, self._give, waiting=waiting, deadline=deadline, keep=keep)
        else:
            from odin.ui.tui.dialogs.questions import QuestionsDialog

            self._open = QuestionsDialog(
                event, ask.agent, self._give_answers, waiting=waiting, deadline=deadline, keep=keep
            )
        self._app.push_screen(self._open, lambda _: self._next())

    # --- answering ---

    async def _give(self, answer: Answer, note: str) -> str:
        """The note goes first: it waits for the next request of the turn, which the answer may bring at once."""
        if note:
            mode = self._mode or self._app.mode
            refused = await self._submit(Prompt(os.urandom(6).hex(), note, mode, lane="merge"))
            if refused:
                return refused
        return await self._submit(answer)

    async def _give_answers(self, answer: AnswerQuestions) -> str:
        return await self._submit(answer)

    async def _submit(self, op: Answer | AnswerQuestions | Prompt) -> str:
        if self._client is None:
            return "The session is closed."
        try:
            await self._client.submit(op)
        except OdinError as error:
            return error.sentence()
        if not isinstance(op, Prompt) and self._open is not None and self._open.ask_id == op.ask_id:
            self._open, self._closed = None, self._clock()
        self._app.wake()
        return ""


def _said(event: PermissionAnswered | QuestionsAnswered) -> str:
    """Why a question that was on the screen is gone, where that is not plain to see."""
    if event.by == "timeout":
        return "No answer came in time: it is a no."
    if event.by in ("interrupt", "shutdown", "steer"):
        return ""
    from odin.ui.question.permission import taken_back

    return taken_back(event) if isinstance(event, PermissionAnswered) else "This was answered elsewhere."
