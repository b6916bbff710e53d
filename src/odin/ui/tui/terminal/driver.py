"""The terminal is given back as it was found, whatever ends the app.

Textual's driver for our terminals: it waits for no screen, reads anything, and knows when it has the terminal.

The mouse belongs to the app or to the terminal; a person can change that at any time.
"""

import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any, cast

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from odin.core.errors import UsageError
from odin.ui.tui.terminal.input import ReplyParser, read_typeahead

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


PATIENCE_S = 3.0
"""How long a terminal may take nothing before what is to be drawn is dropped: a session waits for no screen."""

_POLL_S = 0.1
"""How often the reader looks whether it shall end, and whether an Esc was a key or began a sequence."""


class TerminalFile:
    """Writes to the terminal. One that is gone swallows everything; one that stands still loses frames.

    It has an opening of its own, because not waiting is a property of the opening and the shell shares the other one.
    `back` is called, in the writer's thread, when a terminal that stood still takes something again.
    """

    def __init__(self, on_recovery: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        self._fd = open_terminal()
        self._on_recovery = on_recovery
        self._on_failure = on_failure
        self._is_gone = False
        self._is_stalled = False

    @property
    def is_lost(self) -> bool:
        """Whether what was written last did not arrive."""
        return self._is_gone or self._is_stalled

    def fileno(self) -> int:
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else self._fd

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing is held back."""

    def write(self, text: str) -> int:
        try:
            self._write(text)
        except Exception as error:
            self._is_gone = True
            self._on_failure(error)
        return len(text)

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        while data and not self._is_gone:
            try:
                if not select.select([], [self._fd], [], 0 if self._is_stalled else PATIENCE_S)[1]:
                    self._is_stalled = True
                    break
                data = data[os.write(self._fd, data[:4096]) :]
            except BlockingIOError:
                continue
            except (OSError, ValueError):
                self._is_gone = True
            if self._is_stalled:
                self._is_stalled = False
                self._on_recovery()


class OdinDriver(LinuxDriver):
    """`holding` is whether the terminal is the app's now, and not an editor's or the shell's."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)  # pyright: ignore[reportUnknownMemberType]
        self._loop = asyncio.get_running_loop()
        self._terminal = TerminalFile(self._draw_all, self._report_failure)
        self._file = cast(Any, self._terminal)
        self._started = False
        self._is_continued = False
        self.holding = False

    @property
    def has_left(self) -> bool:
        """Whether the terminal has been told everything that gives it back."""
        return not self.holding and not self._terminal.is_lost

    # --- having the terminal ---

    def start_application_mode(self) -> None:
        if not self._started:
            self._started = True
            cast(Any, self._app).typed_ahead = read_typeahead(self.fileno)
        self.holding = True
        super().start_application_mode()

    def stop_application_mode(self) -> None:
        """What was given away already is not touched again: the shell may have it."""
        if self.holding:
            super().stop_application_mode()
            self.holding = False

    def disable_input(self) -> None:
        """Textual does this more than once; what waits in a terminal that is not ours is not thrown away."""
        if self.holding:
            super().disable_input()

    def resume_application_mode(self) -> None:
        """Somebody else had the terminal: nothing of what we drew is there any more.

        A shell that continues us has set the terminal as the person wants it; another program may have left a mess.
        """
        if cast(Any, self._app).ending.is_set():
            return
        if not self._is_continued and self.attrs_before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        super().resume_application_mode()
        self._draw_all()

    def write(self, data: str) -> None:
        """While somebody else has the terminal nothing is written, nor kept: a full queue would hold up the session."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)

    def _draw_all(self) -> None:
        """From any thread, and from within a signal."""
        self._loop.call_soon_threadsafe(redraw, self._app)

    def _get_terminal_size(self) -> tuple[int, int]:
        """As the terminal says it. COLUMNS and LINES may be those of another window."""
        try:
            rows, columns = termios.tcgetwinsize(self.fileno)
        except (termios.error, OSError):
            rows, columns = 0, 0
        return (columns, rows) if columns and rows else super()._get_terminal_size()

    # --- stopped and continued. Not within the signal itself: whatever it interrupted may hold a lock ---

    def _sigtstp_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)

    def _sigcont_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._continue)

    def _stop(self) -> None:
        if self._auto_restart and self.holding:
            self._app._suspend_signal()
            self.suspend_application_mode()
            self._must_signal_resume = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def _continue(self) -> None:
        """Continued by `fg`; or by `bg`, which ends at once; or after somebody stopped us without asking."""
        if not self._auto_restart or cast(Any, self._app).ending.is_set():
            return
        if not is_foreground(self.fileno):
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        if self.holding:
            self.suspend_application_mode()
        self._is_continued = True
        try:
            self.resume_application_mode()
        finally:
            self._is_continued = False

    # --- reading ---

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except (OSError, EOFError):
            self._loop.call_soon_threadsafe(cast(Any, self._app).end, 128 + signal.SIGHUP)
        except BaseException as error:
            self._report_failure(error)

    def run_input_thread(self) -> None:
        """Raises EOFError or OSError when the terminal is gone. What is no UTF-8 is shown as such."""
        parser = ReplyParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        while not self.exit_event.is_set():
            if select.select([self.fileno], [], [], _POLL_S)[0]:
                data = os.read(self.fileno, 4096)
                if not data:
                    raise EOFError
                for message in parser.feed(decode(data)):
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def _report_failure(self, error: BaseException) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(cast(Any, self._app).fail, error)


def redraw(app: Any) -> None:
    """Draw all of it, whatever the terminal shows now. An app that is leaving has nothing to draw any more."""
    if not app.screen_stack:
        return
    screen = app.screen
    app._display(screen, screen._compositor.render_update(full=True, screen_stack=app._background_screens))


def set_mouse(app: App[Any], on: bool) -> None:
    """Take the mouse, or leave it to the terminal. Where there is no terminal nothing happens."""
    driver: Any = getattr(app, "_driver", None)
    if not hasattr(driver, "_enable_mouse_support"):
        return
    driver._mouse = True
    if on:
        driver._enable_mouse_support()
    else:
        driver._disable_mouse_support()
        driver._mouse = False
    driver.flush()
