"""Changing one line in place: the text is there, and the usual keys work on it."""

import codecs
import os
import re
from typing import Literal

from odin.ui.question.tty import Tty, forget_typed, key_by_key, read_some
from odin.ui.terminal import visible, width

_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|\x1b\[?[0-9;]*|[\s\S]")

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
}


class Line:
    """A line and the place of the cursor in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at: int = len(text)
        self._begun = ""

    def press(self, keys: str) -> Literal["", "done", "closed"]:
        """Take what was typed: it is done at the line end, and closed by Ctrl-D on an empty line."""
        keys, self._begun = self._begun + keys, ""
        for found in _KEY.finditer(keys):
            key = found[0]
            if key[0] == "\x1b" and key not in _MOVES and found.end() == len(keys):
                self._begun = key if len(key) < 8 and not key[-1].isalpha() else ""
            elif key in "\r\n":
                return "done"
            elif key == "\x04" and not self.text:
                return "closed"
            elif key in _MOVES:
                self._move(_MOVES[key])
            elif visible(key) == key:
                self.text = self.text[: self.at] + key + self.text[self.at :]
                self.at += 1
        return ""

    def _move(self, name: str) -> None:
        text, at = self.text, self.at
        if name == "left":
            self.at = max(at - 1, 0)
        elif name == "right":
            self.at = min(at + 1, len(text))
        elif name == "home":
            self.at = 0
        elif name == "end":
            self.at = len(text)
        elif name == "back" and at:
            self.text, self.at = text[: at - 1] + text[at:], at - 1
        elif name == "delete":
            self.text = text[:at] + text[at + 1 :]
        elif name == "clear":
            self.text, self.at = text[at:], 0
        elif name == "cut":
            self.text = text[:at]

    def drawn(self, label: str, columns: int) -> str:
        """The line on a terminal: as much around the cursor as fits behind the label."""
        room = max(columns - width(label) - 1, 8)
        first, last = self.at, self.at
        while width(self.text[first:last]) < room and (first > 0 or last < len(self.text)):
            wider = (max(first - 1, 0), min(last + 1, len(self.text)))
            if width(self.text[wider[0] : wider[1]]) > room:
                break
            first, last = wider
        back = width(self.text[self.at : last])
        return f"\r\x1b[K{label}{self.text[first:last]}" + (f"\x1b[{back}D" if back else "")


def can_change(text: str) -> bool:
    """Whether a text can be changed in one line: nothing in it is hidden, and it is not several lines."""
    return visible(text) == text


async def change_line(tty: Tty, label: str, text: str) -> str | None:
    """What a person makes of this text; None when the terminal is closed or Ctrl-D was typed."""
    forget_typed(tty.fd)
    if os.environ.get("TERM", "") in ("", "dumb"):
        typed = await tty.line(f"{label}(was: {text}) ")
        return typed.rstrip("\n") if typed and can_change(typed.rstrip("\n")) else None
    line, decoder = Line(text), codecs.getincrementaldecoder("utf-8")("replace")
    with key_by_key(tty.fd):
        while True:
            tty.say(line.drawn(label, tty.columns()))
            typed = await read_some(tty.fd)
            state = line.press(decoder.decode(typed)) if typed else "closed"
            if state:
                tty.say(f"{line.drawn(label, tty.columns())}\n")
                return line.text if state == "done" else None
