"""Makes untrusted text safe to draw: no terminal control, no bidirectional overrides, no invisible characters.

Of the ANSI styles in command output only foreground color, bold, italic and underline are kept; backgrounds and
"conceal" could hide text.
"""

import re

from rich.ansi import AnsiDecoder
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from odin.ui.terminal import escape_control

_JOINED_EMOJI = re.compile(
    "(?:[^\u200d\\s][\ufe0f\U0001f3fb-\U0001f3ff]?)?(?:\u200d+(?:[^\u200d\\s][\ufe0f\U0001f3fb-\U0001f3ff]?)?)+"
)
_MAX_JOINED = 4
"""No Unicode emoji sequence joins more parts."""

_TAB = 4
_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)
_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_LONG_NUMBER = re.compile("[0-9]{4,}")


def sanitize(text: str) -> str:
    """Return the text with control and invisible characters escaped and tabs expanded; line breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    if "\t" in text:
        text = "\n".join(line.expandtabs(_TAB) for line in text.split("\n"))
    if "\u200d" in text:
        text = _JOINED_EMOJI.sub(_split_joined, text)
    return escape_control(text.replace("\r\n", "\n"))


def _split_joined(match: re.Match[str]) -> str:
    """Keep real emoji sequences. Other joined characters would be measured as one cell but drawn as several."""
    parts = match[0].split("\u200d")
    is_emoji = len(parts) <= _MAX_JOINED and all(part and part[0] >= "\u2190" for part in parts)
    return match[0] if is_emoji else "".join(parts)


def sanitize_line(text: str) -> str:
    """Return the sanitized text as one line with single spaces."""
    return sanitize(" ".join(text.split()))


def strip_escapes(text: str) -> str:
    return _SEQUENCE.sub("", text) if "\x1b" in text else text


def parse_ansi(text: str, base: Style) -> list[list[Segment]]:
    """Return the lines of command output as segments, in the output's own styles on top of `base`."""
    if "\x1b" not in text:
        return [[Segment(line, base)] if line else [] for line in sanitize(text).split("\n")]
    decoder = AnsiDecoder()
    styles_only = _SEQUENCE.sub(lambda match: match[0] if _STYLE.fullmatch(match[0]) else "", text)
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
