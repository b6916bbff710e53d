"""What a session asks a person, on a terminal: one thing at a time, taken back when it no longer matters."""

import asyncio
from collections import deque
from typing import Protocol, TextIO

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import (
    Envelope,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    TurnEnded,
)
from odin.core.op import Answer, AnswerQuestions
from odin.ui.question.tty import Tty, in_background
from odin.ui.terminal import folded, visible

_BACKGROUND = "Odin runs in the background and cannot ask."

Asked = PermissionAsked | QuestionsAsked


class Shared(Protocol):
    """Who has the terminal when nobody is asked, and leaves it meanwhile."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Questions:
    """The only reader of the terminal while a turn runs."""

    def __init__(self, client: Client, keyboard: TextIO, err: TextIO | None, progress: Shared) -> None:
        self._client = client
        self._tty = Tty(keyboard, err)
        self._progress = progress
        self._asks: deque[tuple[Asked, str]] = deque()
        self._current = ""
        self._why = ""
        self._task: asyncio.Task[None] | None = None

    def see(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, PermissionAsked | QuestionsAsked):
            self._asks.append((event, envelope.agent))
            self._next()
        elif isinstance(event, PermissionAnswered | QuestionsAnswered):
            self._drop(event.ask_id, _said(event))
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._asks.clear()
            self._drop(self._current)

    async def close(self) -> None:
        """Let go of the terminal. Whoever reads it next must find it free, so this waits until it is."""
        self._asks.clear()
        task = self._task
        self._drop(self._current)
        if task is not None:
            await asyncio.wait([task], timeout=3.0)

    def _drop(self, ask_id: str, why: str = "") -> None:
        self._asks = deque(item for item in self._asks if item[0].ask_id != ask_id)
        if ask_id and ask_id == self._current and self._task is not None:
            self._current, self._why = "", why
            self._task.cancel()

    def _next(self) -> None:
        if self._task is None and self._asks:
            ask, agent = self._asks.popleft()
            self._current, self._why = ask.ask_id, ""
            self._task = asyncio.get_running_loop().create_task(self._ask(ask, agent))
            self._task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._task, self._current = None, ""
        if not task.cancelled():
            task.result()
        self._next()

    async def _ask(self, ask: Asked, agent: str) -> None:
        """Until the session takes an answer: one it refuses, such as a rule that cannot be read, is asked for again."""
        self._progress.hold()
        try:
            while not await self._settled(ask, agent):
                pass
        except asyncio.CancelledError:
            self._tty.say(f"\n{self._why}\n" if self._why else "\n")
            raise
        finally:
            self._progress.release()

    async def _settled(self, ask: Asked, agent: str) -> bool:
        try:
            answer = await self._answer(ask, agent)
        except OSError:
            answer = _unasked(ask, "The question could not be asked on this terminal.")
        self._current = ""
        try:
            await self._client.submit(answer)
        except OdinError as error:
            self._current = ask.ask_id
            self._tty.say(f"{folded(visible(error.sentence()), self._tty.columns())}\n")
            return False
        return True

    async def _answer(self, ask: Asked, agent: str) -> Answer | AnswerQuestions:
        if in_background(self._tty.fd):
            return _unasked(ask, _BACKGROUND)
        if isinstance(ask, QuestionsAsked):
            from odin.ui.question.choosing import choose

            return await choose(self._tty, ask)
        from odin.ui.question.consent import Consent

        return await Consent(self._tty, ask, agent).answer()


def _said(event: PermissionAnswered | QuestionsAnswered) -> str:
    if isinstance(event, PermissionAnswered):
        from odin.ui.question.permission import taken_back

        return taken_back(event)
    return "This was answered elsewhere."


def _unasked(ask: Asked, why: str) -> Answer | AnswerQuestions:
    if isinstance(ask, QuestionsAsked):
        return AnswerQuestions(ask.ask_id, cancelled=True, by=why)
    return Answer(ask.ask_id, allow=False, reason=why, by="nobody")
