"""The answer as it is written: every finished line once, above the line at the bottom, and never touched again."""

import asyncio
import os
import select
from contextlib import AbstractContextManager
from typing import Protocol, TextIO

from odin.core.event import (
    CallStreamed,
    Envelope,
    PermissionAsked,
    QuestionsAsked,
    Replied,
    ReplyDiscarded,
    RolledBack,
    TextStreamed,
    ThinkingStarted,
    ToolStarted,
    TurnEnded,
)
from odin.ui.terminal import harmless

AGAIN = "(That reply broke off. It begins again.)"
_PAUSE_S = 0.05
"""Lines that come faster than this are written together."""
_BEFORE = ThinkingStarted | CallStreamed | ToolStarted | PermissionAsked | QuestionsAsked
"""What is about to be shown below the text so far."""


class Bottom(Protocol):
    """The line at the bottom. While it is `held`, somebody else has the whole terminal."""

    @property
    def held(self) -> bool: ...

    def aside(self) -> AbstractContextManager[None]: ...


class Answer:
    """Only whole lines are written, so that the terminal wraps, keeps and copies them as it does all others.

    `broken` says that nobody reads them any more.
    """

    def __init__(self, out: TextIO, bottom: Bottom) -> None:
        self.broken = False
        self._fd = out.fileno()
        self._steered = out.isatty()
        self._encoding = out.encoding or "utf-8"
        self._bottom = bottom
        self._pieces: list[str] = []
        self._begun: list[str] = []
        self._blank = 0
        self._lines: list[str] = []
        self._shown = False
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def see(self, envelope: Envelope) -> None:
        event = envelope.event
        if envelope.agent:
            return
        if isinstance(event, TextStreamed):
            self._pieces.append(event.text)
            self._add(event.text)
        elif isinstance(event, Replied):
            self._replied(event.message.text)
        elif isinstance(event, RolledBack | ReplyDiscarded):
            self._begin_again()
        elif isinstance(event, _BEFORE):
            self.flush()

    def end(self, ended: TurnEnded) -> None:
        """The turn is over: what was not shown of its text yet."""
        self.flush()
        if ended.text.strip() and ended.text != self._last:
            self._add(ended.text)
            self.flush()
        self._new_reply("")

    def flush(self) -> None:
        """Something else is about to be shown: everything so far first, also a line that is not finished."""
        self._finish_line()
        self.write()

    def write(self) -> None:
        """The finished lines. While somebody else has the terminal they wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        if self._bottom.held:
            self._later()
            return
        text, self._lines = "".join(self._lines), []
        with self._bottom.aside():
            self._put(harmless(text) if self._steered else text)

    # --- pieces to lines ---

    def _add(self, text: str) -> None:
        if "\n" not in text:
            self._begun.append(text)
            return
        *lines, rest = "".join((*self._begun, text)).split("\n")
        self._begun = [rest] if rest else []
        for line in lines:
            self._line(line.removesuffix("\r"))
        if self._lines:
            self._later()

    def _line(self, line: str) -> None:
        """Empty lines are written when something follows, and none before the first."""
        if not line.strip():
            self._blank += 1
            return
        before = "\n" * self._blank if self._shown else ""
        self._lines.append(f"{before}{line}\n")
        self._blank = 0
        self._shown = True

    def _finish_line(self) -> None:
        if self._begun:
            self._add("\n")

    def _replied(self, text: str) -> None:
        """The reply is final. Mostly all of it has come in pieces already."""
        streamed = "".join(self._pieces)
        if text.startswith(streamed):
            self._add(text[len(streamed) :])
        self._finish_line()
        self._new_reply(text if text.strip() else self._last)

    def _begin_again(self) -> None:
        if self._shown:
            self.flush()
            self._lines.append(f"{AGAIN}\n")
            self.write()
        self._new_reply(self._last)

    def _new_reply(self, last: str) -> None:
        self._pieces, self._begun, self._blank = [], [], 0
        self._shown, self._last = False, last

    # --- the terminal ---

    def _later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self.write)

    def _put(self, text: str) -> None:
        view = memoryview(text.encode(self._encoding, "replace"))
        while view and not self.broken:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                select.select([], [self._fd], [], 1.0)
            except OSError:
                self.broken = True
