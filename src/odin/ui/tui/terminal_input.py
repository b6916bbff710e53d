"""Terminal input: bracketed pastes, replies of the terminal, Alt keys, and type-ahead.

These are taken out of the input before Textual parses it. Textual would parse a paste character by character, and
read the background reply, which is requested after the first frame, as key presses. It would also read as key presses
the reply to a query of a mode whose rest comes late: the last of them is `y`.
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
"""The rest of a longer paste is dropped; the composer refuses pastes of this size anyway."""


class PasteParser:
    """Separates bracketed pastes from keys, even if the paste marks arrive in pieces."""

    def __init__(self) -> None:
        self._parts: list[str] | None = None
        self._size = 0
        self._partial = ""

    def split(self, data: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of the input in order, each with True if it is a complete paste."""
        data, self._partial = self._partial + data, ""
        while data:
            if self._parts is None:
                keys, start, data = data.partition(PASTE_BEGIN)
                if not start:
                    keys, self._partial = _hold_back(keys, PASTE_BEGIN, least=3)
                if keys:
                    yield keys, False
                if start:
                    self._parts, self._size = [], 0
                continue
            text, ended, rest = _split_paste(data)
            if not ended:
                text, self._partial = _hold_back(text, PASTE_END)
            if self._size <= MAX_PASTE_CHARS:
                self._parts.append(text)
                self._size += len(text)
            if ended:
                whole, self._parts = "".join(self._parts), None
                yield whole, True
            data = rest


def _split_paste(data: str) -> tuple[str, str, str]:
    """Return the pasted text, the end mark and the rest.

    An end mark within the pasted text is an injection attempt: the text after it would be read as keys. The last mark
    is the real one.
    """
    before, start, after = data.partition(PASTE_BEGIN)
    text, ended, rest = before.rpartition(PASTE_END)
    return (text, ended, rest + start + after) if ended else data.partition(PASTE_END)


def _hold_back(text: str, mark: str, least: int = 1) -> tuple[str, str]:
    """Split off the end of `text` if it may be the start of `mark`, at least `least` characters.

    With `least=3`, Esc and `Esc [` are not held back, because they are keys.
    """
    for size in range(min(len(mark) - 1, len(text)), least - 1, -1):
        if mark.startswith(text[-size:]):
            return text[:-size], text[-size:]
    return text, ""


BACKGROUND_REQUEST = "\x1b]11;?\x1b\\"
REPLY_TIMEOUT_S = 5.0
"""How long to wait for the reply; later input is never taken for one."""

_BACKGROUND_REPLY = re.compile(
    "\x1b\\]11;rgb:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})(?:\x1b\\\\|\x07)"
)
_REPLY_START = re.compile("\x1b\\](?:1(?:1(?:;[rgb:0-9a-fA-F/]{0,18}\x1b?)?)?)?\\Z")

_MODE_REPLY_START = re.compile("\x1b\\[\\?[0-9;]{0,12}\\$?\\Z")
"""No key sends this, so it can wait for the rest."""

_ALT_KEY = re.compile("\x1b([\rac-eg-zA-NQ-WYZ0-9_.,<>/?=+*-])")
"""Other characters after Esc start longer sequences or are known to Textual, like Alt+B and Alt+F."""

_MAX_TYPED = 64
"""Longer input was not typed, so it has no Alt keys."""


class BackgroundReported(Message):
    """The terminal reported its background color."""

    def __init__(self, light: bool) -> None:
        super().__init__()
        self.light = light


class BackgroundQuery:
    """Asks for the background color (OSC 11) and extracts the reply from the input, even in pieces."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._partial = ""

    def ask(self, write: Callable[[str], None]) -> None:
        self._until = self._clock() + REPLY_TIMEOUT_S
        write(BACKGROUND_REQUEST)

    def extract(self, data: str) -> tuple[str, list[bool]]:
        """Return the input without replies, and for each reply whether the background is light."""
        data, self._partial = self._partial + data, ""
        if self._clock() >= self._until:
            return data, []
        replies = [_is_light(*match.groups()) for match in _BACKGROUND_REPLY.finditer(data)]
        data = _BACKGROUND_REPLY.sub("", data)
        if start := _REPLY_START.search(data):
            data, self._partial = data[: start.start()], start[0]
        return data, replies


BACKGROUND_QUERY = BackgroundQuery()
"""Shared by the app, which asks, and the driver, which reads; a process has only one terminal."""


class ReplyParser(XTermParser):
    """Textual's parser, behind the extraction of pastes and background replies."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = PasteParser()
        self._partial = ""

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
        for part, pasted in self._pastes.split(data):
            if pasted:
                yield events.Paste(part)
            else:
                yield from self._feed_keys(part)

    def _feed_keys(self, data: str) -> Iterable[Message]:
        rest, replies = BACKGROUND_QUERY.extract(data)
        yield from (BackgroundReported(light) for light in replies)
        rest, self._partial = self._partial + rest, ""
        if start := _MODE_REPLY_START.search(rest):
            rest, self._partial = rest[: start.start()], start[0]
        if rest:
            yield from super().feed(with_alt(rest))


def with_alt(data: str) -> str:
    """Rewrite Alt+key, which most terminals send as Esc and the key, as a kitty key sequence.

    Textual would read it as `^` and the key. Combinations that Textual knows stay as they are.
    """
    if "\x1b" not in data or len(data) > _MAX_TYPED:
        return data
    return _ALT_KEY.sub(lambda match: f"\x1b[{ord(match[1])};3u", data)


def _is_light(red: str, green: str, blue: str) -> bool:
    """True if the perceived brightness is above one half. Each part has one to four hexadecimal digits."""
    parts = [int(part, 16) / (16 ** len(part) - 1) for part in (red, green, blue)]
    return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 0.5


_MAX_BYTES = 100_000


def read_typeahead(fd: int) -> list[str]:
    """Return the complete lines typed before the app took over the terminal.

    They are read in line mode, because in raw mode their Enter could not be told from Ctrl+J. An incomplete last line
    stays in the terminal and arrives as keys.
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
