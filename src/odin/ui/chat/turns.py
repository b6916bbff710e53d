"""What the turns of a conversation show: whose turn it is, and then everything that happens in it."""

import sys
from collections.abc import AsyncIterator, Callable

from odin.core.client import Client
from odin.core.event import Envelope, TurnStarted
from odin.core.op import Prompt
from odin.ui.chat.answer import Answer
from odin.ui.chat.keyboard import Keyboard
from odin.ui.print import run_text
from odin.ui.terminal import say, shorten, size_of, visible


class Turns:
    """`on_screen` is the prompt that stands there as it was typed; `fresh` until the first turn of a session is over.

    `beside` is told what happens meanwhile and is no part of the turn; `after` minds the signals when it is over.
    """

    def __init__(self, keyboard: Keyboard, beside: Callable[[Envelope], None], after: Callable[[], None]) -> None:
        self.on_screen = ""
        self.fresh = True
        self._keyboard = keyboard
        self._answer = Answer(sys.stdout, keyboard)
        self._beside = beside
        self._after = after

    async def show(
        self, client: Client, envelope: Envelope, started: TurnStarted, events: AsyncIterator[Envelope]
    ) -> int:
        """Until the turn ends; the code with which a program would end that ran nothing else."""
        if started.text and started.id != self.on_screen:
            self.tell(f"{started.mode.removesuffix('_mode')}> ", started.shown or started.text)
        code = await run_text(
            client,
            Prompt(started.id, started.text, started.mode),
            out=sys.stdout,
            err=sys.stderr,
            tty_in=sys.stdin,
            first=self.fresh,
            begun=_with(envelope, events),
            keyboard=self._keyboard,
            answer=self._answer,
            watch=self._beside,
            after=self._after,
        )
        self.fresh = False
        return code

    def tell(self, before: str, prompt: str) -> None:
        """A prompt in a line of its own."""
        with self._keyboard.aside():
            say(sys.stderr, shorten(f"{before}{visible(' '.join(prompt.split()))}", size_of(sys.stderr)[0] - 1))


async def _with(first: Envelope, events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
    yield first
    async for envelope in events:
        yield envelope
