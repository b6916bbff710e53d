"""A terminal that a person is asked on: what is said there, and the lines that are typed."""

import asyncio
import contextlib
import os
from collections.abc import Generator
from typing import TextIO

from odin.ui.terminal import size_of, write_text


class Tty:
    """Where a person reads and types. What is said goes to standard error when that is a terminal, too."""

    def __init__(self, keyboard: TextIO, err: TextIO | None) -> None:
        self.fd = keyboard.fileno()
        self._err = err if err is not None and err.isatty() else None

    def write(self, text: str) -> None:
        if self._err is not None:
            write_text(self._err, text)
        else:
            os.write(self.fd, text.encode(errors="replace"))

    async def ask_line(self, text: str) -> str:
        """The answer to this, with its line end; "" when the terminal is closed or Ctrl-D was typed."""
        discard_typed(self.fd)
        self.write(text)
        return await read_line(self.fd)

    def get_columns(self) -> int:
        return size_of(self.fd)[0]

    def get_rows(self) -> int:
        return size_of(self.fd)[1]


def is_in_background(fd: int) -> bool:
    """Whether reading this terminal would stop us instead of giving an answer."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


def discard_typed(fd: int) -> None:
    """What was typed before the question was shown is no answer to it."""
    import termios

    termios.tcflush(fd, termios.TCIFLUSH)


async def read_line(fd: int) -> str:
    """One line of a terminal; empty when it is closed."""
    line = b""
    while b"\n" not in line:
        typed = await read_chunk(fd)
        if not typed:
            break
        line += typed
    return line.decode(errors="replace")


async def read_chunk(fd: int) -> bytes:
    """What can be read next, at once when it is there; nothing when the terminal is closed."""
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
    """Every key arrives at once and is not shown by the terminal itself. Ctrl-C still interrupts."""
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
    """Whatever a program does to the terminal meanwhile, it is as before afterwards."""
    import termios

    before = termios.tcgetattr(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
