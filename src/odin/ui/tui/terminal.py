"""The terminal is given back as it was found, whatever ends the app."""

import contextlib
import os
import sys
import termios
from typing import Any

RESET = (
    "\x1b[?2026l"  # no half-drawn frame is left
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # the mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # focus, paste and size reports
    "\x1b[<u"  # the keyboard protocol that was pushed
    "\x1b[?7h\x1b[?25h\x1b[0m"  # lines wrap, the cursor is seen, nothing is coloured
)
LEAVE_ALTERNATE = "\x1b[?1049l"


class Terminal:
    """Where the app draws. `repair` undoes what a killed app may have left behind; `restore` what this one did."""

    def __init__(self) -> None:
        self._in = _fileno(sys.__stdin__)
        self._attributes = _attributes(self._in)

    def repair(self) -> None:
        """An Odin that was killed could not give the terminal back: typing that is not echoed is mended here."""
        found = self._attributes
        if found is None or found[3] & termios.ICANON or found[3] & termios.ECHO:
            return
        found[0] |= termios.ICRNL | termios.IXON
        found[3] |= termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN
        self._write(LEAVE_ALTERNATE + RESET)
        _set(self._in, found)

    def restore(self) -> None:
        """Safe to call more than once, and when the terminal is gone."""
        self._write(RESET)
        if self._attributes is not None:
            _set(self._in, self._attributes)

    def leave(self) -> None:
        """For ends in which the app could not take its screen away itself."""
        self._write(LEAVE_ALTERNATE)
        self.restore()

    def _write(self, text: str) -> None:
        """To the terminal itself: the streams may lead elsewhere."""
        with contextlib.suppress(OSError):
            terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.write(terminal, text.encode())
            finally:
                os.close(terminal)


def _fileno(stream: Any) -> int:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return -1


def _attributes(fd: int) -> list[Any] | None:
    try:
        return termios.tcgetattr(fd)
    except (termios.error, OSError):
        return None


def _set(fd: int, attributes: list[Any]) -> None:
    with contextlib.suppress(termios.error, OSError):
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
