"""Editing text in plain mode: a line editor, and the user's $EDITOR for tool arguments and drafts."""

import asyncio
import codecs
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.sandbox.terminal import make_terminal_programs
from odin.ui.terminal import (
    Tty,
    discard_typed,
    enter_cbreak_mode,
    escape_hidden,
    find_editor,
    is_dumb,
    measure_width,
    quote_block,
    read_chunk,
    restore_terminal_after,
    write_line,
    write_text,
)

_KEY_SEQUENCE = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|\x1b\[?[0-9;]*|[\s\S]")

_MOVES = {
    "\x1b[D": "left",
    "\x1b[C": "right",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOD": "left",
    "\x1bOC": "right",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[3~": "delete",
    "\x01": "home",
    "\x05": "end",
    "\x02": "left",
    "\x06": "right",
    "\x08": "back",
    "\x7f": "back",
    "\x15": "clear",
    "\x0b": "cut",
    "\x17": "word",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x10": "up",
    "\x0e": "down",
}

_CURSOR_STEPS: dict[str, Callable[[int, int], int]] = {
    "left": lambda at, end: max(at - 1, 0),
    "right": lambda at, end: min(at + 1, end),
    "home": lambda at, end: 0,
    "end": lambda at, end: end,
}

_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
BRACKETED_PASTE_ON, BRACKETED_PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""With bracketed paste, the line ends of pasted text do not send it."""

_SCREEN_SYMBOLS = {ord("\n"): "↵", ord("\t"): " "}


class LineEditor:
    """A text with a cursor. Pasted text may contain line breaks.

    `history` are earlier lines, newest last. `complete` is called for Tab.
    """

    def __init__(
        self, text: str, history: Sequence[str] = (), complete: Callable[["LineEditor"], None] | None = None
    ) -> None:
        self.text = text
        self.cursor: int = len(text)
        self._partial_key = ""
        self._pasting = False
        self._pasted = ""
        self._history = history
        self._complete = complete
        self._history_offset = 0
        self._unsent = text

    @property
    def display_text(self) -> str:
        """The text as one row, with one character for each of its own."""
        return self.text.translate(_SCREEN_SYMBOLS)

    def press(self, keys: str) -> Literal["", "done", "closed"]:
        """Process keys. Return "done" at Enter and "closed" at Ctrl-D on an empty line."""
        keys, self._partial_key = self._partial_key + keys, ""
        for found in _KEY_SEQUENCE.finditer(keys):
            key = found[0]
            if key in (_PASTE_START, _PASTE_END):
                self._pasting, self._pasted = key == _PASTE_START, ""
            elif key[0] == "\x1b" and key not in _MOVES and found.end() == len(keys):
                self._partial_key = key if len(key) < 8 and not key[-1].isalpha() else ""
            elif self._pasting:
                # Terminals send the line ends of pasted text as CR, LF or both.
                if key in "\r\n":
                    self._insert("" if key == "\n" and self._pasted == "\r" else "\n")
                else:
                    self._insert(key)
                self._pasted = key
            elif key in "\r\n":
                return "done"
            elif key == "\x04" and not self.text:
                return "closed"
            elif key == "\t" and self._complete is not None:
                self._complete(self)
            elif key in _MOVES:
                name = _MOVES[key]
                text, at = self.text, self.cursor
                if name in _CURSOR_STEPS:
                    self.cursor = _CURSOR_STEPS[name](at, len(text))
                elif name in ("up", "down"):
                    back = self._history_offset + (1 if name == "up" else -1)
                    if 0 <= back <= len(self._history):
                        self._unsent = self.text if not self._history_offset else self._unsent
                        self._history_offset = back
                        self.text = self._history[-back] if back else self._unsent
                        self.cursor = len(self.text)
                else:
                    first, last = self._find_cut_span(name)
                    self.text, self.cursor = text[:first] + text[last:], first
            else:
                self._insert(key)
        return ""

    def _insert(self, key: str) -> None:
        if key > "\x7f" and key.isspace():
            key = " "
        if escape_hidden(key) == key or (self._pasting and key in "\n\t"):
            self.text = self.text[: self.cursor] + key + self.text[self.cursor :]
            self.cursor += len(key)

    def replace(self, start: int, text: str) -> None:
        """Replace the text from `start` to the cursor."""
        self.text = self.text[:start] + text + self.text[self.cursor :]
        self.cursor = start + len(text)

    def _find_cut_span(self, name: str) -> tuple[int, int]:
        """Return the range that a deleting key removes."""
        text, at = self.text, self.cursor
        if name == "back":
            return max(at - 1, 0), at
        if name == "delete":
            return at, at + 1
        if name == "clear":
            return 0, at
        if name == "cut":
            return at, len(text)
        rest = text[:at].rstrip()
        return max(rest.rfind(" "), rest.rfind("\n")) + 1, at

    def render(self, label: str, columns: int) -> str:
        """Return the sequence that draws the label and the part of the line around the cursor that fits."""
        text, width = self.display_text, max(columns - measure_width(label) - 1, 8)
        first, last = self.cursor, self.cursor
        while measure_width(text[first:last]) < width and (first > 0 or last < len(text)):
            wider = (max(first - 1, 0), min(last + 1, len(text)))
            if measure_width(text[wider[0] : wider[1]]) > width:
                break
            first, last = wider
        back = measure_width(text[self.cursor : last])
        return f"\r\x1b[K{label}{text[first:last]}" + (f"\x1b[{back}D" if back else "")


def can_edit_line(text: str) -> bool:
    """True if the text is one line without hidden characters."""
    return escape_hidden(text) == text


async def edit_line(tty: Tty, label: str, text: str) -> str | None:
    """Let the user edit a line. Return None after Ctrl-D or if the terminal is closed."""
    discard_typed(tty.fd)
    if is_dumb(os.environ):
        typed = await tty.ask_line(f"{label}(was: {text}) ")
        return typed.rstrip("\n") if typed and can_edit_line(typed.rstrip("\n")) else None
    line, decoder = LineEditor(text), codecs.getincrementaldecoder("utf-8")("replace")
    with enter_cbreak_mode(tty.fd):
        while True:
            tty.write(line.render(label, tty.get_columns()))
            typed = await read_chunk(tty.fd)
            state = line.press(decoder.decode(typed)) if typed else "closed"
            if state:
                tty.write(f"{line.render(label, tty.get_columns())}\n")
                return line.text if state == "done" else None


async def edit_externally(tty: Tty, client: Client, command: list[str], text: str) -> str:
    """Let the user edit a text in a private file and return it. Raise UsageError."""
    programs = make_terminal_programs(await client.get_info(), os.environ)
    with programs.open_scratch() as folder:
        path = folder / "arguments.json"
        path.write_text(text, encoding="utf-8")
        try:
            with restore_terminal_after(tty.fd):
                code = await programs.run([*command, str(path)], terminal=tty.fd)
        except OSError as error:
            raise UsageError(f"Cannot start the editor {command[0]} ({error.strerror or error}).") from error
        if code:
            raise UsageError(f"The editor {command[0]} failed with exit code {code}; nothing was changed.")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"Cannot read the edited file ({error}).") from error


async def edit_draft(draft: str, label: str, client: Client, *, outside: bool = False) -> str:
    """Let the user edit a prompt, with `outside` always in $EDITOR. Return "" if they cancel."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(_edit_draft(draft.rstrip(), label, client, outside))
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        write_text(sys.stderr, "\n")
        return ""
    except OdinError as error:
        write_line(sys.stderr, error.describe())
        return ""
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _edit_draft(draft: str, label: str, client: Client, outside: bool) -> str:
    tty = Tty(sys.stdin, sys.stderr)
    command = [] if can_edit_line(draft) and not outside else find_editor()
    if outside and not command:
        raise UsageError("No editor is set.", "Set $VISUAL or $EDITOR.")
    if command:
        return await edit_externally(tty, client, command, draft)
    if can_edit_line(draft.replace("\n", "").replace("\t", "")):
        return await edit_line(tty, label, draft) or ""
    write_text(sys.stderr, "\n".join([*quote_block(draft, tty.get_columns()), ""]))
    write_line(
        sys.stderr,
        "This prompt contains characters that cannot be edited here. Set $EDITOR to edit it, or type it again.",
    )
    return ""
