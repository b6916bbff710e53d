"""The terminal is given back as it was found, whatever ends the app."""

import contextlib
import os
import signal
import sys
import termios
from typing import Any

from odin.core.errors import UsageError

RESET = (
    "\x1b[?2026l"  # no half-drawn frame is left
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # the mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # focus, paste and size reports
    "\x1b[?7h\x1b[?25h\x1b[0m"  # lines wrap, the cursor is seen, nothing is coloured
)
LEAVE = "\x1b[<u\x1b[?1049l"
"""The keyboard protocol is undone first: what was pushed on the app's screen is known to that screen alone."""

POP_TITLE = "\x1b[23;0t"


class Terminal:
    """Where the app draws. `repair` undoes what a killed app may have left behind; `restore` what this one did."""

    def __init__(self) -> None:
        self._in = _fileno_of(sys.__stdin__)
        _wait_for_foreground(self._in)
        self._attributes = _get_attributes(self._in)

    def repair(self) -> None:
        """An Odin that was killed could not give the terminal back: typing that is not echoed is mended here."""
        found = self._attributes
        if found is None or found[3] & termios.ICANON or found[3] & termios.ECHO:
            return
        found[0] |= termios.ICRNL | termios.IXON
        found[3] |= termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN
        self._write(LEAVE + RESET)
        _set_attributes(self._in, found)

    def restore(self) -> None:
        """Safe to call more than once, and when the terminal is gone. What somebody else uses now is left alone."""
        if not is_foreground(self._in):
            return
        self._write(RESET)
        if self._attributes is not None:
            _set_attributes(self._in, self._attributes)

    def leave(self) -> None:
        """For ends in which the app could not take its screen away itself."""
        if is_foreground(self._in):
            self._write(POP_TITLE + LEAVE)
            self.restore()

    def _write(self, text: str) -> None:
        """To the terminal itself: the streams may lead elsewhere."""
        terminal = open_terminal()
        with contextlib.suppress(OSError):
            os.write(terminal, text.encode())
        if terminal >= 0:
            os.close(terminal)


def open_terminal() -> int:
    """The terminal for writing without waiting; -1 when there is none.

    Without a controlling terminal, as under some supervisors, the one that is read from is opened by its name.
    """
    for name in (
        "/dev/tty",
        *(_tty_name_of(_fileno_of(stream)) for stream in (sys.__stdin__, sys.__stderr__, sys.__stdout__)),
    ):
        with contextlib.suppress(OSError):
            return os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    return -1


def is_foreground(fd: int) -> bool:
    """Whether the terminal is ours now. A shell gives it to one job at a time."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True


def _wait_for_foreground(fd: int) -> None:
    """Started with `&`: wait as other programs do, until `fg`. Raises UsageError where no shell could say so."""
    if not is_foreground(fd):
        os.kill(os.getpid(), signal.SIGTTIN)
    if not is_foreground(fd):
        raise UsageError("Odin was started in the background, where nobody can type.", "Use -p for a single prompt.")


def _tty_name_of(fd: int) -> str:
    try:
        return os.ttyname(fd)
    except OSError:
        return ""


def _fileno_of(stream: Any) -> int:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return -1


def _get_attributes(fd: int) -> list[Any] | None:
    try:
        return termios.tcgetattr(fd)
    except (termios.error, OSError):
        return None


def _set_attributes(fd: int, attributes: list[Any]) -> None:
    with contextlib.suppress(termios.error, OSError):
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
