"""The colours of what a command printed. Only those of letters are kept, so nothing can be hidden by them."""

import re

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from odin.ui.tui.paint.foreign import keep_colors, sanitize

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
