"""prompt_toolkit as plain mode uses it: on standard error, with Ctrl-C as the signal. It takes long to load."""

import os
import signal
from typing import Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output.vt100 import Vt100_Output

from odin.ui.terminal import get_terminal_size


class TerminalOutput(Vt100_Output):
    """Does not ask the terminal where the cursor is: an answer that comes late would be taken for typed text.

    With `keeps_paste`, bracketed paste stays on: what is pasted while lines are printed is still one paste.
    `was_suspended`: Ctrl-Z has stopped the process, with nothing on the line.
    """

    keeps_paste = False
    was_suspended = False

    def __init__(self, err: TextIO) -> None:
        def get_size() -> Size:
            columns, rows = get_terminal_size(err)
            return Size(rows, columns)

        super().__init__(err, get_size, os.environ.get("TERM"), enable_bell=False, enable_cpr=False)

    def disable_bracketed_paste(self) -> None:
        if not self.keeps_paste:
            super().disable_bracketed_paste()

    def end_paste(self) -> None:
        """Leave bracketed paste off for another user of the terminal."""
        self.disable_bracketed_paste()
        self.flush()


def make_prompt_session(
    keyboard: TextIO, output: TerminalOutput, keys: KeyBindings | None = None, **options: Any
) -> PromptSession[str]:
    """Return a session. Its application returns the accepted line, or raises EOFError at the end of input."""
    own = KeyBindings()

    @own.add("c-c")
    def interrupt(_: KeyPressEvent) -> None:
        signal.raise_signal(signal.SIGINT)

    @own.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        event.app.renderer.erase()
        output.end_paste()
        output.was_suspended = True
        with event.app.input.cooked_mode():
            os.kill(0, signal.SIGTSTP)

    @own.add("<vt100-mouse-event>")
    def ignore(_: KeyPressEvent) -> None:
        """What looks like a mouse event is none, and prompt_toolkit fails to read some of it."""

    session: PromptSession[str] = PromptSession(
        input=create_input(keyboard),
        output=output,
        key_bindings=merge_key_bindings([own, *([keys] if keys is not None else [])]),
        input_processors=[TabsProcessor(char1=" ", char2=" ")],
        include_default_pygments_style=False,
        **options,
    )
    session.app.terminal_size_polling_interval = None
    return session
