"""Textual's driver for our terminals, with an output that can neither die nor wait for ever."""

import asyncio
import contextlib
import os
import select
import sys
from collections.abc import Callable
from typing import Any, cast

from textual.app import App
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

from odin.ui.tui.replies import ReplyParser
from odin.ui.tui.typeahead import typed_lines

PATIENCE_S = 3.0
"""How long a terminal may take nothing before what is to be drawn is dropped: a session waits for no screen."""


class TerminalFile:
    """Writes to the terminal. One that is gone swallows everything; one that stands still loses frames.

    It has an opening of its own, because not waiting is a property of the opening and the shell shares the other one.
    `back` is called, in the writer's thread, when a terminal that stood still takes something again.
    """

    def __init__(self, back: Callable[[], None]) -> None:
        self._own = -1
        with contextlib.suppress(OSError):
            self._own = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._back = back
        self._gone = False
        self._still = False

    def fileno(self) -> int:
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else self._own

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing is held back."""

    def write(self, text: str) -> int:
        data = memoryview(text.encode("utf-8", "replace"))
        while data and not self._gone:
            try:
                if not select.select([], [self._own], [], 0 if self._still else PATIENCE_S)[1]:
                    self._still = True
                    break
                data = data[os.write(self._own, data[:4096]) :]
            except BlockingIOError:
                continue
            except (OSError, ValueError):
                self._gone = True
            if self._still:
                self._still = False
                self._back()
        return len(text)


cast(dict[str, Any], vars(linux_driver))["XTermParser"] = ReplyParser
"""Textual's driver makes its parser itself and takes no other."""


class OdinDriver(LinuxDriver):
    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)  # pyright: ignore[reportUnknownMemberType]
        self._loop = asyncio.get_running_loop()
        self._file = cast(Any, TerminalFile(self._draw_all))
        self._started = False

    def start_application_mode(self) -> None:
        if not self._started:
            self._started = True
            cast(Any, self._app).typed_ahead = typed_lines(self.fileno)
        super().start_application_mode()

    def write(self, data: str) -> None:
        """While somebody else has the terminal nothing is written, nor kept: a full queue would hold up the session."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)

    def resume_application_mode(self) -> None:
        """Somebody else had the terminal: nothing of what we drew is there any more."""
        super().resume_application_mode()
        self._draw_all()

    def _draw_all(self) -> None:
        """From any thread, and from within a signal."""
        self._loop.call_soon_threadsafe(redraw, self._app)


def redraw(app: Any) -> None:
    """Draw all of it, whatever the terminal shows now."""
    screen = app.screen
    app._display(screen, screen._compositor.render_update(full=True, screen_stack=app._background_screens))
