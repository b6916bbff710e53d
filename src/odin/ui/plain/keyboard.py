"""The input line of plain mode where nothing can be redrawn: the terminal edits the lines, and Odin reads them."""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import TextIO, cast

from odin.ui.plain.tty import Tty
from odin.ui.terminal import take_typed, wrap_words, write_text


class Keyboard(Tty):
    """Reads lines. `take` receives each, and None at the end of input; `err` is where messages are printed meanwhile.

    While a dialog is open, it has the terminal (`hold`), and messages wait. `is_busy`: a turn is shown. `line_stays`:
    the last line is still visible.
    """

    def __init__(self, get_label: Callable[[], str], take: Callable[[str | None], None]) -> None:
        super().__init__(sys.stdin, sys.stderr)
        self.err = cast("TextIO", _Messages(self.print_message))
        self.is_busy = False
        self.line_stays = False
        self._get_label = get_label
        self._take = take
        self._begun = ""
        self._line_ended: asyncio.Future[bool] | None = None
        self._held = 0
        self._deferred = ""
        self._is_shown = False
        self._is_show_due = False

    @property
    def is_held(self) -> bool:
        return self._held > 0

    @property
    def text(self) -> str:
        """What is typed so far, as far as that is known."""
        return self._begun

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self.fd, self._read)

    async def close(self) -> None:
        self._stop()
        if self._is_shown:
            self.write("\n")

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self.fd)

    def _read(self) -> None:
        try:
            typed = os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            typed = ""
        if not typed and self._begun:  # Ctrl-D: the line is empty for the terminal only
            self.clear_text()
            return
        if not typed:
            self._stop()
            self._take(None)
        self._add_typed(typed)

    def _add_typed(self, typed: str) -> None:
        *lines, self._begun = f"{self._begun}{typed}".split("\n")
        for line in lines:
            self._finish_line(line)

    def _finish_line(self, line: str) -> None:
        self.line_stays = self._is_shown and not self.is_busy
        self._is_shown = False
        self._take(line)
        self._end_line()

    def _end_line(self, *, set_aside: bool = False) -> None:
        if self._line_ended is not None and not self._line_ended.done():
            self._line_ended.set_result(set_aside)

    # --- turns and dialogs ---

    def start_turn(self) -> None:
        self.is_busy, self._is_shown = True, False

    def end_turn(self) -> None:
        """Called before the rest of the answer is shown."""
        self.is_busy = False

    def show_progress(self, text: str) -> None:
        """Show what the turn does, where the line is empty."""

    def show(self) -> None:
        """Show the input prompt, unless a turn runs, or once no dialog is open."""
        self._is_show_due = self.is_held
        if not self.is_held and not self.is_busy and not self._is_shown:
            self._is_shown = True
            self.draw()

    def draw(self) -> None:
        self.write(f"{self._get_label()}{self._begun}")

    def set_text(self, text: str) -> None:
        """Let the user edit this text and send it."""
        self.print_message(f"(was: {text})\n")
        self.show()

    def clear_text(self) -> None:
        """Move what is typed so far to the history, if there is one."""
        self._begun = ""
        self.write("\n")  # the terminal has shown ^C
        self._end_line()

    async def wait_for_line(self, notice: str) -> None:
        while self.is_held or await self._is_writing():
            if not self.is_held:
                self._print_notice(notice)
            self._line_ended = asyncio.get_running_loop().create_future()
            try:
                if await self._line_ended:
                    return
            finally:
                self._line_ended = None

    async def _is_writing(self) -> bool:
        self._add_typed(take_typed(self.fd))
        return bool(self._begun)

    def _print_notice(self, notice: str) -> None:
        text = f"{notice} Enter sends your line first; Ctrl-C clears it."
        label = self._get_label() if self._is_shown else ""
        self.write(f"\n{wrap_words(text, self.get_columns())}\n{label}{self._begun}")

    def hold(self) -> None:
        self._held += 1
        if self._held == 1:
            self._start_dialog()

    def release(self) -> None:
        self._held -= 1
        if self._held:
            return
        self._end_dialog()
        deferred, self._deferred = self._deferred, ""
        if deferred:
            self.print_message(deferred)
        if self._is_show_due:
            self.show()
        self._end_line()

    def _start_dialog(self) -> None:
        self._is_show_due, self._is_shown = self._is_shown, False
        self._stop()

    def _end_dialog(self) -> None:
        self.open()

    def resume(self) -> None:
        """Called after Ctrl-Z and fg."""

    # --- messages ---

    def print_message(self, text: str) -> None:
        """Print whole lines above the input line, or once no dialog is open."""
        if self.is_held:
            self._deferred += text
            return
        self.clear()
        write_text(sys.stderr, text)

    def clear(self) -> None:
        """Make room for lines that are printed at once. The input line is shown again below them."""
        if self._is_shown:
            self.write("\n")
            self._is_shown = False
            asyncio.get_running_loop().call_soon(self.show)


class _Messages:
    """Standard error as a stream whose lines are printed above the input line."""

    def __init__(self, print_message: Callable[[str], None]) -> None:
        self._print = print_message

    @property
    def encoding(self) -> str:
        return sys.stderr.encoding

    def fileno(self) -> int:
        return sys.stderr.fileno()

    def isatty(self) -> bool:
        return sys.stderr.isatty()

    def write(self, text: str) -> None:
        self._print(text)

    def flush(self) -> None: ...
