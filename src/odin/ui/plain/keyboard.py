"""The input line of plain mode, usable also while a turn runs, with history and Tab completion."""

import asyncio
import codecs
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TextIO

from msgspec import Struct

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.ui.completion import (
    CompletionItem,
    CompletionTarget,
    complete_argument,
    complete_command,
    find_target,
    make_file_items,
)
from odin.ui.plain.editors import BRACKETED_PASTE_OFF, BRACKETED_PASTE_ON, LineEditor
from odin.ui.progress import ProgressLine
from odin.ui.terminal import Tty, escape_hidden, is_dumb, measure_width, shorten, wrap_words

MAX_COMPLETIONS = 20
_RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.4)
"""Delays between file lookups while the project is being indexed for the first time."""


class Completion(Struct, frozen=True):
    """`insert` replaces the text from `start`; `choices` lists the matches if there are several."""

    start: int
    insert: str
    choices: tuple[str, ...] = ()


async def complete(client: Client, before: str) -> Completion | None:
    """Complete the text before the cursor. Return None if there is nothing to complete."""
    target = find_target(before, len(before), first=True)
    if target is None:
        return None
    choices = await _find_items(client, target)
    return pick_completion(before[target.start :], target.start, choices) if choices else None


async def _find_items(client: Client, target: CompletionTarget) -> Sequence[CompletionItem]:
    if target.kind == "argument":
        agents = await client.list_agents() if target.command == "role" else ()
        live = (await client.snapshot()).sub_agents if target.command in ("focus", "loop") else ()
        return complete_argument(target, agents, live)
    with contextlib.suppress(OdinError, OSError):
        if target.kind == "command":
            return complete_command(target.letters, await client.list_commands())
        for pause in (*_RETRY_DELAYS_S, 0.0):
            if paths := await client.find_files(target.letters, MAX_COMPLETIONS):
                return make_file_items([path for path in paths if escape_hidden(path) == path])
            await asyncio.sleep(pause)
    return ()


def pick_completion(typed: str, start: int, choices: Sequence[CompletionItem]) -> Completion:
    """Complete to the only match, or to the common prefix of several. Matches that start with the text come first."""
    starting = [choice for choice in choices if choice.insert.casefold().startswith(typed.casefold())]
    matches = starting or list(choices)
    if len(matches) == 1:
        return Completion(start, matches[0].insert)
    texts = [choice.insert for choice in matches]
    first, last = min(texts), max(texts)
    common = next((first[:at] for at, letter in enumerate(first) if letter != last[at]), first)
    if len(common) > len(typed) and starting:
        return Completion(start, common)
    return Completion(start, typed, tuple(choice.label for choice in matches[:MAX_COMPLETIONS]))


_AFTER_LINE_END = re.compile(r"(?<=[\r\n])")
_MAX_HISTORY = 200
"""Lines that the arrow keys can recall."""
_MAX_ROWS = 5
"""Maximum rows of a sent line that stays on the screen."""


