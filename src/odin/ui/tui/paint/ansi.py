"""Reads the colors of command output.

Of the ANSI styles in command output only foreground color, bold, italic and underline are kept; backgrounds and
"conceal" could hide text.
"""

import re

from rich.ansi import AnsiDecoder
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from odin.ui.clean_text import ESCAPE_SEQUENCE, sanitize

_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_LONG_NUMBER = re.compile("[0-9]{4,}")


def parse_ansi(text: str, base: Style) -> list[list[Segment]]:
    """Return the lines of command output as segments, in the output's own styles on top of `base`."""
    if "\x1b" not in text:
        return [[Segment(line, base)] if line else [] for line in sanitize(text).split("\n")]
    decoder = AnsiDecoder()
    styles_only = ESCAPE_SEQUENCE.sub(lambda match: match[0] if _STYLE.fullmatch(match[0]) else "", text)
    return [_make_segments(decoder.decode_line(_sanitize_styled(line)), base) for line in styles_only.split("\n")]


def _sanitize_styled(line: str) -> str:
    """Sanitize the text between the style sequences, and rewrite the sequences so that rich reads all of them.

    Rich knows only `;` as separator, and Python refuses to parse numbers of thousands of digits.
    """
    pieces = _STYLE.split(line)
    for number, piece in enumerate(pieces):
        if number % 2:
            codes = _LONG_NUMBER.sub("999", piece.replace(":", ";"))
            pieces[number] = f"\x1b[{codes}m"
        else:
            pieces[number] = sanitize(piece)
    return "".join(pieces)


def _make_segments(text: Text, base: Style) -> list[Segment]:
    plain, end = text.plain, 0
    segments: list[Segment] = []
    for span in text.spans:
        if span.start > end:
            segments.append(Segment(plain[end : span.start], base))
        if isinstance(span.style, Style):
            segments.append(Segment(plain[span.start : span.end], base + _get_visible_style(span.style)))
            end = span.end
    if end < len(plain):
        segments.append(Segment(plain[end:], base))
    return segments


def _get_visible_style(style: Style) -> Style:
    color = style.color if style.color is not None and not style.color.is_default else None
    return Style(color=color, bold=style.bold, italic=style.italic, underline=style.underline)
