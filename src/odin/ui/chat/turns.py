"""What the turns of a conversation show: whose turn it is, and then everything that happens in it."""

import sys
from collections.abc import AsyncIterator, Callable

from odin.core.client import Client
from odin.core.event import Envelope, TurnStarted
from odin.core.op import Prompt
from odin.ui.chat.answer import StreamedAnswer
from odin.ui.chat.keyboard import Keyboard
from odin.ui.print import run_text
from odin.ui.terminal import escape_hidden, shorten, size_of, write_line


class TurnView:
    """`on_screen` is the prompt that stands there as it was typed; `fresh` until the first turn of a session is over.

    `beside` is told what happens meanwhile and is no part of the turn; `after` minds the signals when it is over.
    """

    def __init__(self, keyboard: Keyboard, beside: Callable[[Envelope], None], after: Callable[[], None]) -> None:
        self.prompt_on_screen = ""
        self.is_first_turn = True
        self._keyboard = keyboard
        self._answer = StreamedAnswer(sys.stdout, keyboard)
        self._on_event = beside
        self._on_finish = after

    async def show(
        self, client: Client, envelope: Envelope, started: TurnStarted, events: AsyncIterator[Envelope]
    ) -> int:
        """Until the turn ends; the code with which a program would end that ran nothing else."""
        if started.text and started.id != self.prompt_on_screen:
            self.show_prompt(f"{started.mode.removesuffix('_mode')}> ", started.display_text or started.text)
        code = await run_text(
            client,
            Prompt(started.id, started.text, started.mode),
            out=sys.stdout,
            err=sys.stderr,
            tty_in=sys.stdin,
            first=self.is_first_turn,
            events=_prepend(envelope, events),
            keyboard=self._keyboard,
            answer=self._answer,
            on_event=self._on_event,
            on_finish=self._on_finish,
        )
        self.is_first_turn = False
        return code

    def show_prompt(self, before: str, prompt: str) -> None:
        """A prompt in a line of its own."""
        with self._keyboard.write_above():
            write_line(
                sys.stderr, shorten(f"{before}{escape_hidden(' '.join(prompt.split()))}", size_of(sys.stderr)[0] - 1)
            )


async def _prepend(first: Envelope, events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
    yield first
    async for envelope in events:
        yield envelope
