"""Text that is not ours, made fit for the screen: it cannot steer the terminal, turn its direction or hide.

The colours of what a command printed. Only those of letters are kept, so nothing can be hidden by them.
"""

import re

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from odin.ui.terminal import escape_control

_HIDDEN_CHARS = {
    code: ascii(chr(code))[1:-1]
    for code in (
        *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x200B, 0x200E, 0x200F, 0x3164, 0xFEFF, 0xFFA0),
        *range(0x2028, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFFF9, 0xFFFC),
        *range(0xE0000, 0xE1000),
    )
}
"""What turns the direction of text, takes no place or ends a line unseen. Joiners within emoji stay.

The last are letters that nobody sees and a model reads.
"""

_JOINED_EMOJI = re.compile(
    "(?:[^\u200d\\s][\ufe0f\U0001f3fb-\U0001f3ff]?)?(?:\u200d+(?:[^\u200d\\s][\ufe0f\U0001f3fb-\U0001f3ff]?)?)+"
)
_MAX_JOINED = 4
"""No picture of Unicode joins more."""

_TAB = 4
_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)
_COLOR = re.compile(r"\x1b\[[0-9;:]*m")


def sanitize(text: str) -> str:
    """Keeps its lines; control and direction characters are spelled out, tabs are spaces."""
    if text.isascii() and text.isprintable():
        return text
    if "\t" in text:
        text = "\n".join(line.expandtabs(_TAB) for line in text.split("\n"))
    if "\u200d" in text:
        text = _JOINED_EMOJI.sub(_split_joined, text)
    return escape_control(text.replace("\r\n", "\n").translate(_HIDDEN_CHARS))


def _split_joined(found: re.Match[str]) -> str:
    """A family of a few stays one picture; letters that are joined would be counted as one and take more."""
    parts = found[0].split("\u200d")
    picture = len(parts) <= _MAX_JOINED and all(part and part[0] >= "\u2190" for part in parts)
    return found[0] if picture else "".join(parts)


def sanitize_line(text: str) -> str:
    """The same as one line, with single spaces."""
    return sanitize(" ".join(text.split()))


def keep_colors(text: str) -> str:
    """What a command printed, without everything that steers a terminal but its colours."""
    if "\x1b" not in text:
        return text
    return _SEQUENCE.sub(lambda found: found[0] if _COLOR.fullmatch(found[0]) else "", text)


def strip_escapes(text: str) -> str:
    return _SEQUENCE.sub("", text) if "\x1b" in text else text


_STYLE_CODES = re.compile(r"\x1b\[([0-9;:]*)m")
_MAX_DIGITS = 6
"""No code needs more, and Python refuses to read a number of thousands."""
_ATTRIBUTES = {
    1: Style(bold=True),
    3: Style(italic=True),
    4: Style(underline=True),
    22: Style(bold=False),
    23: Style(italic=False),
    24: Style(underline=False),
}


class AnsiPen:
    """What holds at a place of the output: a colour and how letters look."""

    def __init__(self, base: Style) -> None:
        self._base = base
        self.style = base

    def read_codes(self, codes: str) -> None:
        numbers = [int(part[:_MAX_DIGITS] or 0) for part in re.split("[;:]", codes)]
        while numbers:
            self._apply_code(numbers.pop(0), numbers)

    def _apply_code(self, code: int, rest: list[int]) -> None:
        if code == 0:
            self.style = self._base
        elif code in _ATTRIBUTES:
            self.style += _ATTRIBUTES[code]
        elif 30 <= code <= 37 or 90 <= code <= 97:
            number = code - 30 if code < 40 else code - 82
            self.style += Style(color=Color.from_ansi(number))
        elif code == 39 and self._base.color is not None:
            self.style += Style(color=self._base.color)
        elif code in (38, 48):
            colour = _parse_extended_color(rest)
            if code == 38 and colour is not None:
                self.style += Style(color=colour)


def _parse_extended_color(rest: list[int]) -> Color | None:
    """A colour of 256 or of all; what was read is taken from `rest`."""
    kind = rest.pop(0) if rest else 0
    if kind == 5 and rest:
        return Color.from_ansi(min(rest.pop(0), 255))
    if kind == 2 and len(rest) >= 3:
        red, green, blue = (min(rest.pop(0), 255) for _ in range(3))
        return Color.from_rgb(red, green, blue)
    return None


def parse_ansi(text: str, base: Style) -> list[list[Segment]]:
    """The lines of an output with its own colours upon `base`."""
    if "\x1b" not in text:
        return [[Segment(line, base)] if line else [] for line in sanitize(text).split("\n")]
    pen = AnsiPen(base)
    lines: list[list[Segment]] = []
    for line in keep_colors(text).split("\n"):
        found: list[Segment] = []
        for number, piece in enumerate(_STYLE_CODES.split(line)):
            if number % 2:
                pen.read_codes(piece)
            elif piece:
                found.append(Segment(sanitize(piece), pen.style))
        lines.append(found)
    return lines
