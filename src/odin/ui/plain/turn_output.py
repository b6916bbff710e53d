"""The answer as it is written: every finished line once, above the line at the bottom, and never touched again.

What the turns of a conversation show: whose turn it is, and then everything that happens in it.
"""

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TextIO

from odin.core.client import Client
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
    TurnStarted,
)
from odin.core.op import Prompt
from odin.ui.plain.keyboard import Keyboard
from odin.ui.print import run_text
from odin.ui.terminal import escape_control, escape_hidden, shorten, size_of, write_line

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


class TurnView:
    """`on_screen` is the prompt that stands there as it was typed; `fresh` until the first turn of a session is over.

    `beside` is told what happens meanwhile and is no part of the turn; `after` minds the signals when it is over.
    """

    def __init__(self, keyboard: Keyboard, beside: Callable[[Envelope], None], after: Callable[[], None]) -> None:
        self.prompt_on_screen = ""
        self.is_first_turn = True
        self._keyboard = keyboard
        self._answer = StreamedAnswer(sys.stdout, keyboard)
        self._on_event = beside
        self._on_finish = after

    async def show(
        self, client: Client, envelope: Envelope, started: TurnStarted, events: AsyncIterator[Envelope]
    ) -> int:
        """Until the turn ends; the code with which a program would end that ran nothing else."""
        if started.text and started.id != self.prompt_on_screen:
            self.show_prompt(f"{started.mode.removesuffix('_mode')}> ", started.display_text or started.text)
        code = await run_text(
            client,
            Prompt(started.id, started.text, started.mode),
            out=sys.stdout,
            err=sys.stderr,
            tty_in=sys.stdin,
            first=self.is_first_turn,
            events=_prepend(envelope, events),
            keyboard=self._keyboard,
            answer=self._answer,
            on_event=self._on_event,
            on_finish=self._on_finish,
        )
        self.is_first_turn = False
        return code

    def show_prompt(self, before: str, prompt: str) -> None:
        """A prompt in a line of its own."""
        with self._keyboard.write_above():
            write_line(
                sys.stderr, shorten(f"{before}{escape_hidden(' '.join(prompt.split()))}", size_of(sys.stderr)[0] - 1)
            )


async def _prepend(first: Envelope, events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
    yield first
    async for envelope in events:
        yield envelope
