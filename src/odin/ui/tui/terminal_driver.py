"""The terminal driver: non-blocking output, input parsing, job control, and restoring the terminal at exit."""

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
from odin.ui.tui.terminal_input import ReplyParser, read_typeahead

RESET = (
    "\x1b[?2026l"  # end a synchronized update
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse reports
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # focus, bracketed paste and size reports
    "\x1b[?7h\x1b[?25h\x1b[0m"  # line wrap on, cursor visible, default style
)
LEAVE = "\x1b[<u\x1b[?1049l"
"""Pops the keyboard protocol before leaving the alternate screen, because each screen has its own stack of modes."""

POP_TITLE = "\x1b[23;0t"


class Terminal:
    """Saves the terminal state at start and restores it at exit."""

    def __init__(self) -> None:
        self._in = _get_fileno(sys.__stdin__)
        _wait_for_foreground(self._in)
        self._attributes = _get_attributes(self._in)

    def repair(self) -> None:
        """Undo what a killed Odin left behind: raw mode without echo."""
        attributes = self._attributes
        if attributes is None or attributes[3] & termios.ICANON or attributes[3] & termios.ECHO:
            return
        attributes[0] |= termios.ICRNL | termios.IXON
        attributes[3] |= termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN
        self._write(LEAVE + RESET)
        _set_attributes(self._in, attributes)

    def restore(self) -> None:
        """Restore the saved state. Safe to call twice or without a terminal; does nothing in the background."""
        if not is_foreground(self._in):
            return
        self._write(RESET)
        if self._attributes is not None:
            _set_attributes(self._in, self._attributes)

    def leave(self) -> None:
        """Leave the alternate screen, too, if the app could not do it itself."""
        if is_foreground(self._in):
            self._write(POP_TITLE + LEAVE)
            self.restore()

    def _write(self, text: str) -> None:
        """Write to the terminal itself, because the standard streams may be redirected."""
        terminal = open_terminal()
        with contextlib.suppress(OSError):
            os.write(terminal, text.encode())
        if terminal >= 0:
            os.close(terminal)


def open_terminal() -> int:
    """Return a non-blocking file descriptor of the terminal, or -1.

    Without a controlling terminal, as under some supervisors, open the terminal of a standard stream by its name.
    """
    for name in (
        "/dev/tty",
        *(_get_tty_name(_get_fileno(stream)) for stream in (sys.__stdin__, sys.__stderr__, sys.__stdout__)),
    ):
        with contextlib.suppress(OSError):
            return os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    return -1


def is_foreground(fd: int) -> bool:
    """True if this process is in the terminal's foreground process group."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True


def _wait_for_foreground(fd: int) -> None:
    """If started with `&`, stop until `fg`. Raise UsageError if no shell can continue the process."""
    if not is_foreground(fd):
        os.kill(os.getpid(), signal.SIGTTIN)
    if not is_foreground(fd):
        raise UsageError("Odin was started in the background, without keyboard input.", "Use -p for a single prompt.")


def _get_tty_name(fd: int) -> str:
    try:
        return os.ttyname(fd)
    except OSError:
        return ""


def _get_fileno(stream: Any) -> int:
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


WRITE_TIMEOUT_S = 3.0
"""How long the terminal may block before output is dropped, so that a stalled terminal cannot block the session."""

_POLL_S = 0.1
"""Poll interval of the input thread, to check for exit and to tell an Esc key from an escape sequence."""


class TerminalFile:
    """Non-blocking output to the terminal. Frames are dropped while it is stalled, everything once it is gone.

    Uses its own open file description, because O_NONBLOCK on the inherited one would also affect the shell.
    `on_recovery` is called in the writer thread when a stalled terminal accepts output again.
    """

    def __init__(self, on_recovery: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        self._fd = open_terminal()
        self._on_recovery = on_recovery
        self._on_failure = on_failure
        self._is_gone = False
        self._is_stalled = False

    @property
    def is_lost(self) -> bool:
        """True if the last output was dropped."""
        return self._is_gone or self._is_stalled

    def fileno(self) -> int:
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else self._fd

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing: output is not buffered."""

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
                if not select.select([], [self._fd], [], 0 if self._is_stalled else WRITE_TIMEOUT_S)[1]:
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
    """`holding`: the app owns the terminal, not an external editor or the shell."""

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
        """True if the terminal received everything needed to restore it."""
        return not self.holding and not self._terminal.is_lost

    def start_application_mode(self) -> None:
        if not self._started:
            self._started = True
            cast(Any, self._app).typed_ahead = read_typeahead(self.fileno)
        self.holding = True
        super().start_application_mode()

    def stop_application_mode(self) -> None:
        """Do nothing if the terminal was already released: the shell may use it."""
        if self.holding:
            super().stop_application_mode()
            self.holding = False

    def disable_input(self) -> None:
        """Do nothing if the terminal was released: Textual calls this repeatedly, and it discards pending input."""
        if self.holding:
            super().disable_input()

    def resume_application_mode(self) -> None:
        """Take the terminal back and redraw everything.

        After another program, the saved attributes are restored first; after `fg`, the shell has already set them.
        """
        if cast(Any, self._app).ending.is_set():
            return
        if not self._is_continued and self.attrs_before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        super().resume_application_mode()
        self._draw_all()

    def write(self, data: str) -> None:
        """Drop output while another program has the terminal: a full queue would block the session."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)

    def _draw_all(self) -> None:
        """Redraw the screen. Safe to call from any thread and from signal handlers."""
        self._loop.call_soon_threadsafe(redraw, self._app)

    def _get_terminal_size(self) -> tuple[int, int]:
        """Ask the terminal itself: COLUMNS and LINES may belong to another window."""
        try:
            rows, columns = termios.tcgetwinsize(self.fileno)
        except (termios.error, OSError):
            rows, columns = 0, 0
        return (columns, rows) if columns and rows else super()._get_terminal_size()

    # --- stop and continue: not in the signal handler itself, because the interrupted code may hold a lock ---

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
        """Handle SIGCONT after `fg`, after SIGSTOP, or after `bg`, which stops the process again."""
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

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except (OSError, EOFError):
            self._loop.call_soon_threadsafe(cast(Any, self._app).end, 128 + signal.SIGHUP)
        except BaseException as error:
            self._report_failure(error)

    def run_input_thread(self) -> None:
        """Read and parse input until exit. Raise EOFError or OSError when the terminal is gone."""
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
        """End the app with this error. Safe to call from any thread."""
        self._loop.call_soon_threadsafe(cast(Any, self._app).fail, error)


def redraw(app: Any) -> None:
    """Redraw the whole screen, unless the app is exiting."""
    if not app.screen_stack:
        return
    screen = app.screen
    app._display(screen, screen._compositor.render_update(full=True, screen_stack=app._background_screens))


def set_mouse(app: App[Any], on: bool) -> None:
    """Turn mouse reports on, or leave the mouse to the terminal, e.g. for its own text selection."""
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
