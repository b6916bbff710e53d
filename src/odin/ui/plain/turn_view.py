"""Shows the turns of plain mode, one after the other."""

import sys
from collections.abc import AsyncIterator, Callable

from odin.core.client import Client
from odin.core.event import Envelope, TurnStarted
from odin.core.op import Prompt
from odin.core.timeline import get_source
from odin.ui.exit import StopSignals
from odin.ui.plain.dialog_queue import TerminalDialogs
from odin.ui.plain.keyboard import Keyboard
from odin.ui.plain.turn_output import StreamedAnswer
from odin.ui.print import StartedTurn, run_text
from odin.ui.terminal import escape_hidden, get_terminal_size, shorten, write_line


class TurnView:
    """Shows turns. `prompt_on_screen` is the ID of the prompt that is still visible as it was typed.

    `on_event` also receives the events of the turn; `stopping` stops the turn that is shown.
    """

    def __init__(self, keyboard: Keyboard, on_event: Callable[[Envelope], None]) -> None:
        self.prompt_on_screen = ""
        self.is_first_turn = True
        self.stopping: StopSignals | None = None
        self._keyboard = keyboard
        self._answer = StreamedAnswer(sys.stdout, keyboard)
        self._on_event = on_event

    async def show(
        self,
        client: Client,
        envelope: Envelope,
        started: TurnStarted,
        events: AsyncIterator[Envelope],
        dialogs: TerminalDialogs,
    ) -> int:
        """Show the turn until it ends, and return its exit code."""
        if started.text and started.id != self.prompt_on_screen:
            is_mail = get_source(started) == "mail"
            self.show_prompt("mail: " if is_mail else f"{started.mode.removesuffix('_mode')}> ", started.body)
        self.stopping = StopSignals(client, owns_process=False)
        code = await run_text(
            client,
            Prompt(started.id, started.text, started.mode),
            out=sys.stdout,
            err=self._keyboard.err,
            started=StartedTurn(
                _prepend(envelope, events),
                self._keyboard,
                self._answer,
                self._on_event,
                self.stopping,
                dialogs,
                self.is_first_turn,
            ),
        )
        self.is_first_turn, self.stopping = False, None
        return code

    def show_prompt(self, before: str, prompt: str) -> None:
        """Print a prompt on its own line."""
        columns = get_terminal_size(sys.stderr)[0]
        write_line(self._keyboard.err, shorten(f"{before}{escape_hidden(' '.join(prompt.split()))}", columns - 1))


async def _prepend(first: Envelope, events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
    yield first
    async for envelope in events:
        yield envelope
