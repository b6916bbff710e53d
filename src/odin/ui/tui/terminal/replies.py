"""What a terminal answers when it is asked for the colour of its background, and Alt where it says it unclearly.

It is asked after the first frame, so nobody waits for it. Textual would take the answer for keys that were pressed, so
it is taken out of what arrives before Textual reads it.
"""

import re
import time
from collections.abc import Callable, Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

from odin.ui.tui.terminal.bracketed import PasteParser

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
