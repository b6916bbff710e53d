"""Asks the permission requests, questions and plans of a turn on a terminal, one at a time."""

import asyncio
from collections import deque
from typing import Protocol, TextIO

from odin.core.call_events import AnswerEvent, AskEvent, PermissionAnswered, PlanAsked, QuestionsAsked
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import AgentEnded, Envelope, TurnEnded
from odin.core.op import AnswerPermission, AnswerPlan, AnswerQuestions
from odin.ui.terminal import Tty, escape_hidden, is_in_background, wrap_words

_BACKGROUND = "Odin runs in the background and cannot ask."


class TerminalHolder(Protocol):
    """The usual user of the terminal, which yields it while a dialog is open."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class TerminalDialogs:
    """Queue of dialogs. One that is answered elsewhere is closed."""

    def __init__(self, client: Client, keyboard: TextIO, err: TextIO | None, progress: TerminalHolder) -> None:
        self._client = client
        self._tty = Tty(keyboard, err)
        self._progress = progress
        self._waiting: deque[tuple[AskEvent, str]] = deque()
        self._current = ""
        self._asking_agent = ""
        self._cancel_reason = ""
        self._task: asyncio.Task[None] | None = None

    def handle_event(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, AskEvent):
            self._waiting.append((event, envelope.agent))
            self._start_next()
        elif isinstance(event, AnswerEvent):
            self._cancel(event.ask_id, _describe_answer(event))
        elif isinstance(event, TurnEnded):
            self._drop_all(envelope.agent)
        elif isinstance(event, AgentEnded):
            self._drop_all(event.id)

    def _drop_all(self, agent: str) -> None:
        """Drop the requests of an agent that has ended."""
        self._waiting = deque(item for item in self._waiting if item[1] != agent)
        if self._asking_agent == agent:
            self._cancel(self._current)

    async def end_turn(self) -> None:
        """Close the dialogs of the main agent and wait until they have left the terminal. Sub-agents still ask."""
        task = self._task if not self._asking_agent else None
        self._drop_all("")
        if task is not None:
            await asyncio.wait([task], timeout=3.0)

    async def close(self) -> None:
        """Close all dialogs and wait until the terminal is free for its next reader."""
        self._waiting.clear()
        task = self._task
        self._cancel(self._current)
        if task is not None:
            await asyncio.wait([task], timeout=3.0)

    def _cancel(self, ask_id: str, why: str = "") -> None:
        self._waiting = deque(item for item in self._waiting if item[0].ask_id != ask_id)
        if ask_id and ask_id == self._current and self._task is not None:
            self._current, self._cancel_reason = "", why
            self._task.cancel()

    def _start_next(self) -> None:
        if self._task is None and self._waiting:
            ask, agent = self._waiting.popleft()
            self._current, self._asking_agent, self._cancel_reason = ask.ask_id, agent, ""
            self._task = asyncio.get_running_loop().create_task(self._ask(ask, agent))
            self._task.add_done_callback(self._finish_current)

    def _finish_current(self, task: "asyncio.Task[None]") -> None:
        self._task, self._current = None, ""
        if not task.cancelled():
            task.result()
        self._start_next()

    async def _ask(self, ask: AskEvent, agent: str) -> None:
        """Ask until the session accepts the answer. It may refuse one, such as a rule with a syntax error."""
        self._progress.hold()
        try:
            while not await self._try_to_answer(ask, agent):
                pass
        except asyncio.CancelledError:
            self._tty.write(f"\n{self._cancel_reason}\n" if self._cancel_reason else "\n")
            raise
        finally:
            self._progress.release()

    async def _try_to_answer(self, ask: AskEvent, agent: str) -> bool:
        try:
            answer = await self._answer(ask, agent)
        except OSError:
            answer = _make_refusal(ask, "The terminal could not be used to ask.")
        self._current = ""
        try:
            await self._client.submit(answer)
        except OdinError as error:
            self._current = ask.ask_id
            self._tty.write(f"{wrap_words(escape_hidden(error.describe()), self._tty.get_columns())}\n")
            return False
        return True

    async def _answer(self, ask: AskEvent, agent: str) -> AnswerPermission | AnswerQuestions | AnswerPlan:
        if is_in_background(self._tty.fd):
            return _make_refusal(ask, _BACKGROUND)
        if isinstance(ask, QuestionsAsked):
            from odin.ui.plain.dialogs import ask_questions

            return await ask_questions(self._tty, ask)
        if isinstance(ask, PlanAsked):
            from odin.ui.plain.dialogs import ask_plan

            return await ask_plan(self._tty, ask)
        from odin.ui.plain.dialogs import PermissionFlow

        return await PermissionFlow(self._tty, ask, agent, self._client).ask()


def _describe_answer(event: AnswerEvent) -> str:
    if isinstance(event, PermissionAnswered):
        from odin.ui.permission_text import describe_answer_elsewhere

        return describe_answer_elsewhere(event)
    return "This was answered elsewhere."


def _make_refusal(ask: AskEvent, why: str) -> AnswerPermission | AnswerQuestions | AnswerPlan:
    if isinstance(ask, PlanAsked):
        return AnswerPlan(ask.ask_id, "keep_planning", by="nobody")
    if isinstance(ask, QuestionsAsked):
        return AnswerQuestions(ask.ask_id, cancelled=True, by=why)
    return AnswerPermission(ask.ask_id, allow=False, reason=why, by="nobody")
