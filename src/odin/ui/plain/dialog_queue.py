"""Shows the interactions of a session on a terminal, one at a time."""

import asyncio
from collections import deque
from typing import Protocol, TextIO

from odin.core.call_events import AnswerEvent, AskEvent
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import AgentEnded, Envelope, TurnEnded
from odin.core.interaction import Interaction, make_interaction
from odin.core.op import Answer
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
        self._waiting: deque[Interaction] = deque()
        self._current = ""
        self._asking_agent = ""
        self._cancel_reason = ""
        self._task: asyncio.Task[None] | None = None

    def handle_event(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, AskEvent):
            self._waiting.append(make_interaction(event, envelope.agent))
            self._start_next()
        elif isinstance(event, AnswerEvent):
            from odin.ui.permission_text import describe_answer_elsewhere

            self._cancel(event.ask_id, describe_answer_elsewhere(event))
        elif isinstance(event, TurnEnded):
            self._drop_all(envelope.agent)
        elif isinstance(event, AgentEnded):
            self._drop_all(event.id)

    def _drop_all(self, agent: str) -> None:
        """Drop the requests of an agent that has ended."""
        self._waiting = deque(item for item in self._waiting if item.agent != agent)
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
        self._waiting = deque(item for item in self._waiting if item.id != ask_id)
        if ask_id and ask_id == self._current and self._task is not None:
            self._current, self._cancel_reason = "", why
            self._task.cancel()

    def _start_next(self) -> None:
        if self._task is None and self._waiting:
            ask = self._waiting.popleft()
            self._current, self._asking_agent, self._cancel_reason = ask.id, ask.agent, ""
            self._task = asyncio.get_running_loop().create_task(self._ask(ask))
            self._task.add_done_callback(self._finish_current)

    def _finish_current(self, task: "asyncio.Task[None]") -> None:
        self._task, self._current = None, ""
        if not task.cancelled():
            task.result()
        self._start_next()

    async def _ask(self, ask: Interaction) -> None:
        """Ask until the session accepts the answer. It may refuse one, such as a rule with a syntax error."""
        self._progress.hold()
        try:
            while not await self._try_to_answer(ask):
                pass
        except asyncio.CancelledError:
            self._tty.write(f"\n{self._cancel_reason}\n" if self._cancel_reason else "\n")
            raise
        finally:
            self._progress.release()

    async def _try_to_answer(self, ask: Interaction) -> bool:
        from odin.ui.plain.dialogs import ask_user

        try:
            if is_in_background(self._tty.fd):
                answer = Answer(ask.id, ask.default, _BACKGROUND, by="nobody")
            else:
                answer = await ask_user(self._tty, ask, self._client)
        except OSError:
            answer = Answer(ask.id, ask.default, "The terminal could not be used to ask.", by="nobody")
        self._current = ""
        try:
            await self._client.submit(answer)
        except OdinError as error:
            self._current = ask.id
            self._tty.write(f"{wrap_words(escape_hidden(error.describe()), self._tty.get_columns())}\n")
            return False
        return True
