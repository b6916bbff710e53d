"""Shows the interactions of a session on a terminal, one at a time."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from odin.core.call_events import AnswerEvent, AskEvent
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import AgentEnded, Envelope, TurnEnded
from odin.core.interaction import Interaction, make_interaction
from odin.core.op import Answer
from odin.ui.plain.tty import Tty
from odin.ui.terminal import escape_hidden, is_in_background, wrap_words

_BACKGROUND = "Odin runs in the background and cannot ask."


class TerminalHolder(Protocol):
    """The usual user of the terminal, which yields it while a dialog is open."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class TerminalDialogs:
    """Queue of dialogs. One that is answered elsewhere is closed."""

    def __init__(self, client: Client, tty: Tty, holder: TerminalHolder) -> None:
        self._client = client
        self._tty = tty
        self._holder = holder
        self._waiting: deque[Interaction] = deque()
        self._shown: Interaction | None = None
        self._is_open = False
        """False once the answer to `_shown` is on its way."""
        self._cancel_reason = ""
        self.own_answers: set[str] = set()
        """The requests that were answered here, and not in another front end."""
        self._task: asyncio.Task[None] | None = None

    def handle_event(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, AskEvent):
            self._waiting.append(make_interaction(event, envelope.agent))
            self._start_next()
        elif isinstance(event, AnswerEvent):
            from odin.ui.permission_text import describe_answer_elsewhere

            self._drop(lambda ask: ask.id == event.ask_id, describe_answer_elsewhere(event))
        elif isinstance(event, TurnEnded):
            self._drop(lambda ask: ask.agent == envelope.agent)
        elif isinstance(event, AgentEnded):
            self._drop(lambda ask: ask.agent == event.id)

    async def end(self, *, main_only: bool = False) -> None:
        """Close all dialogs, or those of the main agent, and wait until they have left the terminal."""
        task = self._task if self._shown is not None and not (main_only and self._shown.agent) else None
        self._drop(lambda ask: not (main_only and ask.agent))
        if task is not None:
            await asyncio.wait([task], timeout=3.0)

    def _drop(self, is_over: Callable[[Interaction], bool], why: str = "") -> None:
        self._waiting = deque(ask for ask in self._waiting if not is_over(ask))
        if self._task is not None and self._is_open and self._shown is not None and is_over(self._shown):
            self._is_open, self._cancel_reason = False, why
            self._task.cancel()

    def _start_next(self) -> None:
        if self._task is None and self._waiting:
            self._shown, self._is_open, self._cancel_reason = self._waiting.popleft(), True, ""
            self._task = asyncio.get_running_loop().create_task(self._ask(self._shown))
            self._task.add_done_callback(self._finish)

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._task = self._shown = None
        if not task.cancelled():
            task.result()
        self._start_next()

    async def _ask(self, ask: Interaction) -> None:
        """Ask until the session accepts the answer. It may refuse one, such as a rule with a syntax error."""
        from odin.ui.permission_text import format_headline
        from odin.ui.plain.dialogs import ask_user

        if not is_in_background(self._tty.fd):
            await self._tty.wait_for_line(f"{'' if ask.agent else 'Odin asks: '}{format_headline(ask)}")
        self._holder.hold()
        try:
            while True:
                try:
                    if is_in_background(self._tty.fd):
                        answer = Answer(ask.id, ask.default, _BACKGROUND, by="nobody")
                    else:
                        answer = await ask_user(self._tty, ask, self._client)
                except OSError:
                    answer = Answer(ask.id, ask.default, "The terminal could not be used to ask.", by="nobody")
                self._is_open = False
                self.own_answers.add(ask.id)
                try:
                    await self._client.submit(answer)
                except OdinError as error:
                    self._is_open = True
                    self.own_answers.discard(ask.id)
                    self._tty.write(f"{wrap_words(escape_hidden(error.describe()), self._tty.get_columns())}\n")
                else:
                    return
        except asyncio.CancelledError:
            self._tty.write(f"\n{self._cancel_reason}\n" if self._cancel_reason else "\n")
            raise
        finally:
            self._holder.release()
