"""A terminal on which dialogs are shown and answered line by line."""

import contextlib
import os
from collections.abc import AsyncGenerator
from typing import TextIO

from odin.ui.terminal import (
    TextPainter,
    discard_typed,
    escape_hidden,
    get_terminal_size,
    is_dumb,
    read_line,
    restore_terminal_after,
    write_text,
)


class Tty:
    """Output goes to standard error if that is a terminal, else to the keyboard's terminal."""

    def __init__(self, keyboard: TextIO, err: TextIO | None) -> None:
        self.fd = keyboard.fileno()
        self._keyboard = keyboard
        self._err = err if err is not None and err.isatty() else None
        self.painter = TextPainter(self._err or keyboard)

    def write(self, text: str) -> None:
        if self._err is not None:
            write_text(self._err, text)
        else:
            os.write(self.fd, text.encode(errors="replace"))

    async def wait_for_line(self, notice: str) -> None:
        """Print the notice and wait while a prompt is written: the rest of it would be taken for an answer."""

    async def ask_line(self, text: str) -> str:
        """Print the text and return the typed line with its line end; "" after Ctrl-D or if the terminal is closed.

        What was typed before is discarded: the user had not seen the text.
        """
        discard_typed(self.fd)
        self.write(text)
        typed = await read_line(self.fd)
        if not typed:
            self.write("\n")
        return typed

    async def edit_line(self, label: str, text: str) -> str | None:
        """Let the user edit a line. Return None after Ctrl-D or if the terminal is closed."""
        discard_typed(self.fd)
        if self._err is None or is_dumb(os.environ):
            typed = (await self.ask_line(f"{label}(was: {text}) ")).rstrip("\n")
            return typed if typed and escape_hidden(typed) == typed else None
        from odin.ui.plain.prompt_session import TerminalOutput, make_prompt_session

        session = make_prompt_session(self._keyboard, TerminalOutput(self._err), message=label)
        session.default_buffer.insert_text(text)
        with contextlib.suppress(EOFError):
            return await session.app.run_async(set_exception_handler=False, handle_sigint=False)
        return None

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncGenerator[None]:
        """Let another program use the terminal."""
        with restore_terminal_after(self.fd):
            yield

    def get_columns(self) -> int:
        return get_terminal_size(self.fd)[0]

    def get_rows(self) -> int:
        return get_terminal_size(self.fd)[1]
