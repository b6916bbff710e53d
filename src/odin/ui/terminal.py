"""Text for a terminal: with everything hidden shown, unable to steer it, and no wider than there is room."""

import os
import re
from collections.abc import Mapping
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

_CONTROL_ESCAPES = _Escapes((0, 8), (0x0B, 0x1F), *_CONTROL)
_HIDDEN_ESCAPES = _Escapes((0, 0x1F), *_CONTROL, *_INVISIBLE)


def is_dumb(env: Mapping[str, str]) -> bool:
    """Whether the terminal, as far as it says, understands nothing but lines: no sequence may be sent to it."""
    return env.get("TERM", "") in ("", "dumb", "unknown")


def escape_hidden(text: str) -> str:
    """One line with nothing hidden: control, direction and zero-width characters escaped, long padding counted."""
    return re.sub(" {16,}", lambda found: f"⟨{len(found[0])} spaces⟩", text.translate(_HIDDEN_ESCAPES))


def escape_control(text: str) -> str:
    """Text for a terminal that keeps its lines but cannot steer the terminal."""
    return text.translate(_CONTROL_ESCAPES)


def write_text(err: TextIO | None, text: str) -> None:
    """Write to a stream of messages. One that is closed or speaks another encoding is no reason to fail."""
    if err is None:
        return
    try:
        err.write(text.encode(err.encoding or "utf-8", "replace").decode(err.encoding or "utf-8"))
        err.flush()
    except (OSError, ValueError):
        return


def size_of(stream: TextIO | int | None) -> tuple[int, int]:
    """Columns and rows of this terminal; 80 and 24 when it does not say."""
    try:
        size = os.get_terminal_size(
            stream if isinstance(stream, int) else stream.fileno() if stream is not None else -1
        )
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def write_line(err: TextIO | None, text: str) -> None:
    """A line of ours, with nothing hidden in it; on a terminal broken between words."""
    shown = escape_hidden(text)
    if err is not None and err.isatty():
        shown = wrap_words(shown, size_of(err)[0])
    write_text(err, f"{shown}\n")


def width_of(text: str) -> int:
    """Columns a text takes: wide characters count as two."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def shorten(text: str, room: int) -> str:
    """At most `room` columns, with a mark where something is missing."""
    if width_of(text) <= room:
        return text
    return _split_columns(text, room - 1)[0] + "…" if room > 1 else "…"[: max(room, 0)]


def wrap_words(text: str, columns: int, indent: str = "") -> str:
    """A sentence in rows of a terminal, broken between words. Rows after the first begin with the indent."""
    row, *words = text.split(" ")
    rows: list[str] = []
    for word in words:
        if row.strip() and width_of(row) + 1 + width_of(word) >= columns:
            rows.append(row)
            row = indent + word
        else:
            row = f"{row} {word}"
    return "\n".join([*rows, row])


def quote_block(text: str, columns: int) -> list[str]:
    """Text that is not ours, whole and with nothing hidden: a bar before each line, a colon where a line goes on.

    No row reaches the edge of the terminal, so that none can pass for one of ours.
    """
    rows: list[str] = []
    for line in text.split("\n"):
        first, *more = _split_columns(escape_hidden(line), max(columns - 5, 20))
        rows += [f"  | {first}", *(f"  : {piece}" for piece in more)]
    return rows


def _split_columns(text: str, room: int) -> list[str]:
    """A text cut into what fits into so many columns each; at least one piece."""
    if text.isascii():
        return [text[start : start + room] for start in range(0, len(text), room)] or [""]
    from unicodedata import east_asian_width

    cuts, used = [0], 0
    for index, character in enumerate(text):
        cells = 2 if east_asian_width(character) in "WF" else 1
        used += cells
        if used > room:
            cuts.append(index)
            used = cells
    return [text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]