class Keyboard:
    """The input line at the bottom of the terminal. `take` receives each line, and None at the end of input.

    While a turn runs, its progress uses that line until something is typed. While a dialog is open, it owns the
    terminal (`hold`), and the typed text reappears afterwards. `line_stays` is True if the last line is still visible.
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
        self._history: list[str] = []
        self._line = self._make_line()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._can_edit = not is_dumb(os.environ)
        self._saved_mode: list[Any] | None = None
        self._progress: ProgressLine | None = None
        self._covers_progress = False
        self._drawn = False
        self._on_screen = ""
        self._silent = True
        self._held = 0
        self._is_show_due = False
        self.line_stays = False

    @property
    def is_busy(self) -> bool:
        """True while a turn is shown."""
        return self._progress is not None

    @property
    def is_held(self) -> bool:
        return self._held > 0

    @property
    def text(self) -> str:
        return self._line.text

    def open(self) -> None:
        self._start_reading()

    def close(self) -> None:
        if self._completing is not None:
            self._completing.cancel()
        self._clear()
        self._stop_reading()

    # --- ownership of the terminal ---

    def attach(self, progress: ProgressLine) -> None:
        """Start of a turn: its progress uses the line until something is typed."""
        self._clear()
        self._progress, self._silent = progress, False
        if self._held:
            progress.hold()
        if self._line.text:
            self._draw()

    def detach(self) -> None:
        """End of a turn, before the rest of its answer is shown."""
        self._clear()
        self._release_progress()
        self._progress, self._silent = None, True

    def show(self) -> None:
        """Show the input prompt with what was typed meanwhile, unless a turn runs."""
        self._is_show_due = self._held > 0
        if self._held or self._progress is not None:
            return
        self._silent = False
        if not self._drawn:
            self._tty.write(self._label())
            self._drawn, self._on_screen = True, self._label()
        self._draw()

    def hold(self) -> None:
        """Stop reading and drawing until `release`: a dialog uses the terminal."""
        if not self._held:
            self._clear()
            self._stop_reading()
            if self._progress is not None:
                self._progress.hold()
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        if not self._held:
            if self._progress is not None:
                self._progress.release()
            self._start_reading()
            self.show() if self._is_show_due else self._draw()

    @contextlib.contextmanager
    def write_above(self) -> Generator[None]:
        """Clear the line while something is printed, and draw it again below."""
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

    def clear_line(self) -> None:
        self._line = self._make_line()
        self._draw()

    def resume(self) -> None:
        """Restore the terminal's mode after Ctrl-Z and fg: the shell has changed it."""
        if self._saved_mode is not None:
            self._enter_cbreak_mode()
            self.redraw()

    def redraw(self) -> None:
        """Draw the whole line again, after a resize or foreign output."""
        self._on_screen = ""
        self._draw()

    # --- keys ---

    def _start_reading(self) -> None:
        import termios

        if self._can_edit and self._saved_mode is None:
            self._saved_mode = termios.tcgetattr(self._tty.fd)
            self._enter_cbreak_mode()
        asyncio.get_running_loop().add_reader(self._tty.fd, self._read_keys)

    def _enter_cbreak_mode(self) -> None:
        import termios

        changed = termios.tcgetattr(self._tty.fd)
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._tty.fd, termios.TCSANOW, changed)
        self._tty.write(BRACKETED_PASTE_ON)

    def _stop_reading(self) -> None:
        import termios

        asyncio.get_running_loop().remove_reader(self._tty.fd)
        if self._saved_mode is not None:
            self._tty.write(BRACKETED_PASTE_OFF)
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._tty.fd, termios.TCSANOW, self._saved_mode)
            self._saved_mode = None

    def _read_keys(self) -> None:
        try:
            data = os.read(self._tty.fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._stop_reading()
            self._take(None)
            return
        for row in _AFTER_LINE_END.split(self._decoder.decode(data)):
            state = self._line.press(row) if row else ""
            if state == "done":
                self._finish_line()
            elif state == "closed" and not self.is_busy:
                self._tty.write("\n")
                self._take(None)
        self._draw()

    def _finish_line(self) -> None:
        text = self._line.text
        self.line_stays = self._progress is None and not self._silent
        if self.line_stays and self._can_edit:
            self._draw()
            self._tty.write(f"{self._render_whole()}\n")
            self._drawn = False
        self._clear()
        if text.strip() and self._history[-1:] != [text]:
            self._history = [*self._history, text][-_MAX_HISTORY:]
        self._line = self._make_line()
        self._release_progress()
        self._silent = self._silent or self._progress is None
        self._take(text)

    def _render_whole(self) -> str:
        """Return the output that shows a long line from its start once it is sent."""
        if self._on_screen:
            return ""
        label = self._label()
        room = _MAX_ROWS * self._tty.get_columns() - measure_width(label)
        return f"\r\x1b[K{label}{shorten(self._line.display_text, room)}"

    def _make_line(self) -> LineEditor:
        return LineEditor("", self._history, self._start_completion)

    def _start_completion(self, line: LineEditor) -> None:
        if self._completing is None or self._completing.done():
            self._completing = asyncio.get_running_loop().create_task(
                self._apply_completion(line, line.text, line.cursor)
            )

    async def _apply_completion(self, line: LineEditor, text: str, at: int) -> None:
        """Insert the completion, unless something was typed meanwhile."""
        found = await self._complete(text[:at])
        if found is None or line is not self._line or (line.text, line.cursor) != (text, at):
            return
        line.replace(found.start, found.insert)
        if found.choices and not self._held:
            with self.write_above():
                self._tty.write(
                    f"{wrap_words('  '.join(map(escape_hidden, found.choices)), self._tty.get_columns())}\n"
                )
        self._draw()

    # --- drawing ---

    def _draw(self) -> None:
        if self._held or self._silent or not self._can_edit:
            return
        if self._progress is not None and not self._line.text:
            self._clear()
            self._release_progress()
            return
        if self._progress is not None and not self._covers_progress:
            self._progress.hold()
            self._covers_progress = True
        self._tty.write(self._render_change())
        self._drawn = True

    def _render_change(self) -> str:
        """Return the output that updates the line: usually just the characters typed at its end."""
        line, columns = self._line, self._tty.get_columns()
        before, now = self._on_screen if self._drawn else "", f"{self._label()}{line.display_text}"
        plain = line.cursor == len(line.text) and measure_width(now) < columns
        self._on_screen = now if plain else ""
        if plain and before and now.startswith(before):
            return now[len(before) :]
        return line.render(self._label(), columns)

    def _release_progress(self) -> None:
        if self._covers_progress and self._progress is not None:
            self._covers_progress = False
            self._progress.release()

    def _clear(self) -> None:
        if self._drawn and self._can_edit:
            self._tty.write("\r\x1b[K")
        self._drawn = False
