"""Output of turns in plain mode: the prompt, the streamed answer line by line, and the progress."""

import asyncio
import os
import re
import select
from typing import TextIO

from odin.core.call_events import (
    AskEvent,
    CallStreamed,
    PlanAsked,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    TextStreamed,
    ThinkingStarted,
    ToolStarted,
)
from odin.core.event import Envelope, TurnEnded
from odin.ui.plain.keyboard import Keyboard
from odin.ui.terminal import (
    TextPainter,
    escape_control,
    get_terminal_size,
    wrap_words,
)

REPLY_RESTARTED = "(The reply was cut off. Starting again.)"
_BATCH_S = 0.05
"""Lines that arrive faster than this are written together."""
_FLUSH_BEFORE = ThinkingStarted | CallStreamed | ToolStarted | AskEvent
"""Events that show something below the text so far."""


_FENCE = re.compile(r"\s*(?:```|~~~)")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)]) +")


class AnswerLines:
    """Makes the lines of an answer fit a terminal: wrapped between words, headings bold, code as it is."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._painter = TextPainter(out)
        self._is_code = False

    def format_line(self, line: str) -> str:
        text = escape_control(line)
        if _FENCE.match(text):
            self._is_code = not self._is_code
            return self._painter.paint(text, "dim")
        if self._is_code:
            return self._painter.paint(text, "cyan")
        if text.lstrip().startswith("|"):
            return text
        item = _LIST_ITEM.match(text)
        indent = " " * (len(item[0]) if item else len(text) - len(text.lstrip()))
        wrapped = wrap_words(text, get_terminal_size(self._out)[0], indent)
        return self._painter.paint(wrapped, "bold") if text.startswith("#") else wrapped

    def restart(self) -> None:
        self._is_code = False


class StreamedAnswer:
    """Writes an answer as whole lines above the input line.

    `broken` is True when standard output was closed or cannot be written; then `error` says why.
    """

    def __init__(self, out: TextIO, bottom: Keyboard) -> None:
        self.broken = False
        self.error: OSError | None = None
        self._fd = out.fileno()
        self._layout = AnswerLines(out) if out.isatty() else None
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
            if self._shown:
                self.flush()
                self._lines.append(f"{REPLY_RESTARTED}\n")
                self.flush_lines()
            self._reset_reply(self._last)
        elif isinstance(event, PlanAsked):
            self._finish_reply(event.text.strip())
            self.flush()
        elif isinstance(event, _FLUSH_BEFORE):
            self.flush()

    def finish(self, ended: TurnEnded) -> None:
        """Write the rest of the answer at the end of the turn."""
        self.flush()
        if ended.text.strip() and ended.text != self._last:
            self._add(ended.text)
            self.flush()
        self._reset_reply("")

    def flush(self) -> None:
        """Write everything so far, including an unfinished line, before something else is shown."""
        self._finish_line()
        self.flush_lines()

    def flush_lines(self) -> None:
        """Write the finished lines, or later if something else holds the terminal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        if self._bottom.is_held:
            self._schedule_write()
            return
        text, self._lines = "".join(self._lines), []
        self._bottom.clear()
        view = memoryview(text.encode(self._encoding, "replace"))
        while view and not self.broken:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                select.select([], [self._fd], [], 1.0)
            except OSError as error:
                self.broken = True
                self.error = None if isinstance(error, BrokenPipeError) else error

    # --- chunks to lines ---

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
        """Add a line. Blank lines are written only between other lines."""
        if not line.strip():
            self._blank_lines += 1
            return
        before = "\n" * self._blank_lines if self._shown else ""
        self._lines.append(f"{before}{self._layout.format_line(line) if self._layout is not None else line}\n")
        self._blank_lines = 0
        self._shown = True

    def _finish_line(self) -> None:
        if self._unfinished_line:
            self._add("\n")

    def _finish_reply(self, text: str) -> None:
        """Add what was not streamed of the final reply; usually nothing."""
        streamed = "".join(self._chunks)
        if text.startswith(streamed):
            self._add(text[len(streamed) :])
        self._finish_line()
        self._reset_reply(text if text.strip() else self._last)

    def _reset_reply(self, last: str) -> None:
        self._chunks, self._unfinished_line, self._blank_lines = [], [], 0
        self._shown, self._last = False, last
        if self._layout is not None:
            self._layout.restart()

    # --- the terminal ---

    def _schedule_write(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_S, self.flush_lines)
