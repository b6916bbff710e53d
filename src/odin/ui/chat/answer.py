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
    ReplyRolledBack,
    TextStreamed,
    ThinkingStarted,
    ToolStarted,
    TurnEnded,
)
from odin.ui.terminal import escape_control

REPLY_RESTARTED = "(That reply broke off. It begins again.)"
_BATCH_S = 0.05
"""Lines that come faster than this are written together."""
_FLUSH_BEFORE = ThinkingStarted | CallStreamed | ToolStarted | PermissionAsked | QuestionsAsked
"""What is about to be shown below the text so far."""


class BottomLine(Protocol):
    """The line at the bottom. While it is `held`, somebody else has the whole terminal."""

    @property
    def is_held(self) -> bool: ...

    def write_above(self) -> AbstractContextManager[None]: ...


class StreamedAnswer:
    """Only whole lines are written, so that the terminal wraps, keeps and copies them as it does all others.

    `broken` says that nobody reads them any more.
    """

    def __init__(self, out: TextIO, bottom: BottomLine) -> None:
        self.broken = False
        self._fd = out.fileno()
        self._is_terminal = out.isatty()
        self._encoding = out.encoding or "utf-8"
        self._bottom = bottom
        self._chunks: list[str] = []
        self._unfinished_line: list[str] = []
        self._blank_lines = 0
        self._lines: list[str] = []
        self._shown = False
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def handle_event(self, envelope: Envelope) -> None:
        event = envelope.event
        if envelope.agent:
            return
        if isinstance(event, TextStreamed):
            self._chunks.append(event.text)
            self._add(event.text)
        elif isinstance(event, Replied):
            self._finish_reply(event.message.text)
        elif isinstance(event, ReplyRolledBack | ReplyDiscarded):
            self._restart_reply()
        elif isinstance(event, _FLUSH_BEFORE):
            self.flush()

    def finish(self, ended: TurnEnded) -> None:
        """The turn is over: what was not shown of its text yet."""
        self.flush()
        if ended.text.strip() and ended.text != self._last:
            self._add(ended.text)
            self.flush()
        self._reset_reply("")

    def flush(self) -> None:
        """Something else is about to be shown: everything so far first, also a line that is not finished."""
        self._finish_line()
        self.flush_lines()

    def flush_lines(self) -> None:
        """The finished lines. While somebody else has the terminal they wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        if self._bottom.is_held:
            self._schedule_write()
            return
        text, self._lines = "".join(self._lines), []
        with self._bottom.write_above():
            self._write_bytes(escape_control(text) if self._is_terminal else text)

    # --- pieces to lines ---

    def _add(self, text: str) -> None:
        if "\n" not in text:
            self._unfinished_line.append(text)
            return
        *lines, rest = "".join((*self._unfinished_line, text)).split("\n")
        self._unfinished_line = [rest] if rest else []
        for line in lines:
            self._add_line(line.removesuffix("\r"))
        if self._lines:
            self._schedule_write()

    def _add_line(self, line: str) -> None:
        """Empty lines are written when something follows, and none before the first."""
        if not line.strip():
            self._blank_lines += 1
            return
        before = "\n" * self._blank_lines if self._shown else ""
        self._lines.append(f"{before}{line}\n")
        self._blank_lines = 0
        self._shown = True

    def _finish_line(self) -> None:
        if self._unfinished_line:
            self._add("\n")

    def _finish_reply(self, text: str) -> None:
        """The reply is final. Mostly all of it has come in pieces already."""
        streamed = "".join(self._chunks)
        if text.startswith(streamed):
            self._add(text[len(streamed) :])
        self._finish_line()
        self._reset_reply(text if text.strip() else self._last)

    def _restart_reply(self) -> None:
        if self._shown:
            self.flush()
            self._lines.append(f"{REPLY_RESTARTED}\n")
            self.flush_lines()
        self._reset_reply(self._last)

    def _reset_reply(self, last: str) -> None:
        self._chunks, self._unfinished_line, self._blank_lines = [], [], 0
        self._shown, self._last = False, last

    # --- the terminal ---

    def _schedule_write(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_S, self.flush_lines)

    def _write_bytes(self, text: str) -> None:
        view = memoryview(text.encode(self._encoding, "replace"))
        while view and not self.broken:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                select.select([], [self._fd], [], 1.0)
            except OSError:
                self.broken = True
