"""Textual's driver for our terminals: it waits for no screen, reads anything, and knows when it has the terminal."""

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

from odin.ui.tui.terminal.replies import ReplyParser
from odin.ui.tui.terminal.restore import is_foreground, open_terminal
from odin.ui.tui.terminal.typeahead import read_typeahead

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
