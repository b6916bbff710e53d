"""What a terminal marks as pasted, taken out of what arrives in large parts. Textual would look at every character.

What a terminal answers when it is asked for the colour of its background, and Alt where it says it unclearly.

It is asked after the first frame, so nobody waits for it. Textual would take the answer for keys that were pressed, so
it is taken out of what arrives before Textual reads it.

What somebody typed before the app had the terminal. Until then the terminal itself gathers lines.
"""

import os
import re
import select
import termios
import time
from collections.abc import Callable, Iterable, Iterator

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
MAX_PASTE_CHARS = 20_000_000
"""What follows is only passed over; so much is refused anyway."""


class PasteParser:
    """Tells keys from pastes, also when their marks come in pieces."""

    def __init__(self) -> None:
        self._parts: list[str] | None = None
        self._size = 0
        self._held = ""

    def split(self, data: str) -> Iterator[tuple[str, bool]]:
        """The parts of what arrived, in order, each with whether it is a whole paste."""
        data, self._held = self._held + data, ""
        while data:
            if self._parts is None:
                keys, begun, data = data.partition(PASTE_BEGIN)
                if not begun:
                    keys, self._held = _hold_back(keys, PASTE_BEGIN, least=3)
                if keys:
                    yield keys, False
                if begun:
                    self._parts, self._size = [], 0
                continue
            text, ended, rest = _split_paste(data)
            if not ended:
                text, self._held = _hold_back(text, PASTE_END)
            self._keep(text)
            if ended:
                whole, self._parts = "".join(self._parts), None
                yield whole, True
            data = rest

    def _keep(self, text: str) -> None:
        if self._parts is not None and self._size <= MAX_PASTE_CHARS:
            self._parts.append(text)
            self._size += len(text)


def _split_paste(data: str) -> tuple[str, str, str]:
    """What was pasted, its end mark and what follows. An end mark inside of what is pasted ends nothing.

    Whoever wrote it there wants what is behind it to be taken for keys; the real mark comes with it.
    """
    before, begun, after = data.partition(PASTE_BEGIN)
    text, ended, rest = before.rpartition(PASTE_END)
    return (text, ended, rest + begun + after) if ended else data.partition(PASTE_END)


def _hold_back(text: str, mark: str, least: int = 1) -> tuple[str, str]:
    """Without what may be the beginning of a mark, at least so many characters of it, and that.

    Esc alone, or with a bracket, is never held back: those are keys.
    """
    for size in range(min(len(mark) - 1, len(text)), least - 1, -1):
        if mark.startswith(text[-size:]):
            return text[:-size], text[-size:]
    return text, ""


BACKGROUND_REQUEST = "\x1b]11;?\x1b\\"
PATIENCE_S = 5.0
"""How long an answer may take. Afterwards what looks like one is what somebody types."""

_BACKGROUND_REPLY = re.compile(
    "\x1b\\]11;rgb:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})(?:\x1b\\\\|\x07)"
)
_REPLY_START = re.compile("\x1b\\](?:1(?:1(?:;[rgb:0-9a-fA-F/]{0,18}\x1b?)?)?)?\\Z")

_ALT_KEY = re.compile("\x1b([\rac-eg-zA-NQ-WYZ0-9_.,<>/?=+*-])")
"""The rest begins longer sequences, or is known to Textual: Alt+B and Alt+F go by words."""

_MAX_TYPED = 64
"""More at once was not typed."""


class BackgroundReported(Message):
    """The terminal said what is behind its text."""

    def __init__(self, light: bool) -> None:
        super().__init__()
        self.light = light


class BackgroundQuery:
    """Takes the answers out of what arrives, also when they come in pieces."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._held = ""

    def ask(self, write: Callable[[str], None]) -> None:
        self._until = self._clock() + PATIENCE_S
        write(BACKGROUND_REQUEST)

    def extract(self, data: str) -> tuple[str, list[bool]]:
        """What is left of it, and for each answer whether the background is light."""
        data, self._held = self._held + data, ""
        if self._clock() >= self._until:
            return data, []
        told = [_is_light(*found.groups()) for found in _BACKGROUND_REPLY.finditer(data)]
        data = _BACKGROUND_REPLY.sub("", data)
        if begun := _REPLY_START.search(data):
            data, self._held = data[: begun.start()], begun[0]
        return data, told


BACKGROUND_QUERY = BackgroundQuery()
"""Of the one terminal there is."""


class ReplyParser(XTermParser):
    """Textual's parser, which sees neither these answers nor what is pasted."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = PasteParser()

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
        for part, pasted in self._pastes.split(data):
            if pasted:
                yield events.Paste(part)
            else:
                yield from self._feed_keys(part)

    def _feed_keys(self, data: str) -> Iterable[Message]:
        rest, told = BACKGROUND_QUERY.extract(data)
        yield from (BackgroundReported(light) for light in told)
        if rest:
            yield from super().feed(with_alt(rest))


def with_alt(data: str) -> str:
    """Alt with a key, as most terminals send it: Esc and the key at once. Textual would type a `^` and the key.

    It is written as terminals do that can say it clearly. What Textual knows already is left as it is.
    """
    if "\x1b" not in data or len(data) > _MAX_TYPED:
        return data
    return _ALT_KEY.sub(lambda found: f"\x1b[{ord(found[1])};3u", data)


def _is_light(red: str, green: str, blue: str) -> bool:
    """The parts of a colour come in hexadecimal digits, as many as the terminal likes."""
    parts = [int(part, 16) / (16 ** len(part) - 1) for part in (red, green, blue)]
    return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 0.5


_MAX_BYTES = 100_000


def read_typeahead(fd: int) -> list[str]:
    """The whole lines that wait there; each was ended with Enter, which the app could not tell from Ctrl+J later.

    What was typed behind the last Enter stays where it is, and comes to the app as keys.
    """
    data = b""
    try:
        if not os.isatty(fd) or not termios.tcgetattr(fd)[3] & termios.ICANON:
            return []
        while len(data) < _MAX_BYTES and select.select([fd], [], [], 0)[0]:
            part = os.read(fd, 4096)
            if not part:
                break
            data += part
    except (OSError, termios.error):
        return []
    return data.decode("utf-8", "replace").splitlines()
