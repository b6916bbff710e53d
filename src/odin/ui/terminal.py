"""Text for a terminal: with everything hidden shown, unable to steer it, and no wider than there is room."""

import re
from typing import TextIO


class _Escapes:
    """Spells out the characters of these ranges, for `str.translate`."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._ranges = ranges

    def __getitem__(self, code: int) -> str:
        if any(first <= code <= last for first, last in self._ranges):
            return ascii(chr(code))[1:-1]
        raise LookupError


_CONTROL = ((0x7F, 0x9F), (0xD800, 0xDFFF))
_INVISIBLE = (
    (0xA0, 0xA0),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x2800, 0x2800),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xE0000, 0xE0FFF),
)
"""What takes no place, turns the direction of text, or looks like a space and is none."""

_STEERING = _Escapes((0, 8), (0x0B, 0x1F), *_CONTROL)
_HIDDEN = _Escapes((0, 0x1F), *_CONTROL, *_INVISIBLE)


def visible(text: str) -> str:
    """One line with nothing hidden: control, direction and zero-width characters escaped, long padding counted."""
    return re.sub(" {16,}", lambda found: f"⟨{len(found[0])} spaces⟩", text.translate(_HIDDEN))


def harmless(text: str) -> str:
    """Text for a terminal that keeps its lines but cannot steer the terminal."""
    return text.translate(_STEERING)


def put(err: TextIO | None, text: str) -> None:
    """Write to a stream of messages. One that is closed or speaks another encoding is no reason to fail."""
    if err is None:
        return
    try:
        err.write(text.encode(err.encoding or "utf-8", "replace").decode(err.encoding or "utf-8"))
        err.flush()
    except (OSError, ValueError):
        return


def shorten(text: str, room: int) -> str:
    """At most `room` columns, wide characters counted as two."""
    if len(text) <= room and text.isascii():
        return text
    from unicodedata import east_asian_width

    used = 0
    for index, character in enumerate(text):
        used += 2 if east_asian_width(character) in "WF" else 1
        if used > room:
            return text[: max(index - 1, 0)] + "…"
    return text
