"""Terminal input and output for dialogs: prompts, lines, and terminal modes."""

import asyncio
import contextlib
import os
from collections.abc import Generator
from typing import TextIO

from odin.ui.terminal import TextPainter, size_of, write_text


class Tty:
    """A terminal for dialogs. Output goes to standard error if that is a terminal, else to the keyboard's terminal."""

    def __init__(self, keyboard: TextIO, err: TextIO | None) -> None:
        self.fd = keyboard.fileno()
        self._err = err if err is not None and err.isatty() else None
        self.painter = TextPainter(self._err or keyboard)

    def write(self, text: str) -> None:
        if self._err is not None:
            write_text(self._err, text)
        else:
            os.write(self.fd, text.encode(errors="replace"))

    async def ask_line(self, text: str) -> str:
        """Print the text and return the typed line with its line end; "" after Ctrl-D or if the terminal is closed."""
        discard_typed(self.fd)
        self.write(text)
        return await read_line(self.fd)

    def get_columns(self) -> int:
        return size_of(self.fd)[0]

    def get_rows(self) -> int:
        return size_of(self.fd)[1]


def is_in_background(fd: int) -> bool:
    """True if this process is in the background: reading the terminal would stop it."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


def discard_typed(fd: int) -> None:
    """Discard input that was typed before the dialog was shown."""
    import termios

    termios.tcflush(fd, termios.TCIFLUSH)


async def read_line(fd: int) -> str:
    """Read a line; "" if the terminal is closed."""
    line = b""
    while b"\n" not in line:
        typed = await read_chunk(fd)
        if not typed:
            break
        line += typed
    return line.decode(errors="replace")


async def read_chunk(fd: int) -> bytes:
    """Read available bytes; b"" if the terminal is closed."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 4096)


@contextlib.contextmanager
def enter_cbreak_mode(fd: int) -> Generator[None]:
    """Deliver each key at once and without echo. Ctrl-C still interrupts."""
    import termios

    before = termios.tcgetattr(fd)
    changed = termios.tcgetattr(fd)
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


@contextlib.contextmanager
def restore_terminal_after(fd: int) -> Generator[None]:
    """Restore the terminal's modes at the end, whatever a program did to them."""
    import termios

    before = termios.tcgetattr(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
