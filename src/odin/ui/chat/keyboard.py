"""The keyboard of a conversation: a line can be typed at any time, also while a turn runs."""

import asyncio
import codecs
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TextIO

from odin.ui.chat.completing import Completion
from odin.ui.progress import Progress
from odin.ui.question.lineedit import PASTES_OFF, PASTES_ON, Line
from odin.ui.question.tty import Tty
from odin.ui.terminal import dumb, folded, shorten, visible, width

_ROW = re.compile(r"(?<=[\r\n])")
_REMEMBERED = 200
"""Lines that can be called back with the arrow keys."""
_ROWS = 5
"""Rows that a line takes at most when it is done."""


class Keyboard:
    """One line at the bottom of the terminal. `label` stands before it; `take` gets what was typed, None at the end.

    While a turn runs its progress has that line, until something is typed; while a person is asked something else, the
    whole terminal belongs to whoever asks (`hold`), and what was typed so far comes back afterwards. `stays`: the line
    that is taken can still be read above.
    """

    def __init__(
        self,
        keyboard: TextIO,
        err: TextIO,
        label: Callable[[], str],
        take: Callable[[str | None], None],
        complete: Callable[[str], Awaitable[Completion | None]],
    ) -> None:
        self._tty = Tty(keyboard, err)
        self._label = label
        self._take = take
        self._complete = complete
        self._completing: asyncio.Task[None] | None = None
        self._typed: list[str] = []
        self._line = self._empty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._edits = not dumb(os.environ)
        self._before: list[Any] | None = None
        self._progress: Progress | None = None
        self._covers = False
        self._drawn = False
        self._on_screen = ""
        self._silent = True
        self._held = 0
        self.stays = False

    @property
    def busy(self) -> bool:
        """Whether a turn is being followed."""
        return self._progress is not None

    @property
    def held(self) -> bool:
        """Whether somebody else has the terminal."""
        return self._held > 0

    @property
    def text(self) -> str:
        return self._line.text

    def open(self) -> None:
        self._listen()

    def close(self) -> None:
        if self._completing is not None:
            self._completing.cancel()
        self._clear()
        self._deafen()

    # --- who has the terminal ---

    def attach(self, progress: Progress) -> None:
        """A turn begins: its progress has the line until somebody types."""
        self._clear()
        self._progress, self._silent = progress, False
        if self._line.text:
            self._draw()

    def detach(self) -> None:
        """It is over, and its answer is about to be shown."""
        self._clear()
        self._uncover()
        self._progress, self._silent = None, True

    def show(self) -> None:
        """Nothing runs: the prompt, with what was typed meanwhile."""
        if self._held or self._progress is not None:
            return
        self._silent = False
        if not self._drawn:
            self._tty.say(self._label())
            self._drawn, self._on_screen = True, self._label()
        self._draw()

    def hold(self) -> None:
        """Somebody else reads and writes here until `release`."""
        if not self._held:
            self._clear()
            self._deafen()
            if self._progress is not None:
                self._progress.hold()
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        if not self._held:
            if self._progress is not None:
                self._progress.release()
            self._listen()
            self._draw()

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """Something is said above the line."""
        drawn = self._drawn
        self._clear()
        if self._progress is not None:
            self._progress.hold()
        try:
            yield
        finally:
            if self._progress is not None:
                self._progress.release()
            if drawn:
                self.show() if self._progress is None else self._draw()

    def forget(self) -> None:
        """What was typed so far is not meant."""
        self._line = self._empty()
        self._draw()

    def come_back(self) -> None:
        """We were stopped (Ctrl-Z) and go on: the shell had the terminal and left it in its own way."""
        if self._before is not None:
            self._key_by_key()
            self.redraw()

    def redraw(self) -> None:
        """The line anew, whatever is on the terminal: it has another size, or somebody else wrote there."""
        self._on_screen = ""
        self._draw()

    # --- keys ---

    def _listen(self) -> None:
        import termios

        if self._edits and self._before is None:
            self._before = termios.tcgetattr(self._tty.fd)
            self._key_by_key()
        asyncio.get_running_loop().add_reader(self._tty.fd, self._ready)

    def _key_by_key(self) -> None:
        import termios

        changed = termios.tcgetattr(self._tty.fd)
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._tty.fd, termios.TCSANOW, changed)
        self._tty.say(PASTES_ON)

    def _deafen(self) -> None:
        import termios

        asyncio.get_running_loop().remove_reader(self._tty.fd)
        if self._before is not None:
            self._tty.say(PASTES_OFF)
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._tty.fd, termios.TCSANOW, self._before)
            self._before = None

    def _ready(self) -> None:
        try:
            data = os.read(self._tty.fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._deafen()
            self._take(None)
            return
        for row in _ROW.split(self._decoder.decode(data)):
            state = self._line.press(row) if row else ""
            if state == "done":
                self._finish()
            elif state == "closed" and not self.busy:
                self._tty.say("\n")
                self._take(None)
        self._draw()

    def _finish(self) -> None:
        text = self._line.text
        self.stays = self._progress is None and not self._silent
        if self.stays and self._edits:
            self._draw()
            self._tty.say(f"{self._whole()}\n")
            self._drawn = False
        self._clear()
        self._remember(text)
        self._line = self._empty()
        self._uncover()
        self._silent = self._silent or self._progress is None
        self._take(text)

    def _whole(self) -> str:
        """What must still be written so that a long line can be read from its beginning."""
        if self._on_screen:
            return ""
        label = self._label()
        return f"\r\x1b[K{label}{shorten(self._line.shown, _ROWS * self._tty.columns() - width(label))}"

    def _remember(self, text: str) -> None:
        if text.strip() and self._typed[-1:] != [text]:
            self._typed = [*self._typed, text][-_REMEMBERED:]

    def _empty(self) -> Line:
        return Line("", self._typed, self._tab)

    def _tab(self, line: Line) -> None:
        if self._completing is None or self._completing.done():
            self._completing = asyncio.get_running_loop().create_task(self._completed(line, line.text, line.at))

    async def _completed(self, line: Line, text: str, at: int) -> None:
        """What was found is only of use when nothing was typed meanwhile."""
        found = await self._complete(text[:at])
        if found is None or line is not self._line or (line.text, line.at) != (text, at):
            return
        line.replace(found.start, found.insert)
        if found.choices and not self._held:
            with self.aside():
                self._tty.say(f"{folded('  '.join(map(visible, found.choices)), self._tty.columns())}\n")
        self._draw()

    # --- drawing ---

    def _draw(self) -> None:
        if self._held or self._silent or not self._edits:
            return
        if self._progress is not None and not self._line.text:
            self._clear()
            self._uncover()
            return
        if self._progress is not None and not self._covers:
            self._progress.hold()
            self._covers = True
        self._tty.say(self._change_on_screen())
        self._drawn = True

    def _change_on_screen(self) -> str:
        """What must be written so that the line is there: mostly the letters that were typed at its end."""
        line, columns = self._line, self._tty.columns()
        before, now = self._on_screen if self._drawn else "", f"{self._label()}{line.shown}"
        plain = line.at == len(line.text) and width(now) < columns
        self._on_screen = now if plain else ""
        if plain and before and now.startswith(before):
            return now[len(before) :]
        return line.drawn(self._label(), columns)

    def _uncover(self) -> None:
        if self._covers and self._progress is not None:
            self._covers = False
            self._progress.release()

    def _clear(self) -> None:
        if self._drawn and self._edits:
            self._tty.say("\r\x1b[K")
        self._drawn = False
